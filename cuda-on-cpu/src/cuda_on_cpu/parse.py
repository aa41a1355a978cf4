"""Read PTX: kernels, their registers and instructions, and the memory that they declare."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

# Bytes, by a type's name or the end of it.
SIZES = {"pred": 1, "f16x2": 4, "8": 1, "16": 2, "32": 4, "64": 8}
SPACES = ("global", "shared", "local", "const", "param")
NO_LINE = "PTX"  # of an instruction before any line of a source
GENERIC = "generic"  # the space of an access that names none: its address decides
# Each module of numba-cuda-mlir declares it, and a kernel that raises an exception writes there.
# Here that is a fault, as in a constant table.
ERROR_CODE = ".common .global .align 4 .u32 __numba_cuda_mlir_error_code;"


class UnknownPtx(Exception):
    """PTX that this package does not know; the message names it."""


@dataclass(frozen=True)
class Variable:
    """Memory that PTX declares. size: bytes; 0 of dynamic shared memory, which the launch sizes.

    align: bytes. content: of a constant table.
    """

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
    """A kernel, or a function that is called. code: instructions, and labels as strings.

    parameters: sizes in bytes, in order; of a function its result first. registers: their types,
    such as "f32".
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
    files, is_mlirs = _file_names(ptx), ERROR_CODE in ptx
    ptx = ptx.replace(ERROR_CODE, ERROR_CODE.replace(".common .global", ".const"))
    ptx = re.sub(r"//.*|^\s*\.file\b.*|^\s*\.section\b[^{}]*\{[^{}]*\}", "", ptx, flags=re.M)
    module = Module({}, {}, {})
    end = 0
    functions: dict[str, Kernel] = {}
    for head in _HEAD.finditer(ptx):
        _read_declarations(ptx[end : head.start()], module)
        end = head.end()
        if head["end"] == ";":
            continue  # a function that is defined elsewhere
        end = _end_of_block(ptx, end)
        kernel = Kernel(head["name"], _parameters(f"{head['result'] or ''},{head['parameters']}"))
        _read_body(ptx[head.end() : end - 1], kernel, files)
        (module.kernels if head["kind"] == "entry" else functions)[kernel.name] = kernel
    _read_declarations(ptx[end:], module)
    for kernel in module.kernels.values():
        kernel.code = list(_with_calls(kernel, {}, functions, kernel, [kernel.name]))
        kernel.shared = {**module.shared, **kernel.shared}
        _align_as_accessed(kernel)
        if is_mlirs:
            _adapt_to_checks(kernel)
    return module


def _align_as_accessed(kernel: Kernel) -> None:
    """Align shared arrays to the kernel's smallest access to them, or less.

    Else threads would race that write parts of an aligned piece, see `run._granule`.
    """
    instructions = [one for one in kernel.code if isinstance(one, Instruction)]
    accesses = (one.opcode for one in instructions if one.opcode[0] in ("ld", "st", "atom", "red"))
    sizes = (
        size_of(kind) for _, *space, kind in accesses if take_space(space) in ("shared", GENERIC)
    )
    smallest = min(sizes, default=8)
    kernel.shared = {n: replace(v, align=min(v.align, smallest)) for n, v in kernel.shared.items()}


def _adapt_to_checks(kernel: Kernel) -> None:
    """Change a kernel of numba-cuda-mlir where the checks would find fault with that compiler.

    Most of its atomic operations begin with a plain read: in lines of the source that compare and
    swap, reads become volatile.
    """
    instructions = [one for one in kernel.code if isinstance(one, Instruction)]
    swapping = {one.line for one in instructions if "cas" in one.opcode}
    for k, one in enumerate(kernel.code):
        if isinstance(one, Instruction) and one.opcode[0] == "ld" and one.line in swapping:
            kernel.code[k] = replace(one, opcode=("ld", "volatile", *one.opcode[1:]))


