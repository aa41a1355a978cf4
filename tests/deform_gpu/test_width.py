"""deform_gpu/width.py: digits of equal width, as the committee's paper asks, against float64."""

import math

import numpy as np
import pytest
from width_cases import CHANGE, one, property_of_cases, scale

from deform_gpu.width import _normalize, is_narrow, normalize_width

EPS64 = np.finfo(np.float64).eps
WIDTHS = (10, 12, 14, 16, 18, 20)  # the paper's


def ink_columns(image, background=-1):
    return np.flatnonzero((image != background).any(axis=0))


def changed(case):
    """(image, its normalised copy, width) of every image that has ink and is not kept."""
    images, width, keep = case
    out = normalize_width(images, width, keep)
    pairs = zip(images, out, keep, strict=True)
    return [(i, o, width) for i, o, kept in pairs if not kept and len(ink_columns(i))]


def rounding_of(out):
    """The error of float32 values, which came from float64 ones in [-1, 1] off by one rounding."""
    return np.spacing(abs(out)).astype(np.float64) / 2 + EPS64


@pytest.mark.parametrize(
    ("row", "first"),
    # The first column is the middle one, 14, less the centre of mass within the box, rounded.
    [
        ((200, 200, 200, 200), 13),  # 1.5: half a pixel is rounded up
        ((200, 199, 200, 201), 12),
        ((200, 200, 200, 199), 13),
        ((255, 0, 0, 0, 0, 0, 1), 14),  # 0.02
        ((1, 0, 0, 0, 0, 0, 255), 8),  # 5.98
        ((10, 20, 30, 0, 60), 11),  # 2.67
    ],
)
def test_the_centre_of_mass_comes_to_the_middle(row, first):
    digit = one(*((7, 3 + column, value) for column, value in enumerate(row)))
    out = normalize_width(digit, len(row), CHANGE)[0]
    assert ink_columns(out)[[0, -1]].tolist() == [first, first + len(row) - 1]


@property_of_cases
def test_kept_images_and_those_without_ink_are_untouched(case):
    images, width, keep = case
    out = normalize_width(images, width, keep)
    assert out.dtype == np.float32
    assert out.shape == images.shape
    assert out.flags.c_contiguous
    untouched = keep | (images == -1).all(axis=(1, 2))
    assert out[untouched].tobytes() == images[untouched].tobytes()
    assert normalize_width(images, width, np.ones_like(keep)).tobytes() == images.tobytes()


@property_of_cases
def test_twice_is_once(case):
    images, width, keep = case
    once = normalize_width(images, width, keep)
    assert normalize_width(once, width, keep).tobytes() == once.tobytes()


def reference(image, width, tie):
    """The same by another way: differences of the cumulative sum at the new columns' edges.

    tie: by how much less than half a pixel is rounded up.
    """
    side = len(image)
    columns = ink_columns(image)
    box = image[:, columns[0] : columns[-1] + 1].astype(np.float64)
    w = box.shape[1]
    edges = np.linspace(0, w, width + 1)
    out = np.full((side, side), -1.0)
    sums = np.insert(np.cumsum(box, axis=1), 0, 0, axis=1)
    means = np.array([np.diff(np.interp(edges, np.arange(w + 1), row)) * width / w for row in sums])
    centre = np.average(np.arange(width), weights=(means + 1).sum(axis=0))
    left = np.clip(math.floor((side - 1) / 2 - centre + 0.5 + tie), 0, side - width)
    out[:, left : left + width] = means
    return out


def assert_equals_reference(out, image, width):
    # The reference: the sums are exact; an edge is off by w * EPS64, an interpolated sum, up to w,
    # by 2 * w * EPS64 then, a difference by 5 * w * EPS64, a mean, width / w times that.
    tolerance = rounding_of(out) + 6 * width * EPS64
    # The centre of mass is that of rounded values; where it is next to a tie, they decide.
    slack = width * rounding_of(out).sum() / (out.astype(np.float64) + 1).sum()
    found = (reference(image, width, tie) for tie in (1e-6, 1e-6 - slack, 1e-6 + slack))
    assert any((abs(out - one) <= tolerance).all() for one in found)


@property_of_cases
def test_result_equals_the_reference(case):
    for image, out, width in changed(case):
        assert_equals_reference(out, image, width)


@property_of_cases
def test_images_that_have_the_width_are_only_moved(case):
    for image, _, _ in changed(case):
        columns = ink_columns(image)
        width = columns[-1] - columns[0] + 1
        out = normalize_width(image[None], width, CHANGE)[0]
        shift = ink_columns(out)[0] - columns[0]
        assert out.tobytes() == np.roll(image, shift, axis=1).tobytes()


