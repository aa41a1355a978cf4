"""The steps of a deformation, random numbers, fields and warps, against float64."""

import numpy as np
import pytest
import reference_deform as reference
from deform_cases import EPS, inverse_affine_tolerance, make_images
from hypothesis import given, settings
from hypothesis import strategies as st

from deform_gpu.field import gaussian_weights
from deform_gpu.philox import philox4x32, philox4x32_formula, uniform, uniform_formula
from deform_gpu.warp import bilinear, inverse_affine, inverse_affine_formula, offset, offset_formula

INNER, FIELD = 290, 310
TINY = np.finfo(np.float32).smallest_subnormal


# philox.py ----------------------------------------------------------------------------------------

# Random123, kat_vectors: philox4x32, 10 rounds. Counter, key, result.
KNOWN = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5e169c58dbc57ac4c9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d41c83b0ea20bc7c66d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe0994fdcceb5001e42024126ea1",
    ),
]


@pytest.mark.parametrize("function", [philox4x32, philox4x32_formula])
@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_philox_gives_the_published_answers(function, counter, key, result):
    counter = [int(word, 16) for word in counter.split()]
    key = [int(word, 16) for word in key.split()]
    words = function(*map(np.uint32, counter + key))
    assert "".join(f"{word:08x}" for word in words) == result
    assert "".join(f"{int(word):08x}" for word in reference.philox(counter, key)) == result


@pytest.mark.parametrize("function", [uniform, uniform_formula])
def test_uniform_is_exact(function):
    words = [0, 255, 256, 2**31 - 1, 2**31, 2**32 - 257, 2**32 - 256, 123456789, 2**32 - 1]
    values = np.array([function(np.uint32(word)) for word in words])
    assert (values == reference.uniform(words)).all()
    assert values[0] == -1
    assert values[-1] == 1 - 2.0**-23


# field.py -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [1e-200, 0.1, 5.5, 6.0, 1e4])
def test_gaussian_weights_are_the_normalised_kernel(sigma):
    weights = gaussian_weights(sigma)
    assert weights.dtype == np.float32
    with np.errstate(over="ignore"):  # the reference squares 1e201
        kernel = reference.gaussian_kernel(sigma)
    # Each weight is rounded once, to EPS / 2 of itself or, if it is tiny, to a whole TINY.
    assert (abs(np.outer(weights, weights.astype(float)) - kernel) <= 2 * EPS * kernel + TINY).all()
    assert abs(weights.sum(dtype=np.float64) - 1) <= EPS


# warp.py ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [inverse_affine, inverse_affine_formula])
@given(
    u=st.tuples(*[st.integers(-(2**23), 2**23 - 1).map(lambda i: i / 2**23)] * 4),
    beta=st.sampled_from([0.0, 7.5, 15.0, 45.0, 80.0]),
    gamma_x=st.sampled_from([0.0, 12.5, 50.0, 99.0]),
    gamma_y=st.sampled_from([0.0, 17.5, 50.0, 99.0]),
    shear_probability=st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(deadline=None, max_examples=200)
def test_inverse_affine_inverts_the_reference(
    function, u, beta, gamma_x, gamma_y, shear_probability
):
    parameters = (beta, gamma_x, gamma_y, shear_probability)
    actual = np.reshape(function(*map(np.float32, u + parameters)), (2, 2))
    expected = np.linalg.inv(reference.affine(u, *parameters))
    assert (abs(actual - expected) <= inverse_affine_tolerance(u, *parameters)).all()


@pytest.mark.parametrize(
    ("u", "shear_probability", "source", "target"),
    [
        ((0, 1, 0, 0), 0, (0, 10), (50**0.5, 50**0.5)),  # clockwise: what was right goes down
        ((0, -1, 0, 0), 0, (10, 0), (50**0.5, 50**0.5)),
        ((0, 1, 0, 0), 1, (10, 0), (10, 10)),  # tan 45 degrees = 1: as far right as it is low
        ((0, 1, 0, 0), 1, (0, 10), (0, 10)),
        ((0, 0, 0.5, 0), 0, (10, 10), (10, 12)),  # 20 % wider
        ((0, 0, 0, -0.5), 0, (10, 10), (9, 10)),  # 10 % lower
        ((0, 1, 0.5, 0), 1, (10, 10), (10, 22)),  # scaled first, then sheared
        ((0, 1, 0, -0.5), 1, (10, 10), (9, 19)),
    ],
)
def test_affine_moves_points_as_the_paper_says(u, shear_probability, source, target):
    parameters = map(np.float32, (*u, 45, 40, 20, shear_probability))
    inverse = np.reshape(inverse_affine(*parameters), (2, 2))
    assert (abs(inverse @ target - source) <= 100 * EPS).all()


@pytest.mark.parametrize("function", [offset, offset_formula])
def test_offset_without_translation_has_the_bits_of_the_formula_without_it(function):
    rng = np.random.default_rng(3)
    one = np.float32(1)
    for yy, yx, xy, xx, dy, dx, shift_y, shift_x in np.float32(rng.uniform(-2, 2, (1000, 8))):
        for zero in (np.float32(0), np.float32(-0.0)):
            found = function(yy, yx, zero, xy, xx, zero, dy, dx, shift_y, shift_x)
            assert found[0] == (yy - one) * dy + yx * dx + shift_y
            assert found[1] == xy * dy + (xx - one) * dx + shift_x


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_bilinear_far_away_is_background(bad):
    image, background = make_images(1)[0][0], np.float32(-0.7)
    assert bilinear(image, 3, 4, np.float32(bad), np.float32(3), background) == background
    assert bilinear(image, 3, 4, np.float32(3), np.float32(bad), background) == background