_HEAD = re.compile(
    r"(?:\.(?:visible|weak|extern)\s+)*\.(?P<kind>entry|func)\s*(?:\((?P<result>[^)]*)\)\s*)?"
    r"(?P<name>[\w$]+)\s*\((?P<parameters>[^)]*)\)[^{;]*(?P<end>[{;])"
)
_CALL = re.compile(r"(?:\((?P<result>\S+)\), )?(?P<name>[\w$%]+)(?:, \((?P<arguments>.*)\))?")
_calls = itertools.count()
# Functions of CUDA's libraries, as instructions. {0} is the result; {1}, {2} are the arguments.
KNOWN_FUNCTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "vprintf": (("print", "[{1}]", "[{2}]"), ("st.param.b32", "[{0}]", "0")),
    "cudaCGGetIntrinsicHandle": (("st.param.b64", "[{0}]", "1"),),
    "cudaCGSynchronize": (("bar.grid", "0"), ("st.param.b32", "[{0}]", "0")),
}


def _with_calls(
    function: Kernel,
    names: dict[str, str],
    functions: dict[str, Kernel],
    kernel: Kernel,
    callers: list[str],
) -> Iterator[Instruction | str]:
    """The code of a function, and in the place of each call the code of the function called.

    names: that replace the function's own. Each call has registers, memory and labels of its own,
    which are added to the kernel; parameters are local memory of the caller.
    """

    def renamed(text: str) -> str:
        return re.sub(r"[%$\w.]+", lambda match: names.get(match[0], match[0]), text)

    for code in list(function.code):
        if isinstance(code, str):
            yield names.get(code, code)
            continue
        operands, guard = tuple(map(renamed, code.operands)), code.guard and renamed(code.guard)
        code = replace(code, operands=operands, guard=guard)
        if code.opcode[0] == "ret" and len(callers) > 1:
            yield replace(code, opcode=("bra",), operands=(names["ret"],))
        elif code.opcode[0] == "call":
            yield from _called(code, functions, kernel, callers)
        else:
            yield code


def _called(
    call: Instruction, functions: dict[str, Kernel], kernel: Kernel, callers: list[str]
) -> Iterator[Instruction | str]:
    """The code of a function that is called. Raises UnknownPtx for a recursion."""
    match = _CALL.fullmatch(", ".join(call.operands))
    if not match or call.guard:
        raise UnknownPtx(str(call))
    name, given = match["name"], [match["result"], *re.findall(r"[\w$]+", match["arguments"] or "")]
    if name in KNOWN_FUNCTIONS:
        for opcode, *operands in KNOWN_FUNCTIONS[name]:
            filled = tuple(operand.format(*given) for operand in operands)
            yield replace(call, opcode=tuple(opcode.split(".")), operands=filled)
        return
    if name in callers:
        raise UnknownPtx(f"the recursion of {' -> '.join([*callers, name])}")
    if name not in functions:
        raise UnknownPtx(f"the function {name}")
    function, suffix = functions[name], f"$call{next(_calls)}"
    labels = [code for code in function.code if isinstance(code, str)]
    own = ("ret", *labels, *function.registers, *function.local)
    names = {one: f"{one}{suffix}" for one in own}
    kernel.registers |= {names[one]: kind for one, kind in function.registers.items()}
    kernel.local |= {names[one]: variable for one, variable in function.local.items()}
    kernel.shared |= function.shared
    names |= dict(zip(function.parameters, filter(None, given), strict=True))
    yield from _with_calls(function, names, functions, kernel, [*callers, name])
    yield names["ret"]


def _file_names(ptx: str) -> dict[int, str]:
    """The files of the source by number: only their last part, if no other has the same."""
    paths = {int(n): Path(p) for n, p in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', ptx, re.M)}
    last = Counter(path.name for path in set(paths.values()))
    return {n: str(path) if last[path.name] > 1 else path.name for n, path in paths.items()}


def size_of(type_name: str) -> int:
    """The size of a type such as "u32", in bytes. Raises UnknownPtx."""
    size = SIZES.get(type_name if type_name in SIZES else type_name[1:])
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


_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)*(?:\d+\s+)?)?([\w$]+)"
    r"(?:\[(\d+)\])?"
)


