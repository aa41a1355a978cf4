"""Each arithmetic opcode of PTX as LLVM IR.

`find` gives an opcode's types and a function that emits it. NVIDIA's PTX ISA defines the edges:
shifts by more than the width, NaN in max, conversions out of range, rounding downwards.
"""

from collections.abc import Callable

from llvmlite import ir

from cuda_on_cpu.floats import FLOATS
from cuda_on_cpu.integers import INTEGERS
from cuda_on_cpu.operations import (
    F32,
    F64,
    Operation,
    intrinsic,
    is_signed,
    llvm_type,
    resize,
)
from cuda_on_cpu.parse import UnknownPtx

COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARISONS |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # unsigned


def find(opcode: tuple[str, ...]) -> Operation:
    """The operation of an opcode. Raises UnknownPtx, which names it."""
    name, modifiers, kind = opcode[0], list(opcode[1:-1]), opcode[-1]
    if name in FLOATS and kind in ("f32", "f64"):
        operation = FLOATS[name](kind, modifiers)
    elif name in INTEGERS and kind not in ("f32", "f64"):
        operation = INTEGERS[name](kind, modifiers)
    elif name in _BOTH:
        operation = _BOTH[name](kind, modifiers)
    else:
        operation = None
    if operation is None:
        raise UnknownPtx(f"the opcode {'.'.join(opcode)}")
    return operation


def _compare(kind: str, modifiers: list[str]) -> Operation | None:
    """setp. Of floats, a comparison with NaN holds only if its name ends in u, or is nan."""
    if len(modifiers) != 1:
        return None
    relation = modifiers[0]
    sign: str | None
    if kind in ("f32", "f64") and relation in ("num", "nan"):
        compare = ir.IRBuilder.fcmp_ordered if relation == "num" else ir.IRBuilder.fcmp_unordered
        sign = "ord" if relation == "num" else "uno"
    elif kind in ("f32", "f64"):
        unordered = len(relation) == 3 and relation[2] == "u"
        sign = COMPARISONS.get(relation[:2] if unordered else relation)
        compare = ir.IRBuilder.fcmp_unordered if unordered else ir.IRBuilder.fcmp_ordered
    else:
        sign = COMPARISONS.get(relation)
        compare = ir.IRBuilder.icmp_signed if is_signed(kind) else ir.IRBuilder.icmp_unsigned
    if sign is None:
        return None
    return Operation("pred", (kind,) * 2, lambda b, x, y: compare(b, sign, x, y))


def _select(kind: str, modifiers: list[str]) -> Operation | None:
    if modifiers:
        return None
    return Operation(kind, (kind, kind, "pred"), lambda b, x, y, p: b.select(p, x, y))


def _convert(kind: str, modifiers: list[str]) -> Operation | None:
    """cvt with the modifiers before the type that it converts to."""
    if not modifiers:
        return None
    *mode, to = modifiers
    floats = ("f32", "f64")
    emit: Callable | None = None
    if kind not in floats and to not in floats and not mode:
        emit = lambda b, x: resize(b, x, llvm_type(to), is_signed(kind))  # noqa: E731
    elif kind not in floats and to in floats and mode == ["rn"]:
        change = ir.IRBuilder.sitofp if is_signed(kind) else ir.IRBuilder.uitofp
        emit = lambda b, x: change(b, x, llvm_type(to))  # noqa: E731
    elif kind in floats and to not in floats and mode in (["rzi"], ["rni"], ["rmi"], ["rpi"]):
        emit = _to_integer(mode[0], kind, to)
    elif (kind, to, mode) == ("f32", "f64", []):
        emit = lambda b, x: b.fpext(x, F64)  # noqa: E731
    elif (kind, to, mode) == ("f64", "f32", ["rn"]):
        emit = lambda b, x: b.fptrunc(x, F32)  # noqa: E731
    elif kind in floats and kind == to and mode == ["sat"]:
        emit = lambda b, x: _saturate(b, x)  # noqa: E731
    return emit and Operation(to, (kind,), emit)


def _to_integer(mode: str, kind: str, to: str) -> Callable:
    """A float to an integer: out of range the nearest, NaN 0.

    Where either has 64 bits, NaN is the highest bit alone.
    """
    rounding = {"rni": "llvm.rint", "rmi": "llvm.floor", "rpi": "llvm.ceil", "rzi": "llvm.trunc"}

    def emit(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
        x, result = intrinsic(b, rounding[mode], x), llvm_type(to)
        name = "llvm.fptosi.sat" if is_signed(to) else "llvm.fptoui.sat"
        function = b.module.declare_intrinsic(
            name, [result, x.type], ir.FunctionType(result, [x.type])
        )
        found = b.call(function, [x])
        if kind == "f32" and result.width < 64:
            return found
        highest = result(1 << (result.width - 1))
        return b.select(b.fcmp_unordered("uno", x, x), highest, found)

    return emit


def _saturate(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Between +0 and 1; NaN is +0."""
    positive = b.fcmp_ordered(">", x, x.type(0))
    return b.select(b.fcmp_ordered(">", x, x.type(1)), x.type(1), b.select(positive, x, x.type(0)))


_BOTH: dict[str, Callable] = {"setp": _compare, "selp": _select, "cvt": _convert}
