"""Each arithmetic opcode of PTX as LLVM IR.

`find` gives an opcode's types and a function that emits it. NVIDIA's PTX ISA defines the edges:
shifts by more than the width, division by zero, NaN in max, conversions out of range, rounding
downwards.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from cuda_on_cpu.parse import UnknownPtx

BOOL, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
ROUNDINGS = {"rn", "rm", "rp", "rz"}
HALVES = {"f16": 1, "f16x2": 2}  # numbers of 16 bits in a type
TO_INTEGERS = {"rni": "llvm.rint", "rmi": "llvm.floor", "rpi": "llvm.ceil", "rzi": "llvm.trunc"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARISONS |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # unsigned


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
    """LLVM's type of a PTX type such as "u32", "f64" or "pred"; of half precision its bits."""
    if name == "pred":
        return BOOL
    if name in HALVES:
        return ir.IntType(16 * HALVES[name])
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


def find(opcode: tuple[str, ...]) -> Operation:
    """The operation of an opcode. Raises UnknownPtx, which names it."""
    name, modifiers, kind = opcode[0], list(opcode[1:-1]), opcode[-1]
    if name in FLOATS and kind in HALVES:
        operation = _half(name, kind, modifiers)
    elif name in FLOATS and kind in ("f32", "f64"):
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


# Integers


def _plain(n: int, emit: Callable, *allowed: list[str]) -> Callable:
    """An operation on n operands of one type. allowed: lists of modifiers; default: none."""
    known = allowed or ([],)
    return lambda kind, modifiers: same(kind, n, emit) if modifiers in known else None


