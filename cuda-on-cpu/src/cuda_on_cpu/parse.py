"""Read PTX: kernels, their registers and instructions, and the memory that they declare."""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

SIZES = {"pred": 1, "8": 1, "16": 2, "32": 4, "64": 8}  # bytes, by the end of a type's name
SPACES = ("global", "shared", "local", "const", "param")
GENERIC = "generic"  # the space of an access that names none: its address decides


class UnknownPtx(Exception):
    """PTX that this package does not know; the message names it."""


@dataclass(frozen=True)
class Variable:
    """Memory that PTX declares. size: bytes. align: bytes. content: of a constant table."""

    size: int
    align: int
    content: bytes | None = None


@dataclass(frozen=True)
class Instruction:
    """One instruction, such as @!%p1 add.f32 %f3, %f1, %f2.

    guard: the predicate's register, or None. negated: whether the guard must be false. opcode: the
    parts between its dots. operands: as they are written; a vector is "<%f1, %f2>". line: of the
    source, "file.py:7", or "PTX" where that names none.
    """

    guard: str | None
    negated: bool
    opcode: tuple[str, ...]
    operands: tuple[str, ...]
    line: str

    def __str__(self) -> str:
        guard = f"@{'!' * self.negated}{self.guard} " if self.guard else ""
        return f"{guard}{'.'.join(self.opcode)} {', '.join(self.operands)}".strip()


@dataclass
class Kernel:
    """A kernel. parameters: sizes in bytes, in order. registers: their types, such as "f32".

    code: instructions, and labels as strings.
    """

    name: str
    parameters: dict[str, int]
    registers: dict[str, str] = field(default_factory=dict)
    local: dict[str, Variable] = field(default_factory=dict)
    shared: dict[str, Variable] = field(default_factory=dict)
    code: list[Instruction | str] = field(default_factory=list)


@dataclass
class Module:
    """The parts of a text of PTX. tables: constant memory, with its content."""

    kernels: dict[str, Kernel]
    shared: dict[str, Variable]
    tables: dict[str, Variable]


def parse(ptx: str) -> Module:
    """The kernels and variables of a text of PTX. Raises UnknownPtx."""
    files = _file_names(ptx)
    ptx = re.sub(r"//.*|^\s*\.file\b.*|^\s*\.section\b[^{}]*\{[^{}]*\}", "", ptx, flags=re.M)
    module = Module({}, {}, {})
    end = 0
    entry = re.compile(r"\.visible\s+\.entry\s+([\w$]+)\s*\(([^)]*)\)[^{]*\{", re.S)
    for head in entry.finditer(ptx):
        _read_declarations(ptx[end : head.start()], module)
        end = _end_of_block(ptx, head.end())
        kernel = Kernel(head[1], _parameters(head[2]))
        _read_body(ptx[head.end() : end - 1], kernel, files)
        module.kernels[kernel.name] = kernel
    _read_declarations(ptx[end:], module)
    for kernel in module.kernels.values():
        kernel.shared = {**module.shared, **kernel.shared}
    return module


