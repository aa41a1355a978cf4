"""Which registers hold values that are still needed: those that a thread keeps at a barrier."""

import re

from cuda_on_cpu.parse import Instruction, Kernel, UnknownPtx


def live_registers(kernel: Kernel) -> list[frozenset[str]]:
    """For each place in the code, the registers whose values are still needed from there on."""
    places = {c: k for k, c in enumerate(kernel.code) if isinstance(c, str)}
    alive: list[frozenset[str]] = [frozenset()] * (len(kernel.code) + 1)
    changed = True
    while changed:
        changed = False
        for place in reversed(range(len(kernel.code))):
            code = kernel.code[place]
            found = alive[place + 1]
            if isinstance(code, Instruction):
                if code.opcode[0] == "bra":
                    if code.operands[0] not in places:
                        raise UnknownPtx(f"the label of {code}")
                    jumped = alive[places[code.operands[0]]]
                    found = jumped | found if code.guard else jumped
                elif code.opcode[0] in ("ret", "exit") and not code.guard:
                    found = frozenset()
                written, read = _registers_of(code, kernel)
                found = (found if code.guard else found - written) | read
            if found != alive[place]:
                alive[place], changed = found, True
    return alive


def _registers_of(code: Instruction, kernel: Kernel) -> tuple[set[str], set[str]]:
    """The registers that an instruction writes and those that it reads."""
    n_targets = 0 if code.opcode[0] in ("st", "red", "bra", "bar", "ret") else 1
    found = [
        {name for name in re.findall(r"%?[\w$.]+", operand) if name in kernel.registers}
        for operand in code.operands
    ]
    written = set().union(*found[:n_targets])
    read = set().union(*found[n_targets:], [code.guard] if code.guard else [])
    return written, read
