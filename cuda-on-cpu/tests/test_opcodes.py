"""Tests of cuda_on_cpu/opcodes.py: each opcode alone, against exact arithmetic.

Operands are at the edges of their types, and random.
"""

import numpy as np
import pytest
from ptx_cases import CASES, by_row, fma
from ptx_kernels import assert_same, compute, rows

from cuda_on_cpu.opcodes import FLOATS, INTEGERS

GROUPS = {case.operands: [c for c in CASES if c.operands == case.operands] for case in CASES}


@pytest.mark.parametrize("operands", GROUPS, ids=" ".join)
def test_results_are_exact(operands):
    cases = GROUPS[operands]
    columns = rows(operands)
    if any(".cc." in case.opcode for case in cases):
        columns[-1] = columns[-1] & 1  # the carry flag
    found = compute([c.text() for c in cases], operands, [c.result for c in cases], columns)
    for case, result in zip(cases, found, strict=True):
        assert_same(result, case.expected(*columns), columns, case.opcode)


def test_every_opcode_is_tested():
    tested = {case.opcode.split(".")[0] for case in CASES} | set(APPROXIMATE)
    assert tested == {*INTEGERS, *FLOATS, "set", "setp", "selp", "cvt"}


# fma where its rounding is hard


def hard_sums(n=6000):
    """x, y and z, float32: products far from z, near it and opposite; some with few bits."""
    rng = np.random.default_rng(3)

    def mantissas():
        some = 1 + np.round(rng.random(n) * 2**23) * 2.0**-23
        few = np.round(rng.random(n) * 8) / 8 + 1
        beside = 1 + rng.integers(-2, 3, n) * 2.0**-23
        return rng.choice([-1, 1], n) * np.choose(rng.integers(0, 3, n), [some, few, beside])

    power_z = rng.integers(-149, 128, n)
    power = power_z + np.where(
        rng.random(n) < 0.5, rng.integers(-26, 3, n), rng.integers(-99, 99, n)
    )
    power_x = np.clip(power // 2 + rng.integers(-20, 20, n), -149, 127)
    with np.errstate(all="ignore"):
        x = np.ldexp(mantissas(), power_x).astype(np.float32)
        y = np.ldexp(mantissas(), power - power_x).astype(np.float32)
        z = np.ldexp(mantissas(), power_z).astype(np.float32)
        opposite = -(x * y)
        z = np.where(rng.random(n) < 0.3, opposite, z)
    return x, y, z


def test_fma_rounds_as_it_says():
    columns = hard_sums()
    modes = ("rn", "rm", "rp", "rz")
    codes = [f"fma.{mode}.f32 {{y}}, %x0, %x1, %x2;" for mode in modes]
    found = compute(codes, ("f32",) * 3, ("f32",) * 4, columns)
    for mode, result in zip(modes, found, strict=True):
        assert_same(result, by_row("f32", fma("f32", mode))(*columns), columns, f"fma.{mode}")
    down, up = found[1], found[2]
    assert 0.05 < (down == up).mean() < 0.5  # results that are exact
    assert (np.isfinite(down) & np.isinf(up)).any()
    assert ((down < 0) & (up == 0)).any()


# Functions that the hardware approximates

APPROXIMATE = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
}


def flushed(x):
    """Denormals as zeros of their sign."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def test_reciprocal_of_the_upper_half_of_float64_has_only_an_upper_half():
    x = np.array([3.0, -7e-200, np.pi, 1e300])
    (found,) = compute(["rcp.approx.ftz.f64 {y}, %x0;"], ("f64",), ("f64",), [x])
    assert (found.view(np.uint64) % 2**32 == 0).all()
    np.testing.assert_allclose(found, 1 / x, rtol=3e-6)


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions_are_nearly_exact(name):
    (x,) = rows(("f32",), 4000)
    x = np.concatenate([x, np.linspace(-152, 129, 9999, dtype=np.float32)])
    codes = [f"{name}.approx{ftz}.f32 {{y}}, %x0;" for ftz in ("", ".ftz")]
    plain, ftz = compute(codes, ("f32",), ("f32", "f32"), [x])
    with np.errstate(all="ignore"):
        expected, of_flushed = (
            APPROXIMATE[name](values.astype(np.float64)).astype(np.float32)
            for values in (x, flushed(x))
        )
    for found, exact in ((plain, expected), (ftz, flushed(of_flushed))):
        near = np.isfinite(found) & np.isfinite(exact) & (exact != 0)
        steps = found.view(np.int32).astype(np.int64) - exact.view(np.int32)
        assert (np.abs(steps[near]) <= 1).all()
        assert_same(found[~near], exact[~near], [x[~near]], name)
    assert name == "cos" or ((plain != ftz) & ~np.isnan(plain)).any()