def _file_names(ptx: str) -> dict[int, str]:
    """The files of the source by number: only their last part, if no other has the same."""
    paths = {int(n): Path(p) for n, p in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', ptx, re.M)}
    last = Counter(path.name for path in set(paths.values()))
    return {n: str(path) if last[path.name] > 1 else path.name for n, path in paths.items()}


def size_of(type_name: str) -> int:
    """The size of a type such as "u32", in bytes. Raises UnknownPtx."""
    size = SIZES.get(type_name if type_name == "pred" else type_name[1:])
    if size is None:
        raise UnknownPtx(f"the type {type_name}")
    return size


def take_space(modifiers: list[str]) -> str:
    """The space of memory that an opcode names, or GENERIC; takes it out of its modifiers."""
    for part in modifiers:
        if part in SPACES:
            modifiers.remove(part)
            return part
    return GENERIC


def elements(operand: str) -> list[str]:
    """The elements of a vector; an operand that is none is its only element."""
    return re.findall(r"[^<>,\s]+", operand) if operand.startswith("<") else [operand]


def _end_of_block(text: str, start: int) -> int:
    """The position after the brace that closes the one before `start`."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    raise UnknownPtx("a kernel without an end")


def _parameters(text: str) -> dict[str, int]:
    found = {}
    for declaration in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(
            r"\.param\s+\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)*(?:\d+\s+)?)?([\w$]+)", declaration
        )
        if not match:
            raise UnknownPtx(f"the parameter {declaration!r}")
        found[match[2]] = size_of(match[1])
    return found


_VARIABLE = re.compile(
    r"(?:\.visible\s+|\.extern\s+)*\.(shared|global|const|local)\s+\.align\s+(\d+)\s+\.b8\s+"
    r"([\w$]+)\[(\d*)\](?:\s*=\s*\{([^}]*)\})?"
)


def _variable(text: str) -> tuple[str, str, Variable] | None:
    """The space, the name and the variable that a text declares; None if it declares none."""
    match = _VARIABLE.fullmatch(text)
    if not match:
        return None
    space, align, name, size, values = match.groups()
    content = None
    if values is not None:  # missing values are zero
        content = bytes(int(value, 0) for value in values.split(",")).ljust(int(size), b"\0")
    return space, name, Variable(int(size or 0), int(align), content)


def _read_declarations(text: str, module: Module) -> None:
    """Add declarations outside of kernels."""
    text = re.sub(r"^\s*\.(version|target|address_size|common|section)\b.*", "", text, flags=re.M)
    for statement in filter(None, (" ".join(part.split()) for part in text.split(";"))):
        match _variable(statement):
            case "shared", name, variable:
                module.shared[name] = variable
            case "global" | "const", name, Variable(content=bytes()) as variable:
                module.tables[name] = variable
            case _:
                raise UnknownPtx(statement[:100])


_REGISTERS = re.compile(r"\.reg \.(\w+) (%?[\w$]+?)(?:<(\d+)>)?")
_LINE = re.compile(r"\.loc (\d+) (\d+) \d+.*", re.S)
_INSTRUCTION = re.compile(r"(?:@(!?)(%\w+) )?([a-z]\w*(?:\.[\w:]+)*)(?: (.*))?", re.S)


def _read_body(text: str, kernel: Kernel, files: dict[int, str]) -> None:
    """Add the registers, the local memory and the instructions of a kernel."""
    text = re.sub(r"^\s*(\.loc\b.*)$", r"\1;", text, flags=re.M)  # the only ones that lack it
    text = re.sub(r"^\s*([$\w]+:)", r"\1;", text, flags=re.M)
    text = re.sub(r"\{([^{};]*)\}", r"<\1>", text)  # vectors: all other braces are of blocks
    text = re.sub(r"[{}]", " ", text)
    line = "PTX"
    for statement in filter(None, (" ".join(part.split()) for part in text.split(";"))):
        if match := _LINE.fullmatch(statement):
            line = f"{files[int(match[1])]}:{match[2]}"
        elif statement.endswith(":"):
            kernel.code.append(statement[:-1])
        elif match := _REGISTERS.fullmatch(statement):
            names = [f"{match[2]}{k}" for k in range(int(match[3]))] if match[3] else [match[2]]
            kernel.registers.update(dict.fromkeys(names, match[1]))
        elif statement.startswith(".pragma"):
            continue
        elif statement.startswith("."):
            match _variable(statement):
                case "local", name, variable:
                    kernel.local[name] = variable
                case "shared", name, variable:
                    kernel.shared[name] = variable
                case _:
                    raise UnknownPtx(statement[:100])
        elif match := _INSTRUCTION.fullmatch(statement):
            operands = re.findall(r"<[^>]*>|\[[^\]]*\]|[^,\s]+", match[4] or "")
            opcode = tuple(match[3].split("."))
            kernel.code.append(
                Instruction(match[2], match[1] == "!", opcode, tuple(operands), line)
            )
        else:
            raise UnknownPtx(statement[:100])
