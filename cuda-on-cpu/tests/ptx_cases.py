"""Opcodes of PTX, and what they should give: formulas of exact integers and fractions.

The edges are as NVIDIA's PTX ISA has them; of a division by zero it says nothing.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from ptx_kernels import DTYPES

UNSIGNED, SIGNED, BITS = (tuple(f"{sign}{n}" for n in (16, 32, 64)) for sign in "usb")
WITH_SIGN = UNSIGNED + SIGNED
INTEGER_KINDS = ("u8", "s8", *WITH_SIGN)


@dataclass(frozen=True)
class Case:
    """An opcode to test. code: as compute takes it. result, operands: types of registers.

    expected(*columns): an array of the result's type.
    """

    opcode: str
    result: str
    operands: tuple[str, ...]
    expected: Callable
    code: str = ""

    def text(self):
        names = "".join(f", %x{k}" for k in range(len(self.operands)))
        return self.code or f"{self.opcode} {{y}}{names};"


# Integers


def wrap(kind, number):
    """What is left of a Python integer in a type."""
    bits = 8 * DTYPES[kind].itemsize
    rest = number % (1 << bits)
    return rest - (1 << bits) if kind[0] == "s" and rest >> (bits - 1) else rest


def by_row(kind, formula):
    """A formula of Python numbers, for columns of NumPy's: the result wraps in its type."""

    def expected(*columns):
        numbers = [formula(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
        if kind[0] != "f" and kind != "pred":
            numbers = [wrap(kind, number) for number in numbers]
        return np.array(numbers, DTYPES[kind])

    return expected


def width(kind):
    return 8 * DTYPES[kind].itemsize


def quotient(x, y):
    if y == 0:
        return -1
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def remainder(x, y):
    return x - y * quotient(x, y) if y else x


def left(kind):
    return lambda x, n: x << n if n < width(kind) else 0


def right(kind):
    return lambda x, n: x >> min(n, width(kind))


def insert_bits(kind):
    def formula(x, y, start, n):
        for k in range(n % 256):
            if start % 256 + k < width(kind):
                bit = 1 << (start % 256 + k)
                y = y & ~bit | (bit if x >> k & 1 else 0)
        return y

    return formula


def picked_bytes(low, high, pick):
    source, signed = (high << 32 | low).to_bytes(8, "little"), 0
    for k in range(4):
        byte = source[pick >> 4 * k & 7]
        signed |= (255 * (byte >> 7) if pick >> 4 * k & 8 else byte) << 8 * k
    return signed


def funnel(side, mode):
    def formula(low, high, n):
        n = min(n, 32) if mode == "clamp" else n % 32
        both = high << 32 | low
        return both << n >> 32 if side == "l" else both >> n

    return formula


def integer_cases():
    def add(opcode, result, operands, formula):
        cases.append(Case(opcode, result, operands, by_row(result, formula)))

    cases = []
    for kind in WITH_SIGN:
        w, pair, three = width(kind), (kind,) * 2, (kind,) * 3
        for name, formula in (
            ("add", operator.add),
            ("sub", operator.sub),
            ("mul.lo", operator.mul),
            ("mul.hi", lambda x, y, w=w: x * y >> w),
            ("div", quotient),
            ("rem", remainder),
            ("max", max),
            ("min", min),
        ):
            add(f"{name}.{kind}", kind, pair, formula)
        add(f"mad.lo.{kind}", kind, three, lambda x, y, z: x * y + z)
        add(f"mad.hi.{kind}", kind, three, lambda x, y, z, w=w: (x * y >> w) + z)
        if w < 64:
            wide = f"{kind[0]}{2 * w}"
            add(f"mul.wide.{kind}", wide, pair, operator.mul)
            add(f"mad.wide.{kind}", wide, (*pair, wide), lambda x, y, z: x * y + z)
    for kind in BITS + UNSIGNED + SIGNED:
        add(f"shr.{kind}", kind, (kind, "u32"), right(kind))
    for kind in (*BITS, "pred"):
        for name, formula in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
            add(f"{name}.{kind}", kind, (kind, kind), formula)
        invert = operator.not_ if kind == "pred" else operator.invert
        add(f"not.{kind}", kind, (kind,), invert)
    for kind in BITS:
        add(f"shl.{kind}", kind, (kind, "u32"), left(kind))
    for kind in SIGNED:
        add(f"abs.{kind}", kind, (kind,), abs)
        add(f"neg.{kind}", kind, (kind,), operator.neg)
    for kind in BITS[1:]:
        w = width(kind)
        add(f"brev.{kind}", kind, (kind,), lambda x, w=w: int(f"{x:0{w}b}"[::-1], 2))
        add(f"popc.{kind}", "u32", (kind,), int.bit_count)
        add(f"clz.{kind}", "u32", (kind,), lambda x, w=w: w - x.bit_length())
        add(f"bfi.{kind}", kind, (kind, kind, "u32", "u32"), insert_bits(kind))
    for side in "lr":
        for mode in ("wrap", "clamp"):
            add(f"shf.{side}.{mode}.b32", "b32", ("b32", "b32", "u32"), funnel(side, mode))
    add("prmt.b32", "b32", ("b32",) * 3, picked_bytes)
    for source in INTEGER_KINDS:
        for to in INTEGER_KINDS:
            registers = [f"{kind[0]}32" if width(kind) == 8 else kind for kind in (to, source)]
            add(
                f"cvt.{to}.{source}",
                registers[0],
                (registers[1],),
                lambda x, to=to, source=source: wrap(to, wrap(source, x)),
            )
    return cases


def carry_cases():
    """Each with a carry flag of 0 and of 1 before it: its result, and the flag after it."""
    cases = []
    for kind in ("u32", "s32", "u64", "s64"):
        for name in ("add", "sub", "mad.lo", "mad.hi"):
            n = 3 if name.startswith("mad") else 2
            for takes, gives in ((False, True), (True, False), (True, True)):
                first, *part = name.split(".")
                opcode = ".".join([first + "c" * takes, *part, *["cc"] * gives, kind])
                names = ", ".join(f"%x{k}" for k in range(n))
                start = f"add.cc.{kind} %t, %x{n}, -1; {opcode}"
                formula = total(kind, name, takes)

                def flag(*row, kind=kind, formula=formula, gives=gives):
                    return formula(*row) >> width(kind) & 1 if gives else row[-1]

                operands = (kind,) * (n + 1)
                for what, expected, code in (
                    ("", formula, f"{start} {{y}}, {names};"),
                    (" flag", flag, f"{start} %t, {names}; addc.{kind} {{y}}, 0, 0;"),
                ):
                    expected = by_row(kind, expected)
                    cases.append(Case(opcode + what, kind, operands, expected, code))
    return cases


def total(kind, name, takes):
    """What an opcode adds up, as a whole number: above its width is the carry."""
    unsigned = f"u{kind[1:]}"

    def formula(x, y, *rest):
        *z, flag = rest
        flag = flag if takes else 0
        if name.startswith("mad"):
            x, y = x * y >> (width(kind) if name == "mad.hi" else 0), *z
        x, y = wrap(unsigned, x), wrap(unsigned, y)
        return x - y - flag if name == "sub" else x + y + flag

    return formula


# Floats


def rounded(exact, kind, mode="rn"):
    """A Fraction as a float of a type, as a Python float."""
    sizes = {"f16": (11, -14, 15), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
    precision, lowest, highest = sizes[kind]
    sign, size = (-1 if exact < 0 else 1), abs(exact)
    if not size:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, lowest) - precision + 1)
    to_integer = {"rn": round, "rm": math.floor, "rp": math.ceil, "rz": math.trunc}[mode]
    found = abs(to_integer(exact / unit)) * unit
    most = (2**precision - 1) * Fraction(2) ** (highest - precision + 1)
    if found > most:
        found = most if mode == "rz" or mode == ("rm" if sign > 0 else "rp") else math.inf
    return sign * float(found)


def fma(kind, mode):
    def formula(x, y, z):
        if not (math.isfinite(x) and math.isfinite(y)):
            return x * y + z
        if not math.isfinite(z):
            return z
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact:
            return rounded(exact, kind, mode)
        if math.copysign(1, x) * math.copysign(1, y) == math.copysign(1, z):
            return z  # two zeros of one sign
        return -0.0 if mode == "rm" else 0.0

    return formula


def extreme(pick):
    def formula(x, y):
        if math.isnan(x) or math.isnan(y):
            return y if math.isnan(x) else x
        return pick(x, y, key=lambda value: (value, math.copysign(1, value)))

    return formula


def quiet(function):
    def expected(*columns):
        with np.errstate(all="ignore"):
            return function(*columns)

    return expected


def saturated(x):
    return x if 0 < x < 1 else 1.0 if x >= 1 else 0.0


def to_integer(source, to, mode):
    """Out of range the nearest. NaN: 0 if all is of at most 32 bits, else the highest bit alone."""
    towards = {"rni": round, "rmi": math.floor, "rpi": math.ceil, "rzi": math.trunc}[mode]
    highest = 1 << (width(to) - 1)
    lowest, most = (-highest, highest - 1) if to[0] == "s" else (0, 2 * highest - 1)

    def formula(x):
        if math.isnan(x):
            return 0 if source == "f32" and width(to) < 64 else highest
        return (
            min(max(towards(x), lowest), most) if math.isfinite(x) else (most if x > 0 else lowest)
        )

    return formula


def float_cases():
    cases = []
    for kind in ("f32", "f64"):
        one, pair, three = (kind,), (kind,) * 2, (kind,) * 3
        for name, function in (
            ("add", np.add),
            ("sub", np.subtract),
            ("mul", np.multiply),
            ("div", np.divide),
        ):
            near = (".approx", ".full") if kind == "f32" else ()
            for mode in ("", ".rn") if name != "div" else (".rn", *near):
                cases.append(Case(f"{name}{mode}.{kind}", kind, pair, quiet(function)))
        for name, function in (("max", max), ("min", min)):
            cases.append(Case(f"{name}.{kind}", kind, pair, by_row(kind, extreme(function))))
        cases.append(Case(f"sqrt.rn.{kind}", kind, one, quiet(np.sqrt)))
        cases.append(Case(f"abs.{kind}", kind, one, np.abs))
        cases.append(Case(f"copysign.{kind}", kind, pair, lambda sign, x: np.copysign(x, sign)))
        cases.append(Case(f"neg.{kind}", kind, one, np.negative))
        cases.append(Case(f"cvt.sat.{kind}.{kind}", kind, one, by_row(kind, saturated)))
        whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
        for mode, function in whole.items():
            cases.append(Case(f"cvt.{mode}.{kind}.{kind}", kind, one, quiet(function)))
        for mode in ("rn", "rm", "rp", "rz") if kind == "f32" else ("rn",):
            cases.append(Case(f"fma.{mode}.{kind}", kind, three, by_row(kind, fma(kind, mode))))
        for other in INTEGER_KINDS:
            register = f"{other[0]}32" if width(other) == 8 else other

            def formula(x, kind=kind, other=other):
                return rounded(Fraction(wrap(other, x)), kind)

            cases.append(Case(f"cvt.rn.{kind}.{other}", kind, (register,), by_row(kind, formula)))
        for to in WITH_SIGN:
            for mode in ("rni", "rzi", "rmi", "rpi"):
                formula = to_integer(kind, to, mode)
                cases.append(Case(f"cvt.{mode}.{to}.{kind}", to, one, by_row(to, formula)))
    toward_zero, pair = fma("f32", "rz"), ("f32", "f32")
    for name, formula in (
        ("add", lambda x, y: toward_zero(x, 1.0, y)),
        ("mul", lambda x, y: toward_zero(x, y, -0.0)),
    ):
        cases.append(Case(f"{name}.rz.f32", "f32", pair, by_row("f32", formula)))
    cases.append(Case("cvt.f64.f32", "f64", ("f32",), quiet(lambda x: x.astype(np.float64))))
    cases.append(Case("cvt.rn.f32.f64", "f32", ("f64",), quiet(lambda x: x.astype(np.float32))))
    return cases


def half_cases():
    def of_pairs(function):
        def expected(*columns):
            found = function(*(column.view(np.float16) for column in columns))
            return np.where(np.isnan(found), 0x7FFF, found.view(np.uint16)).astype("u2").view("u4")

        return quiet(expected)

    cases, pair = [], ("f16", "f16")
    for name, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        for mode in ("", ".rn"):
            cases.append(Case(f"{name}{mode}.f16", "f16", pair, quiet(function)))
        cases.append(Case(f"{name}.f16x2", "b32", ("b32", "b32"), of_pairs(function)))
    for name, function in (("max", max), ("min", min)):
        cases.append(Case(f"{name}.f16", "f16", pair, by_row("f16", extreme(function))))
    cases.append(Case("abs.f16", "f16", ("f16",), np.abs))
    cases.append(Case("neg.f16", "f16", ("f16",), np.negative))
    cases.append(Case("fma.rn.f16", "f16", ("f16",) * 3, by_row("f16", fma("f16", "rn"))))
    for name in ("eq", "lt", "geu"):
        compare = getattr(operator, name[:2])

        def holds(x, y, name=name, compare=compare):
            return compare(x, y) | ((x != x) | (y != y) if name[2:] else False)

        cases.append(Case(f"setp.{name}.f16", "pred", pair, holds))
        one = Case(
            f"set.{name}.f16.f16", "f16", pair, lambda x, y, f=holds: f(x, y) * np.float16(1)
        )
        bits = Case(f"set.{name}.u32.f16", "u32", pair, lambda x, y, f=holds: -f(x, y).astype("u4"))
        cases += [one, bits]
    for mode, function in (("rni", np.rint), ("rmi", np.floor)):
        cases.append(Case(f"cvt.{mode}.f16.f16", "f16", ("f16",), quiet(function)))
    for kind in ("f32", "f64"):
        to = quiet(lambda x, kind=kind: x.astype(DTYPES[kind]))
        cases.append(Case(f"cvt.{kind}.f16", kind, ("f16",), to))
        for mode in ("rn", "rm", "rp", "rz"):

            def near(x, mode=mode):
                return rounded(Fraction(x), "f16", mode) if math.isfinite(x) and x else x

            cases.append(Case(f"cvt.{mode}.f16.{kind}", "f16", (kind,), by_row("f16", near)))
    for kind in ("s16", "u64"):
        near = by_row("f16", lambda x: rounded(Fraction(x), "f16"))
        cases.append(Case(f"cvt.rn.f16.{kind}", "f16", (kind,), near))
        whole = by_row(kind, to_integer("f32", kind, "rzi"))
        cases.append(Case(f"cvt.rzi.{kind}.f16", kind, ("f16",), whole))
    return cases


def comparison_cases():
    signs = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
    unsigned = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
    cases = []
    for kind in (*BITS, *WITH_SIGN, "f32", "f64"):
        names = {name: signs[name] for name in (("eq", "ne") if kind[0] == "b" else signs)}
        if kind[0] == "u":
            names |= {name: signs[other] for name, other in unsigned.items()}
        for name, compare in names.items():
            expected = compare
            if kind[0] == "f":

                def expected(x, y, compare=compare):
                    return compare(x, y) & (x == x) & (y == y)

                def unordered(x, y, compare=compare):
                    return compare(x, y) | (x != x) | (y != y)

                cases.append(Case(f"setp.{name}u.{kind}", "pred", (kind, kind), unordered))
            cases.append(Case(f"setp.{name}.{kind}", "pred", (kind, kind), expected))
        if kind in ("f32", "f64"):
            both = (kind, kind)
            cases.append(Case(f"setp.num.{kind}", "pred", both, lambda x, y: (x == x) & (y == y)))
            cases.append(Case(f"setp.nan.{kind}", "pred", both, lambda x, y: (x != x) | (y != y)))
        cases.append(
            Case(f"selp.{kind}", kind, (kind, kind, "pred"), lambda x, y, p: np.where(p, x, y))
        )
    return cases


CASES = integer_cases() + carry_cases() + float_cases() + half_cases() + comparison_cases()
