"""The arithmetic of integers: shifts by more than the width, division by zero, carries."""

from collections.abc import Callable

from llvmlite import ir

from cuda_on_cpu.operations import BOOL, I32, I64, Operation, is_signed, resize, same


def _plain(method: str) -> Callable:
    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        return None if modifiers else same(kind, 2, getattr(ir.IRBuilder, method))

    return operation


def _with_carry(name: str) -> Callable:
    """add.cc, addc and addc.cc, sub.cc, subc and subc.cc of 32 or 64 bits; else plain."""

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        takes = name.endswith("c")
        if modifiers not in ([], ["cc"]) or not (takes or modifiers):
            return _plain(name)(kind, modifiers)

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


def _madc(kind: str, modifiers: list[str]) -> Operation | None:
    return _mad_with_carry(True, kind, modifiers)


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


def _extreme(name: str) -> Callable:
    sign = ">" if name == "max" else "<"

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        def emit(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
            compare = b.icmp_signed if is_signed(kind) else b.icmp_unsigned
            return b.select(compare(sign, x, y), x, y)

        return None if modifiers else same(kind, 2, emit)

    return operation


def _one(emit: Callable) -> Callable:
    """An operation on one integer, without modifiers."""

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        return None if modifiers else same(kind, 1, emit)

    return operation


def _absolute(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed("<", x, x.type(0)), b.neg(x), x)


def _count(name: str) -> Callable:
    """popc and clz, whose result has 32 bits."""

    def operation(kind: str, modifiers: list[str]) -> Operation | None:
        def emit(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
            found = b.ctpop(x) if name == "popc" else b.ctlz(x, BOOL(0))
            return resize(b, found, I32, False)

        return None if modifiers else Operation("u32", (kind,), emit)

    return operation


INTEGERS: dict[str, Callable] = {
    "add": _with_carry("add"),
    "addc": _with_carry("addc"),
    "sub": _with_carry("sub"),
    "subc": _with_carry("subc"),
    "mul": _mul,
    "mad": _mad,
    "madc": _madc,
    "div": _divide("div"),
    "rem": _divide("rem"),
    "and": _plain("and_"),
    "or": _plain("or_"),
    "xor": _plain("xor"),
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    "shf": _funnel,
    "bfi": _bfi,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "abs": _one(_absolute),
    "neg": _one(ir.IRBuilder.neg),
    "not": _one(ir.IRBuilder.not_),
    "popc": _count("popc"),
    "clz": _count("clz"),
}
