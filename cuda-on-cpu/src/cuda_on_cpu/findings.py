"""Sentences about the faults of a kernel: the line, the thread, the element of an array."""

import re
from dataclasses import dataclass

import numpy as np

from cuda_on_cpu import memory_checks as checks
from cuda_on_cpu.parse import Instruction, elements, size_of, take_space
from cuda_on_cpu.translate import FINISHED, GRID_WAIT, WAITS, WARP, WARP_WAIT

KINDS = {"ld": "read", "cp": "read", "st": "write", "atom": "atomic", "red": "atomic"}
PLACE = [checks.FAULT_PLACE, checks.FAULT_BLOCK, checks.FAULT_THREAD, checks.FAULT_ADDRESS]


@dataclass(frozen=True)
class Findings:
    """Formats the faults of one launch.

    kernel: its name. code: its instructions, and labels as strings. grid, block: blocks, and
    threads, in x, y and z. ranges: see `memory_checks`, without the last. arrays: of each range the
    name, and the bytes of an element, 0 if unknown. values: of parameters, and the addresses of
    shared arrays, by their names in PTX.
    """

    kernel: str
    code: list[Instruction | str]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    ranges: np.ndarray
    arrays: list[tuple[str, int]]
    values: dict[str, int]

    def access(self, context: np.ndarray) -> str:
        """The fault of an access or of a loop, as a sentence."""
        place, block, thread, address = map(int, context[PLACE])
        code, fault = self._code(place), context[checks.FAULT]
        sentence = (
            f"{self.kernel} ({code.line}): {code} {checks.FAULTS[fault]}: "
            f"block {coordinates(block, self.grid)}, thread {coordinates(thread, self.block)}"
        )
        if fault == checks.ENDLESS:
            return sentence
        return f"{sentence}, address {address:#x} ({self._array_at(address, code)})"

    def other_access(
        self, fault: np.ndarray, context: np.ndarray, blocks: np.ndarray, traces: list[np.ndarray]
    ) -> str:
        """The access with which another one races, as the end of a sentence.

        fault, context: of the run with the race, and of the same again, which was traced. traces:
        of each of `blocks` that ran. Returns "" if the second run has not the same fault, or if an
        asynchronous copy made the access: that has no trace.
        """
        own = self._code(int(fault[checks.FAULT_PLACE]))
        if (fault[PLACE] != context[PLACE]).any() or own.opcode[0] == "cp":
            return ""
        _, own_block, own_thread, address = map(int, fault[PLACE])
        is_of_blocks = fault[checks.FAULT] in (checks.BLOCKS, checks.WRITES_OF_BLOCKS)
        _, own_kind, own_size = access_of(own)
        for block, trace in reversed(list(zip(blocks.tolist(), traces, strict=False))):
            if (block == own_block) == is_of_blocks:
                continue
            for other_place, thread, start in reversed(trace.tolist()):
                code = self._code(other_place)
                _, kind, size = access_of(code)
                overlap = start < address + own_size and address < start + size
                is_race = "write" in (kind, own_kind) or kind != own_kind
                if overlap and is_race and (is_of_blocks or thread != own_thread):
                    of_block = f"block {coordinates(block, self.grid)}, " * is_of_blocks
                    of_thread = f"thread {coordinates(thread, self.block)}"
                    return f"; the other access: {of_block}{of_thread}, {code} ({code.line})"
        return ""

    def wait(self, context: np.ndarray, states: np.ndarray, masks: np.ndarray) -> str:
        """A thread that waits for one that will not come, as a sentence.

        states, masks: of all threads; the mask is of the lanes for which a thread waits.
        """
        block, thread = map(int, context[[checks.FAULT_BLOCK, checks.FAULT_THREAD]])
        waits = [c for c in self.code if isinstance(c, Instruction) and c.opcode[0] in WAITS]
        own = waits[states[thread] % GRID_WAIT - 1]
        numbers = np.arange(len(states))
        in_warp, goes_on = numbers // WARP == thread // WARP, states != FINISHED
        is_missing = (states != states[thread]) & (in_warp | goes_on)
        if states[thread] >= WARP_WAIT:
            is_named = masks[thread] >> (numbers % WARP) & 1 == 1
            is_missing = (
                in_warp
                & goes_on
                & is_named
                & ((states != states[thread]) | (masks != masks[thread]))
            )
        others = np.flatnonzero(is_missing).tolist()
        elsewhere = ""
        if others:
            other = min(others, key=lambda t: (t // WARP != thread // WARP, t))
            there = "has ended"
            if states[other] != FINISHED:
                code = waits[states[other] % GRID_WAIT - 1]
                there = f"waits at {code} ({code.line})"
            elsewhere = f": thread {coordinates(other, self.block)} {there}"
        return (
            f"{self.kernel} ({own.line}): {own}: block {coordinates(block, self.grid)}, "
            f"thread {coordinates(thread, self.block)} waits for threads that wait at another "
            f"barrier or exchange, or that have ended without waiting{elsewhere}"
        )

    def _code(self, place: int) -> Instruction:
        code = self.code[place]
        assert isinstance(code, Instruction)
        return code

    def _array_at(self, address: int, code: Instruction) -> str:
        """The element of an array at an address; else counted from the array that is meant.

        That is the nearest, of the arrays from whose addresses the instruction's is computed.
        """
        # A copy has two addresses, in two spaces.
        space = "generic" if code.opcode[0] == "cp" else take_space(list(code.opcode))
        meant, distances = self._origins(code), {}
        for (begin, end, number, *_), (name, itemsize) in zip(
            self.ranges.tolist(), self.arrays, strict=True
        ):
            offset = address - begin
            element = f"{name}[{offset // itemsize}]" if itemsize else name
            if begin <= address < end:
                distances[f"{element}, byte {offset}"] = (0, 0)
            elif checks.SPACES[space] in (number, checks.GENERIC):
                outside = f"no array: {element}, byte {offset} of {end - begin}"
                distances[outside] = (1 + (begin not in meant), max(begin - address, address - end))
        least = min(distances.values(), default=None)
        return " or ".join(text for text, n in distances.items() if n == least) or "no array"

    def _origins(self, code: Instruction) -> set[int]:
        """Of `values`, those from which the address of an access is computed."""
        steps: dict[str, list[str]] = {}  # from a register to what it is computed from
        for step in self.code:
            if isinstance(step, Instruction) and step.operands:
                target, *sources = step.operands
                if step.opcode[0] not in ("ld", "atom") or step.opcode[1] == "param":
                    for register in elements(target):
                        steps.setdefault(register, []).extend(sources)
        found, wanted = set(), [part for part in code.operands if part.startswith("[")]
        while wanted:
            for name in re.findall(r"[%$\w]+", wanted.pop()):
                wanted += steps.pop(name, [])
                found |= {self.values[name]} if name in self.values else set()
        return found


def access_of(code: Instruction) -> tuple[str, str, int]:
    """The space, the kind and the bytes of an access; of a copy, those of its source."""
    if code.opcode[0] == "cp":
        return code.opcode[-1], "read", int(code.operands[2])
    n = next((int(part[1]) for part in code.opcode if part in ("v2", "v4")), 1)
    name, *modifiers, kind = code.opcode
    return take_space(modifiers), KINDS[name], n * size_of(kind)


def coordinates(number: int, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Coordinates x, y, z of a number in a grid or block."""
    return number % shape[0], number // shape[0] % shape[1], number // shape[0] // shape[1]
