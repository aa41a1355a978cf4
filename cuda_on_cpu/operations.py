"""The type of an arithmetic opcode: its operands, and a function that emits LLVM IR."""

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from cuda_on_cpu.parse import UnknownPtx

BOOL, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()


@dataclass(frozen=True)
class Operation:
    """An opcode: the types of its result and operands, and the function that emits it.

    Types are PTX's, such as "s32". emit(builder, *values): returns the result; with `carry`, the
    last value is the carry flag (i1), and the result is a pair with the new flag.
    """

    result: str
    operands: tuple[str, ...]
    emit: Callable
    carry: bool = False


def llvm_type(name: str) -> ir.Type:
    """LLVM's type of a PTX type such as "u32", "f64" or "pred"."""
    if name == "pred":
        return BOOL
    if name in ("f32", "f64"):
        return F32 if name == "f32" else F64
    if name[0] not in "busf" or name[1:] not in ("8", "16", "32", "64") or name[0] == "f":
        raise UnknownPtx(f"the type {name}")
    return ir.IntType(int(name[1:]))


def is_signed(kind: str) -> bool:
    return kind[0] == "s"


def intrinsic(builder: ir.IRBuilder, name: str, *values: ir.Value) -> ir.Value:
    """Call one of LLVM's intrinsics whose result and operands have one type."""
    kind = values[0].type
    function = builder.module.declare_intrinsic(
        name, [kind], ir.FunctionType(kind, [kind] * len(values))
    )
    return builder.call(function, values)


def resize(builder: ir.IRBuilder, value: ir.Value, kind: ir.Type, signed: bool) -> ir.Value:
    """An integer as another integer type: cut off, or extended by its sign or by zeros."""
    width, wanted = value.type.width, kind.width
    if width == wanted:
        return value
    if width > wanted:
        return builder.trunc(value, kind)
    return builder.sext(value, kind) if signed else builder.zext(value, kind)


def same(kind: str, n: int, emit: Callable) -> Operation:
    """An operation on n operands of one type, which is also the result's."""
    return Operation(kind, (kind,) * n, emit)