def _parameters(text: str) -> dict[str, int]:
    found = {}
    for declaration in filter(None, (part.strip() for part in text.split(","))):
        match = _PARAMETER.fullmatch(declaration)
        if not match:
            raise UnknownPtx(f"the parameter {declaration!r}")
        found[match[2]] = size_of(match[1]) * int(match[3] or 1)
    return found


_VARIABLE = re.compile(
    r"(?:\.visible\s+|\.extern\s+)*\.(shared|global|const|local)\s+\.align\s+(\d+)\s+"
    r"\.(?:b8\s+([\w$]+)\[(\d*)\](?:\s*=\s*\{([^}]*)\})?|(\w+)\s+([\w$]+))"
)


def declared_variable(text: str) -> tuple[str, str, Variable] | None:
    """The space, the name and the variable that a text declares; None if it declares none."""
    match = _VARIABLE.fullmatch(text)
    if not match:
        return None
    space, align, array, length, values, kind, scalar = match.groups()
    content, name, size = None, array or scalar, int(length or 0)
    if scalar and not scalar.startswith("__dynamic_shmem__"):  # by numba-cuda-mlir without a size
        size = size_of(kind)
    if values is not None or space == "const":  # missing values are zero
        numbers = filter(None, (values or "").split(","))
        content = bytes(int(value, 0) for value in numbers).ljust(size, b"\0")
    return space, name, Variable(size, int(align), content)


def _read_declarations(text: str, module: Module) -> None:
    """Add declarations outside of kernels."""
    text = re.sub(r"^\s*\.(version|target|address_size|common|section)\b.*", "", text, flags=re.M)
    for statement in filter(None, (" ".join(part.split()) for part in text.split(";"))):
        match declared_variable(statement):
            case "shared", name, variable:
                module.shared[name] = variable
            case "global" | "const", name, Variable(content=bytes()) as variable:
                module.tables[name] = variable
            case _:
                raise UnknownPtx(statement[:100])


_REGISTERS = re.compile(r"\.reg ?\.(\w+) (%?[\w$]+(?:<\d+>)?(?: ?, ?%?[\w$]+)*)")
_LINE = re.compile(r"\.loc (\d+) (\d+) \d+.*", re.S)
_INSTRUCTION = re.compile(r"(?:@(!?)(%?\w+) )?([a-z]\w*(?:\.[\w:]+)*)(?: (.*))?", re.S)


def _read_body(text: str, kernel: Kernel, files: dict[int, str]) -> None:
    """Add the registers, the local memory and the instructions of a kernel."""
    text = re.sub(r"^\s*(\.loc\b.*)$", r"\1;", text, flags=re.M)  # the only ones that lack it
    text = re.sub(r"^\s*([$\w]+:)", r"\1;", text, flags=re.M)
    text = re.sub(r"\{([^{};]*)\}", r"<\1>", text)  # vectors: all other braces are of blocks
    text = re.sub(r"[{}]", " ", text)
    line = NO_LINE
    for statement in filter(None, (" ".join(part.split()) for part in text.split(";"))):
        if match := _LINE.fullmatch(statement):
            line = f"{files[int(match[1])]}:{match[2]}"
        elif statement.endswith(":"):
            kernel.code.append(statement[:-1])
        elif match := _REGISTERS.fullmatch(statement):
            for name in re.findall(r"[^\s,]+", match[2]):
                stem, *n = name.rstrip(">").split("<")
                for register in [f"{stem}{k}" for k in range(int(n[0]))] if n else [stem]:
                    # Blocks within brackets may declare it again.
                    if kernel.registers.setdefault(register, match[1]) != match[1]:
                        raise UnknownPtx(f"another type of {register}: {statement}")
        elif statement.startswith(".pragma"):
            continue
        elif statement.startswith(".param"):  # of a call; another may have it smaller
            for name, size in _parameters(statement).items():
                before = kernel.local.get(name, Variable(0, 8)).size
                kernel.local[name] = Variable(max(size, before), 8)
        elif statement.startswith("."):
            match declared_variable(statement):
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
