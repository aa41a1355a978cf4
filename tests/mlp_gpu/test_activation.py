"""The scalar formulas of the activations. For scaled_tanh: tests/cnn_gpu/test_cnn_engines.py."""

from functools import cache

import numba
import numpy as np
import pytest

from mlp_gpu.activation import (
    A,
    B,
    exp_of_negative,
    log_of_sum,
    scaled_tanh,
    scaled_tanh_derivative,
)

N = 1_000_000  # points of a grid
# What a compiler may do with sums and products: nothing; fuse them, as a GPU's does; reorder too.
FASTMATH = [set(), {"contract"}, {"contract", "reassoc", "nsz"}]
FORMULAS = [
    (scaled_tanh, [*np.linspace(-20, 20, 2001), -0.0, 1e-30, 13.5, 13.51, 1e30, -np.inf, np.inf]),
    (scaled_tanh_derivative, np.linspace(-A, A, 2001)),
    (exp_of_negative, [*np.linspace(-87, 0, 2001), -0.0, -1e-30, -87.01, -1e30, -np.inf]),
    (log_of_sum, [*np.geomspace(1, 2**24, 2001), 4 / 3, 8 / 3]),
]


@cache
def loop_over(formula, fastmath):
    """A compiled loop, which vectorises, over values and results of a formula."""
    of_one = numba.njit(error_model="numpy", fastmath=set(fastmath))(formula)

    @numba.njit(error_model="numpy", fastmath=set(fastmath))
    def loop(values, results):
        for i in range(values.shape[0]):
            results[i] = of_one(values[i])

    return loop


def compiled(formula, values, fastmath=()):
    """The results of a formula for all values, float32."""
    results = np.full(len(values), np.nan, np.float64 if formula is log_of_sum else np.float32)
    loop_over(formula, frozenset(fastmath))(np.asarray(values, np.float32), results)
    return results


@pytest.mark.parametrize(("formula", "values"), FORMULAS)
def test_formula_compiled_has_the_bits_of_plain_python(formula, values):
    """So no number is of a wider type: numba widens where NumPy does not."""
    expected = [formula(a) for a in np.asarray(values, np.float32)]
    assert np.array(expected).tobytes() == compiled(formula, values).tobytes()


@pytest.mark.parametrize("formula", [formula for formula, _ in FORMULAS])
def test_formula_of_nan_is_nan(formula):
    assert np.isnan(compiled(formula, [np.nan] * 17)).all()


@pytest.mark.parametrize("fastmath", FASTMATH)
def test_scaled_tanh_of_large_activations_is_exactly_A(fastmath):
    """From LIMIT / B on, which is less than 13.51."""
    a = np.array([13.51, 13.6, 14, 20, 1e30, np.inf], np.float32)
    assert (compiled(scaled_tanh, a, fastmath) == A).all()
    assert (compiled(scaled_tanh, -a, fastmath) == -A).all()


@pytest.mark.parametrize("fastmath", FASTMATH)
def test_scaled_tanh_derivative_is_never_negative(fastmath):
    """From a state of float32, which falls by at most 6e-7 where the activation grows."""
    a = np.linspace(-14, 14, N).astype(np.float32)
    y = compiled(scaled_tanh, a, fastmath)
    assert (np.diff(y.astype(float)) >= -6e-7).all()
    derivative = compiled(scaled_tanh_derivative, y, fastmath)
    expected = float(A) * float(B) / np.cosh(float(B) * a.astype(float)) ** 2
    assert (abs(derivative - expected) <= 1e-6).all()
    assert (derivative >= 0).all()
    assert (compiled(scaled_tanh_derivative, [A, -A]) == 0).all()


def test_exp_of_negative_matches_float64():
    """The bound holds for all float32 numbers from -87 to 0; the largest error is 2.54e-7."""
    z = np.linspace(-87, 0, N).astype(np.float32)
    expected = np.exp(z.astype(float))
    assert (abs(compiled(exp_of_negative, z) - expected) <= 1.1e-7 * expected).all()
    assert (compiled(exp_of_negative, [0, -0.0]) == 1).all()  # of the largest activation
    below = compiled(exp_of_negative, [-87, np.nextafter(np.float32(-87), -np.inf), -1e3, -np.inf])
    assert (below == below[0]).all()


def test_log_of_sum_matches_float64():
    """The bound holds for all float32 numbers from 1 to 2^24; the largest error is 1.31e-10."""
    x = np.geomspace(1, 2**24, N).astype(np.float32)
    assert (abs(compiled(log_of_sum, x) - np.log(x.astype(float))) <= 1.4e-10).all()
    assert (compiled(log_of_sum, [1]) == 0).all()  # the loss of a certain, right answer
