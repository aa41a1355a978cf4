"""The loops of a kernel's machine code: their instructions, branches, and loads under way at once.

nvdisasm, from the package nvidia-cuda-nvdisasm, writes machine code as text. Nothing is executed.
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import NamedTuple

from cuda_on_cpu.compile import link

INSTRUCTION = re.compile(
    r"\s+/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<guard>@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)(?P<rest>.*?);"
)
LABEL = re.compile(r"^(\.L_x_\d+|[\w$]+):")
REGISTER = re.compile(r"\bR(\d+)(\.64)?")
WORDS = {"64": 2, "128": 4}  # that a load of as many bits writes


class Instruction(NamedTuple):
    """An instruction: its operation with modifiers, such as LDG.E, and its operands as text."""

    opcode: str
    operands: str

    @property
    def name(self) -> str:
        """The operation without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def written(self) -> set[int]:
        """The registers that a load writes."""
        first = REGISTER.match(self.operands)
        sizes = (WORDS.get(part, 1) for part in self.opcode.split("."))
        return set(range(n := int(first[1]), n + max(sizes))) if first else set()

    @property
    def read(self) -> set[int]:
        """The registers named after the first operand; all of a store's."""
        text = self.operands if self.name.startswith("ST") else self.operands.partition(",")[2]
        return {int(n) + k for n, wide in REGISTER.findall(text) for k in range(2 if wide else 1)}


@dataclass(frozen=True)
class Loop:
    """A loop: the instructions from its label to the branch back, without those of loops in it."""

    instructions: tuple[Instruction, ...]
    is_innermost: bool

    @property
    def counts(self) -> Counter[str]:
        """How many there are of each operation."""
        return Counter(one.name for one in self.instructions)

    @property
    def n_branches(self) -> int:
        """Branches within the loop, and calls.

        Not counted are the branch that closes the loop, and BRA.DIV, which a warp takes only if its
        threads have diverged.
        """
        branches = [one for one in self.instructions if one.name in ("BRA", "BRX", "CALL")]
        return sum(one.opcode != "BRA.DIV" for one in branches) - 1

    def most_under_way(self, name: str) -> int:
        """Loads of that name (LDG, LDS) that are issued before the first of them is waited for.

        The loop is followed twice, because loads may be used in the next round.
        """
        most = 0
        pending: list[set[int]] = []
        for one in self.instructions * 2:
            used = [k for k, registers in enumerate(pending) if registers & one.read]
            if used:
                del pending[: used[-1] + 1]  # those before it have arrived as well
            if one.name == name:
                pending.append(one.written)
                most = max(most, len(pending))
        return most


def nvdisasm() -> str | None:
    """The path of nvdisasm; None if the package is not installed."""
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.files("nvidia-cuda-nvdisasm") or []:
            if file.stem == "nvdisasm":
                return str(file.locate())
    return None


def disassemble(ptx: str, cc: tuple[int, int]) -> str:
    """The machine code that PTX becomes for a compute capability, as nvdisasm prints it.

    Raises FileNotFoundError if that is not installed.
    """
    if (program := nvdisasm()) is None:
        raise FileNotFoundError("the package nvidia-cuda-nvdisasm is not installed")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(link(ptx, cc)[1])
        file.flush()
        command = [program, "-c", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def loops(text: str) -> Iterator[Loop]:
    """The loops of the machine code of `disassemble`, by the places of their ends."""
    labels: dict[str, int] = {}
    code: list[Instruction] = []
    found = []  # first instruction and the one after the last
    ends = []  # where every thread ends
    for line in text.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(code)
        elif one := INSTRUCTION.match(line):
            if one["opcode"] == "EXIT" and not one["guard"]:
                ends.append(len(code))
            code.append(Instruction(one["opcode"], one["rest"].strip()))
            target = re.search(r"`\((\S+)\)", one["rest"])
            if code[-1].name == "BRA" and target and target[1] in labels:
                found.append((labels[target[1]], len(code)))
    # Not the traps that fill up, nor the code behind the end, for warps that diverged.
    spans = [
        (first, end)
        for first, end in found
        if end - first > 1 and not any(first <= k < end for k in ends)
    ]
    for span in spans:
        inner = [other for other in spans if other != span and _within(other, span)]
        own = (k for k in range(*span) if not any(a <= k < b for a, b in inner))
        yield Loop(tuple(code[k] for k in own), is_innermost=not inner)


def _within(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]