@property_of_cases
def test_background_may_have_any_value(case):
    images, width, keep = case
    expected = normalize_width(images, width, keep)
    assert (normalize_width(-images, width, keep, 1) == -expected).all()
    with_defaults = normalize_width(images, width, keep, background=np.float32(-1))
    assert with_defaults.tobytes() == expected.tobytes()


@pytest.mark.parametrize("width", range(1, 30))
def test_constant_rows_stay_exactly_constant(width):
    values = np.linspace(-1, 1, 29, dtype=np.float32)
    for first in range(29):
        images = np.full((1, 29, 29), -1, np.float32)
        images[0, :, first:] = values[:, None]
        out = normalize_width(images, width, CHANGE)[0]
        left = (29 - width + 1) // 2
        assert (out[:, left : left + width] == values[:, None]).all()


def test_negative_zeros_are_copied_bit_for_bit():
    images = np.full((1, 5, 5), -1, np.float32)
    images[0, 2, 1:4] = -0.0
    assert normalize_width(images, 3, CHANGE).tobytes() == images.tobytes()


@pytest.mark.parametrize("width", range(1, 30))
def test_faintest_edge_that_float32_holds_is_kept(width):
    # -1 + k * 2**-24 are the float32 next to -1. A narrower box has width / 29 of the edge's ink.
    vanishes = 29 // (2 * width)
    for k in (vanishes, vanishes + 1):
        images = one((3, 28, 255))
        images[0, 9, 0] = -1 + k * 2.0**-24
        out = normalize_width(images, width, CHANGE)[0]
        assert (out[9] != -1).any() == (k > vanishes)


def test_images_are_not_modified_nor_shared_and_may_be_read_only():
    images = np.concatenate([one((3, 2, 9), (3, 25, 200)), one((1, 1, 1)), one()])
    before = images.copy()
    images.flags.writeable = False
    for keep in ([False] * 3, [True] * 3, [False, True, False]):
        out = normalize_width(images, 10, keep)
        assert not np.may_share_memory(out, images)
        assert out.flags.writeable
        out[:] = 7
    assert images.tobytes() == before.tobytes()


@pytest.mark.parametrize("width", range(1, 6))
def test_no_index_is_out_of_range(width):
    # As plain Python the loop raises IndexError where compiled it would read its neighbours.
    images = scale(np.arange(225, 250, dtype=np.uint8).reshape(1, 5, 5))
    out = images.copy()
    _normalize.py_func(out, images, width, CHANGE, np.float32(-1))
    assert out.tobytes() == normalize_width(images, width, CHANGE).tobytes()


@pytest.mark.parametrize("kind", [np.int8, np.uint64])
def test_width_may_be_any_kind_of_integer(kind):
    images = one((0, 0, 255), (5, 28, 9))
    expected = normalize_width(images, 20, CHANGE)
    assert normalize_width(images, kind(20), CHANGE).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((3, 29, 29))}, "images is float64; expected a NumPy array of float32"),
        ({"images": [[[0.0]]]}, "images is list"),
        ({"images": np.zeros((3, 29, 28), np.float32)}, "images has shape"),
        ({"images": np.zeros((29, 29), np.float32)}, "images has shape"),
        ({"images": np.zeros((3, 0, 0), np.float32)}, "images has shape"),
        ({"images": np.zeros((3, 29, 58), np.float32)[:, :, ::2]}, "images has .* in C order"),
        ({"background": math.nan}, "background is nan; expected a finite number"),
        ({"background": -1e39}, "background is -1e[+]39"),
        ({"background": "-1"}, "background is -1; expected"),
        ({"width": 0}, "width is 0; expected an integer from 1 to 29 pixels"),
        ({"width": 30}, "width is 30"),
        ({"width": 10.0}, "width is 10.0; expected an integer"),
        ({"keep": np.zeros(2, bool)}, r"keep is bool \(2,\); expected bool \(3,\), one per image"),
        ({"keep": np.zeros(3, np.uint8)}, "keep is uint8"),
    ],
)
def test_normalize_width_and_is_narrow_of_bad_input_are_refused(change, message):
    good = {"images": np.zeros((3, 29, 29), np.float32), "width": 10, "keep": np.zeros(3, bool)}
    with pytest.raises(ValueError, match=message):
        normalize_width(**(good | change))
    if not {"width", "keep"} & change.keys():
        with pytest.raises(ValueError, match=message):
            is_narrow(**({"images": good["images"]} | change))
