"""The arithmetic of floats: NaN, infinities, signed zeros, denormals, rounding modes."""

from collections.abc import Callable

from llvmlite import ir

from cuda_on_cpu.operations import F32, F64, I32, I64, Operation, intrinsic, same

ROUNDINGS = {"rn", "rm", "rp", "rz"}


def _float_pair(method: str) -> Callable:
    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        if modifiers not in ([], ["rn"]):
            return None
        return same(kind, 2, getattr(ir.IRBuilder, method))

    return operation


def _fma(kind: str, modifiers: list[str]) -> Operation | None:
    if modifiers == ["rn"]:
        return same(kind, 3, lambda b, x, y, z: intrinsic(b, "llvm.fma", x, y, z))
    if kind != "f32" or len(modifiers) != 1 or modifiers[0] not in ROUNDINGS:
        return None

    def emit(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        down = _fma_down(b, x, y, z)
        up = b.fneg(_fma_down(b, b.fneg(x), y, b.fneg(z)))
        if modifiers == ["rz"]:
            return b.select(b.fcmp_ordered("<=", up, F32(0)), up, down)  # zeros have up's sign
        return down if modifiers == ["rm"] else up

    return same(kind, 3, emit)


def _fma_down(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """The largest float32 that is not above x y + z.

    The product is exact in float64. The sum is rounded; Knuth's two-sum gives its error.
    """
    x, y, z = (b.fpext(value, F64) for value in (x, y, z))
    product = b.fmul(x, y)
    total = b.fadd(product, z)
    z_part = b.fsub(total, product)
    error = b.fadd(b.fsub(product, b.fsub(total, z_part)), b.fsub(z, z_part))
    near = b.fptrunc(total, F32)
    back = b.fpext(near, F64)
    too_high = b.or_(
        b.fcmp_ordered(">", back, total),
        b.and_(b.fcmp_ordered("==", back, total), b.fcmp_ordered("<", error, F64(0))),
    )
    bits = b.bitcast(near, I32)  # a zero that is too high is -0: total is negative
    below = b.add(bits, b.select(b.icmp_signed("<", bits, I32(0)), I32(1), I32(-1)))
    # A sum of +0 and -0, or of opposite numbers, is -0.
    signs = b.xor(b.bitcast(product, I64), b.bitcast(z, I64))
    negative = b.and_(b.icmp_signed("<", signs, I64(0)), b.fcmp_ordered("==", total, F64(0)))
    bits = b.select(negative, I32(-(2**31)), bits)
    return b.bitcast(b.select(too_high, below, bits), F32)


def _float_extreme(name: str) -> Callable:
    """max and min: of NaN and a number the number; -0 is below +0."""

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        def emit(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
            whole = ir.IntType(32 if kind == "f32" else 64)
            merge = b.and_ if name == "max" else b.or_
            both = b.bitcast(merge(b.bitcast(x, whole), b.bitcast(y, whole)), x.type)
            better = b.fcmp_ordered(">" if name == "max" else "<", x, y)
            found = b.select(b.fcmp_ordered("==", x, y), both, b.select(better, x, y))
            found = b.select(b.fcmp_unordered("uno", y, y), x, found)
            return b.select(b.fcmp_unordered("uno", x, x), y, found)

        return None if modifiers else same(kind, 2, emit)

    return operation


def _one_float(name: str, *allowed: str) -> Callable:
    """An intrinsic of one operand, with exactly these modifiers."""

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        if modifiers != list(allowed):
            return None
        return same(kind, 1, lambda b, x: intrinsic(b, name, x))

    return operation


def _approximate(compute: Callable) -> Callable:
    """A float32 function that the hardware approximates: here nearly exact, denormals as zero."""

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        if kind != "f32" or modifiers not in (["approx"], ["approx", "ftz"]):
            return None
        flush = _flush if "ftz" in modifiers else lambda b, x: x

        def emit(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
            return flush(b, b.fptrunc(compute(b, b.fpext(flush(b, x), F64)), F32))

        return same(kind, 1, emit)

    return operation


def _flush(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Denormals as zero, with their sign."""
    small = b.fcmp_ordered("<", intrinsic(b, "llvm.fabs", x), F32(2.0**-126))
    zero = b.bitcast(b.and_(b.bitcast(x, I32), I32(-(2**31))), F32)
    return b.select(small, zero, x)


def _inverse(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return b.fdiv(x.type(1), x)


def _rcp(kind: str, modifiers: list[str]) -> Operation | None:
    if modifiers == ["rn"]:
        return same(kind, 1, _inverse)
    return _approximate(_inverse)(kind, modifiers)


FLOATS: dict[str, Callable] = {
    "add": _float_pair("fadd"),
    "sub": _float_pair("fsub"),
    "mul": _float_pair("fmul"),
    "div": lambda kind, modifiers: _float_pair("fdiv")(kind, modifiers) if modifiers else None,
    "fma": _fma,
    "max": _float_extreme("max"),
    "min": _float_extreme("min"),
    "abs": _one_float("llvm.fabs"),
    "neg": lambda kind, modifiers: None if modifiers else same(kind, 1, ir.IRBuilder.fneg),
    "sqrt": _one_float("llvm.sqrt", "rn"),
    "ex2": _approximate(lambda b, x: intrinsic(b, "llvm.exp2", x)),
    "lg2": _approximate(lambda b, x: intrinsic(b, "llvm.log2", x)),
    "rcp": _rcp,
    "rsqrt": _approximate(lambda b, x: _inverse(b, intrinsic(b, "llvm.sqrt", x))),
}