def _with_carry(name: str) -> Callable:
    """add.cc, addc and addc.cc, sub.cc, subc and subc.cc of 32 or 64 bits; else plain."""

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        takes = name.endswith("c")
        if modifiers not in ([], ["cc"]) or not (takes or modifiers):
            return _plain(2, getattr(ir.IRBuilder, name))(kind, modifiers)

        def emit(b: ir.IRBuilder, x: ir.Value, y: ir.Value, carry: ir.Value) -> tuple:
            wide = ir.IntType(2 * x.type.width)
            x, y = b.zext(x, wide), b.zext(y, wide)
            total = b.add(x, y) if name[:3] == "add" else b.sub(x, y)
            if takes:
                flag = b.zext(carry, wide)
                total = b.add(total, flag) if name[:3] == "add" else b.sub(total, flag)
            high = b.trunc(b.lshr(total, wide(wide.width // 2)), BOOL)
            return b.trunc(total, ir.IntType(wide.width // 2)), high if modifiers else carry

        return Operation(kind, (kind,) * 2, emit, carry=True)

    return operation


def _product(b: ir.IRBuilder, x: ir.Value, y: ir.Value, kind: str) -> ir.Value:
    """The whole product, twice as wide."""
    wide = ir.IntType(2 * x.type.width)
    return b.mul(*(resize(b, value, wide, is_signed(kind)) for value in (x, y)))


def _part(b: ir.IRBuilder, product: ir.Value, part: str) -> ir.Value:
    """The `lo` or `hi` half of a product, or all of it for `wide`."""
    half = ir.IntType(product.type.width // 2)
    if part == "hi":
        product = b.lshr(product, product.type(half.width))
    return product if part == "wide" else b.trunc(product, half)


def _mul(kind: str, modifiers: list[str]) -> Operation | None:
    if modifiers not in (["lo"], ["hi"], ["wide"]):
        return None
    result = kind[0] + str(2 * int(kind[1:])) if modifiers == ["wide"] else kind
    return Operation(
        result, (kind,) * 2, lambda b, x, y: _part(b, _product(b, x, y, kind), modifiers[0])
    )


def _mad(kind: str, modifiers: list[str]) -> Operation | None:
    if modifiers not in (["lo"], ["hi"], ["wide"]):
        return _mad_with_carry(False, kind, modifiers)
    product = _mul(kind, modifiers)
    assert product is not None
    return Operation(
        product.result,
        (kind, kind, product.result),
        lambda b, x, y, z: b.add(product.emit(b, x, y), z),
    )


def _mad_with_carry(takes: bool, kind: str, modifiers: list[str]) -> Operation | None:
    """mad.lo.cc, mad.hi.cc, and madc, which adds the carry flag, with or without .cc."""
    if modifiers[:1] not in (["lo"], ["hi"]) or modifiers[1:] not in ([], ["cc"]):
        return None
    part, *gives = modifiers
    add = _with_carry("addc" if takes else "add")(kind, gives)

    def emit(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value, carry: ir.Value) -> tuple:
        return add.emit(b, _part(b, _product(b, x, y, kind), part), z, carry)

    return Operation(kind, (kind,) * 3, emit, carry=True)


def _divide(name: str) -> Callable:
    """div and rem. By zero a GPU gives all ones, and the dividend: so it is here."""

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        if modifiers:
            return None
        signed = is_signed(kind)

        def emit(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
            zero, one, ones = x.type(0), x.type(1), x.type(-1)
            by_zero, by_minus_one = b.icmp_signed("==", y, zero), b.icmp_signed("==", y, ones)
            # LLVM leaves both undefined, and processors trap.
            safe = b.select(b.or_(by_zero, by_minus_one) if signed else by_zero, one, y)
            if name == "div":
                found = b.sdiv(x, safe) if signed else b.udiv(x, safe)
                if signed:
                    found = b.select(by_minus_one, b.neg(x), found)
                return b.select(by_zero, ones, found)
            found = b.srem(x, safe) if signed else b.urem(x, safe)
            return b.select(by_zero, x, found)

        return same(kind, 2, emit)

    return operation


def _shift(name: str) -> Callable:
    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        if modifiers:
            return None

        def emit(b: ir.IRBuilder, x: ir.Value, amount: ir.Value) -> ir.Value:
            width = x.type.width
            too_far = b.icmp_unsigned(">=", amount, I32(width))
            amount = resize(b, b.select(too_far, I32(width - 1), amount), x.type, False)
            if name == "shr" and is_signed(kind):
                return b.ashr(x, amount)
            shifted = b.shl(x, amount) if name == "shl" else b.lshr(x, amount)
            return b.select(too_far, x.type(0), shifted)

        return Operation(kind, (kind, "u32"), emit)

    return operation


def _funnel(kind: str, modifiers: list[str]) -> Operation | None:
    """shf: 32 bits out of two registers, from the side that the shift names."""
    if kind != "b32" or len(modifiers) != 2 or modifiers[0] not in ("l", "r"):
        return None
    side, mode = modifiers

    def emit(b: ir.IRBuilder, low: ir.Value, high: ir.Value, amount: ir.Value) -> ir.Value:
        if mode == "wrap":
            amount = b.and_(amount, I32(31))
        else:
            amount = b.select(b.icmp_unsigned(">", amount, I32(32)), I32(32), amount)
        both = b.or_(b.shl(b.zext(high, I64), I64(32)), b.zext(low, I64))
        amount = b.zext(amount, I64)
        if side == "l":
            return b.trunc(b.lshr(b.shl(both, amount), I64(32)), I32)
        return b.trunc(b.lshr(both, amount), I32)

    return same(kind, 3, emit) if mode in ("wrap", "clamp") else None


def _bfi(kind: str, modifiers: list[str]) -> Operation | None:
    """Bits of the first operand put into the second, from a position on."""
    if modifiers:
        return None

    def emit(b: ir.IRBuilder, x: ir.Value, y: ir.Value, start: ir.Value, n: ir.Value) -> ir.Value:
        wide = ir.IntType(512)  # no shift by an operand's lowest byte goes too far
        start, n = (b.zext(b.and_(value, I32(255)), wide) for value in (start, n))
        mask = b.shl(b.sub(b.shl(wide(1), n), wide(1)), start)
        inserted = b.and_(b.shl(b.zext(x, wide), start), mask)
        return b.trunc(b.or_(b.and_(b.zext(y, wide), b.not_(mask)), inserted), x.type)

    return Operation(kind, (kind, kind, "u32", "u32"), emit)


def _permute(kind: str, modifiers: list[str]) -> Operation | None:
    """Four bytes out of two registers: four bits of the third each, number and whether its sign."""
    if kind != "b32" or modifiers:
        return None

    def emit(b: ir.IRBuilder, low: ir.Value, high: ir.Value, pick: ir.Value) -> ir.Value:
        both, found = b.or_(b.shl(b.zext(high, I64), I64(32)), b.zext(low, I64)), I32(0)
        for k in range(4):
            bits = b.zext(b.lshr(pick, I32(4 * k)), I64)
            byte = b.trunc(b.lshr(both, b.shl(b.and_(bits, I64(7)), I64(3))), ir.IntType(8))
            sign = b.ashr(byte, byte.type(7))
            byte = b.select(b.trunc(b.lshr(bits, I64(3)), BOOL), sign, byte)
            found = b.or_(found, b.shl(b.zext(byte, I32), I32(8 * k)))
        return found

    return same(kind, 3, emit)


def _extreme(sign: str) -> Callable:
    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        compare = ir.IRBuilder.icmp_signed if is_signed(kind) else ir.IRBuilder.icmp_unsigned
        return _plain(2, lambda b, x, y: b.select(compare(b, sign, x, y), x, y))(kind, modifiers)

    return operation


def _absolute(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed("<", x, x.type(0)), b.neg(x), x)


def _count(emit: Callable) -> Callable:
    """popc and clz, whose result has 32 bits."""

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        count = Operation("u32", (kind,), lambda b, x: resize(b, emit(b, x), I32, False))
        return None if modifiers else count

    return operation


INTEGERS: dict[str, Callable] = {
    "add": _with_carry("add"),
    "addc": _with_carry("addc"),
    "sub": _with_carry("sub"),
    "subc": _with_carry("subc"),
    "mul": _mul,
    "mad": _mad,
    "madc": lambda kind, modifiers: _mad_with_carry(True, kind, modifiers),
    "div": _divide("div"),
    "rem": _divide("rem"),
    "and": _plain(2, ir.IRBuilder.and_),
    "or": _plain(2, ir.IRBuilder.or_),
    "xor": _plain(2, ir.IRBuilder.xor),
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    "shf": _funnel,
    "bfi": _bfi,
    "prmt": _permute,
    "max": _extreme(">"),
    "min": _extreme("<"),
    "abs": _plain(1, _absolute),
    "neg": _plain(1, ir.IRBuilder.neg),
    "not": _plain(1, ir.IRBuilder.not_),
    "brev": _plain(1, ir.IRBuilder.bitreverse),
    "popc": _count(ir.IRBuilder.ctpop),
    "clz": _count(lambda b, x: b.ctlz(x, BOOL(0))),
}


# Floats


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

    The product is exact in float64. The sum is rounded, with a known error.
    """
    x, y, z = (b.fpext(value, F64) for value in (x, y, z))
    product = b.fmul(x, y)
    total, error = _two_sum(b, product, z)
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


def _two_sum(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The rounded sum and its error, exactly: Knuth's two-sum."""
    total = b.fadd(x, y)
    part = b.fsub(total, x)
    return total, b.fadd(b.fsub(x, b.fsub(total, part)), b.fsub(y, part))


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


def _approximate(compute: Callable) -> Callable:
    """A float32 function that the hardware approximates: here nearly exact, denormals as zero.

    Or a float64 function: of the upper 32 bits, to such.
    """

    def coarse(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
        return b.bitcast(b.and_(b.bitcast(x, I64), I64(-(1 << 32))), F64)

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        if kind == "f64" and modifiers == ["approx", "ftz"]:
            return same(kind, 1, lambda b, x: coarse(b, compute(b, coarse(b, x))))
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


def _exact_or_approximate(compute: Callable) -> Callable:
    exact, near = _plain(1, compute, ["rn"]), _approximate(compute)
    return lambda kind, modifiers: exact(kind, modifiers) or near(kind, modifiers)


def _also_toward_zero(emit: Callable, as_fma: Callable) -> Callable:
    """Two operands; also rounded toward zero, as the fma that as_fma(b, fma, x, y) makes."""

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        fma = _fma(kind, modifiers) if modifiers == ["rz"] else None
        if fma:
            return same(kind, 2, lambda b, x, y: as_fma(b, fma.emit, x, y))
        return _plain(2, emit, [], ["rn"])(kind, modifiers)

    return operation


FLOATS: dict[str, Callable] = {
    "add": _also_toward_zero(ir.IRBuilder.fadd, lambda b, fma, x, y: fma(b, x, F32(1), y)),
    "sub": _plain(2, ir.IRBuilder.fsub, [], ["rn"]),
    "mul": _also_toward_zero(ir.IRBuilder.fmul, lambda b, fma, x, y: fma(b, x, y, F32(-0.0))),
    "div": _plain(2, ir.IRBuilder.fdiv, ["rn"], ["approx"], ["full"]),
    "copysign": _plain(2, lambda b, sign, x: intrinsic(b, "llvm.copysign", x, sign)),
    "fma": _fma,
    "max": _float_extreme("max"),
    "min": _float_extreme("min"),
    "abs": _plain(1, lambda b, x: intrinsic(b, "llvm.fabs", x)),
    "neg": _plain(1, ir.IRBuilder.fneg),
    "sqrt": _exact_or_approximate(lambda b, x: intrinsic(b, "llvm.sqrt", x)),
    "sin": _approximate(lambda b, x: intrinsic(b, "llvm.sin", x)),
    "cos": _approximate(lambda b, x: intrinsic(b, "llvm.cos", x)),
    "ex2": _approximate(lambda b, x: intrinsic(b, "llvm.exp2", x)),
    "lg2": _approximate(lambda b, x: intrinsic(b, "llvm.log2", x)),
    "rcp": _exact_or_approximate(_inverse),
    "rsqrt": _approximate(lambda b, x: _inverse(b, intrinsic(b, "llvm.sqrt", x))),
}


# Half precision: computed in float64, which holds sums and products exactly


def _from_half(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """16 bits as float64."""
    bits = b.zext(x, I64)
    size = b.shl(b.and_(bits, I64(0x7FFF)), I64(42))  # the number, but for 2**1008
    number = b.fmul(b.bitcast(size, F64), F64(2.0**1008))
    is_number = b.icmp_unsigned("<", size, I64(0x7C00 << 42))
    size = b.select(is_number, b.bitcast(number, I64), b.or_(size, I64(0x7FF << 52)))
    return b.bitcast(b.or_(size, b.shl(b.and_(bits, I64(0x8000)), I64(48))), F64)


def _to_half(b: ir.IRBuilder, x: ir.Value, mode: str = "rn") -> ir.Value:
    """A float64 rounded to 16 bits."""
    exact = intrinsic(b, "llvm.fabs", x)
    most = F64(65536.0 if mode == "rn" else 65535.0)
    size = b.select(b.fcmp_ordered("<", exact, most), exact, most)
    exponent, lowest = b.lshr(b.bitcast(size, I64), I64(52)), I64(1023 - 14)
    exponent = b.select(b.icmp_unsigned(">", exponent, lowest), exponent, lowest)
    # Added to a number so large that its last bit is that of the result, the rest is rounded off.
    large = b.bitcast(b.or_(b.shl(b.add(exponent, I64(42)), I64(52)), I64(1 << 51)), F64)
    near = b.fsub(b.fadd(size, large), large)
    half = b.trunc(b.lshr(b.bitcast(b.fmul(near, F64(2.0**-1008)), I64), I64(42)), I16)
    sign = b.and_(b.trunc(b.lshr(b.bitcast(x, I64), I64(48)), I16), I16(0x8000))
    if mode != "rn":
        down = b.sub(half, b.zext(b.fcmp_ordered(">", near, size), I16))
        up = b.add(half, b.zext(b.fcmp_ordered("<", near, size), I16))
        grows = b.icmp_unsigned("!=" if mode == "rm" else "==", sign, I16(0))
        half = down if mode == "rz" else b.select(grows, up, down)
    half = b.select(b.fcmp_ordered("==", exact, F64(float("inf"))), I16(0x7C00), half)
    return b.select(b.fcmp_unordered("uno", x, x), I16(0x7FFF), b.or_(half, sign))


def _fma_to_odd(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """x y + z; if that is no float64, the neighbour with an odd last bit: so it rounds once."""
    product = b.fmul(x, y)
    total, error = _two_sum(b, product, z)
    bits = b.bitcast(total, I64)
    is_below = b.icmp_signed("<", b.xor(bits, b.bitcast(error, I64)), I64(0))
    odd = b.or_(b.sub(bits, b.zext(is_below, I64)), I64(1))
    is_inexact = b.fcmp_ordered("!=", error, F64(0))
    return b.bitcast(b.select(is_inexact, odd, bits), F64)


def _half(name: str, kind: str, modifiers: list[str]) -> Operation | None:
    """An operation on numbers of 16 bits, or on pairs of them."""
    operation = FLOATS[name]("f64", modifiers)
    if operation is None or name not in ("add", "sub", "mul", "fma", "neg", "abs", "max", "min"):
        return None
    compute = _fma_to_odd if name == "fma" else operation.emit

    def emit(b: ir.IRBuilder, *values: ir.Value) -> ir.Value:
        found, whole = [], values[0].type
        for shift in range(0, whole.width, 16):
            halves = (resize(b, b.lshr(value, whole(shift)), I16, False) for value in values)
            result = _to_half(b, compute(b, *(_from_half(b, half) for half in halves)))
            found.append(b.shl(resize(b, result, whole, False), whole(shift)))
        return functools.reduce(b.or_, found)

    return same(kind, len(operation.operands), emit)


# Both


def _compare(kind: str, modifiers: list[str]) -> Operation | None:
    """setp. Of floats, a comparison with NaN holds only if its name ends in u, or is nan."""
    if len(modifiers) != 1 or kind == "f16x2":
        return None
    if kind == "f16":
        if (wide := _compare("f64", modifiers)) is None:
            return None
        emit = lambda b, *halves: wide.emit(b, *(_from_half(b, x) for x in halves))  # noqa: E731
        return Operation("pred", (kind,) * 2, emit)
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


def _set(kind: str, modifiers: list[str]) -> Operation | None:
    """set.eq.f16.f16 and the like: 1 for true, as an integer all bits."""
    compare = _compare(kind, modifiers[:-1])
    if compare is None:
        return None
    to, emit = modifiers[-1], compare.emit
    true = {"f16": I16(0x3C00), "f32": F32(1)}.get(to) or llvm_type(to)(-1)
    return Operation(
        to, (kind,) * 2, lambda b, x, y: b.select(emit(b, x, y), true, true.type(None))
    )


def _select(kind: str, modifiers: list[str]) -> Operation | None:
    if modifiers:
        return None
    return Operation(kind, (kind, kind, "pred"), lambda b, x, y, p: b.select(p, x, y))


def _convert(kind: str, modifiers: list[str]) -> Operation | None:
    """cvt with the modifiers before the type that it converts to."""
    if not modifiers:
        return None
    *mode, to = modifiers
    floats, modes = ("f32", "f64"), [[name] for name in TO_INTEGERS]
    emit: Callable | None = None
    if "f16" in (kind, to):
        emit = _convert_half(kind, mode, to)
    elif kind not in floats and to not in floats and not mode:
        emit = lambda b, x: resize(b, x, llvm_type(to), is_signed(kind))  # noqa: E731
    elif kind not in floats and to in floats and mode == ["rn"]:
        change = ir.IRBuilder.sitofp if is_signed(kind) else ir.IRBuilder.uitofp
        emit = lambda b, x: change(b, x, llvm_type(to))  # noqa: E731
    elif kind in floats and to not in floats and mode in modes:
        emit = _to_integer(mode[0], kind, to)
    elif (kind, to, mode) == ("f32", "f64", []):
        emit = lambda b, x: b.fpext(x, F64)  # noqa: E731
    elif (kind, to, mode) == ("f64", "f32", ["rn"]):
        emit = lambda b, x: b.fptrunc(x, F32)  # noqa: E731
    elif kind in floats and kind == to and mode in modes:
        emit = lambda b, x: intrinsic(b, TO_INTEGERS[mode[0]], x)  # noqa: E731
    elif kind in floats and kind == to and mode == ["sat"]:
        emit = lambda b, x: _saturate(b, x)  # noqa: E731
    return emit and Operation(to, (kind,), emit)


def _convert_half(kind: str, mode: list[str], to: str) -> Callable | None:
    """cvt from or to half precision."""
    if kind == "f16":
        read: Callable = _from_half
    elif kind == "f64":
        read = lambda b, x: x  # noqa: E731
    elif kind == "f32":
        read = lambda b, x: b.fpext(x, F64)  # noqa: E731
    else:
        change = ir.IRBuilder.sitofp if is_signed(kind) else ir.IRBuilder.uitofp
        read = lambda b, x: change(b, x, F64)  # noqa: E731
    name = mode[0] if len(mode) == 1 else None
    if to == "f16" and kind != "f16" and name in ROUNDINGS:
        return lambda b, x: _to_half(b, read(b, x), name)
    if to == "f16" and kind == "f16" and name in TO_INTEGERS:
        return lambda b, x: _to_half(b, intrinsic(b, TO_INTEGERS[name], read(b, x)))
    if to in ("f32", "f64") and not mode:
        return lambda b, x: b.fptrunc(read(b, x), F32) if to == "f32" else read(b, x)
    if to[0] in "su" and name in TO_INTEGERS:
        integer = _to_integer(name, "f32", to)
        return lambda b, x: integer(b, read(b, x))
    return None


def _to_integer(mode: str, kind: str, to: str) -> Callable:
    """A float to an integer: out of range the nearest, NaN 0.

    Where either has 64 bits, NaN is the highest bit alone.
    """

    def emit(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
        x, result = intrinsic(b, TO_INTEGERS[mode], x), llvm_type(to)
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


_BOTH: dict[str, Callable] = {"setp": _compare, "set": _set, "selp": _select, "cvt": _convert}
