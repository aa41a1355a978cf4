"""deform_gpu/width.py: digits of equal width, and which look like a one, against float64."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from deform_gpu.width import _normalize, is_narrow, normalize_width
from experiments.datasets import data

EPS64 = np.finfo(np.float64).eps


def scale(pixels):
    """float32 in [-1, 1] from 0..255, as experiments.datasets.data has them."""
    return pixels.astype(np.float32) / np.float32(127.5) - np.float32(1)


@st.composite
def cases(draw):
    """Images as the pipeline makes them, some without ink; a width; which images to keep."""
    side = draw(st.sampled_from([1, 2, 5, 28, 29, 64]))
    size = 28 if side == 29 else side  # 29 goes through to_29, with its fainter pixels
    n = draw(st.integers(1, 3))
    pixels = draw(arrays(np.uint8, (n, size, size), fill=st.just(0)))
    column = st.integers(0, size - 1)
    for image in pixels:
        first, last = sorted((draw(column), draw(column)))
        faint = draw(st.sampled_from([0, 1]))
        image[draw(column), [first, last]] |= faint
        image[:, :first] = 0
        image[:, last + 1 :] = 0
    images = scale(data.to_29(pixels) if side == 29 else pixels)
    return images, draw(st.integers(1, side)), draw(arrays(bool, n))


def one(*ink, side=29):
    """A case's images: one of `side` columns, with pixels (row, column, value 0..255)."""
    pixels = np.zeros((1, side, side), np.uint8)
    for row, column, value in ink:
        pixels[0, row, column] = value
    return scale(pixels)


KEEP, CHANGE = np.array([True]), np.array([False])
EXAMPLES = {
    "single faint pixel": (one((3, 28, 1)), 20, CHANGE),
    "single column": (one((3, 0, 200), (17, 0, 9)), 10, CHANGE),
    "all columns, faint edges": (one((0, 0, 1), (28, 28, 1)), 1, CHANGE),
    "from all columns to all": (one((0, 0, 1), (9, 9, 99), (28, 28, 1)), 29, CHANGE),
    "all columns, kept": (one((0, 0, 1), (28, 28, 1)), 10, KEEP),
    "no ink": (one(), 10, CHANGE),
    "5 columns": (one((1, 0, 7), (2, 4, 255), side=5), 4, CHANGE),
}


def property_of_cases(test):
    for case in EXAMPLES.values():
        test = example(case)(test)
    return settings(deadline=None, max_examples=150)(given(cases())(test))


def ink_columns(image, background=-1):
    return np.flatnonzero((image != background).any(axis=0))


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
def test_normalize_width_of_any_images_matches_the_reference(case):
    images, width, keep = case
    out = normalize_width(images, width, keep)
    assert out.dtype == np.float32
    assert out.shape == images.shape
    assert out.flags.c_contiguous
    untouched = keep | (images == -1).all(axis=(1, 2))
    assert out[untouched].tobytes() == images[untouched].tobytes()
    assert normalize_width(images, width, np.ones_like(keep)).tobytes() == images.tobytes()
    assert (normalize_width(-images, width, keep, 1) == -out).all()
    for image, found in zip(images[~untouched], out[~untouched], strict=True):
        assert_equals_reference(found, image, width)
        # An image that has the width already is only moved.
        columns = ink_columns(image)
        moved = normalize_width(image[None], columns[-1] - columns[0] + 1, CHANGE)[0]
        shift = ink_columns(moved)[0] - columns[0]
        assert moved.tobytes() == np.roll(image, shift, axis=1).tobytes()


def test_background_is_rounded_as_the_images_are():
    images = np.full((1, 29, 29), 0.1, np.float32)
    images[0, 14, 3:23] = 0.7
    out = normalize_width(images, 7, CHANGE, 0.1)
    expected = np.full((29, 29), 0.1, np.float32)
    expected[14, 11:18] = 0.7
    assert (out[0] == expected).all()


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


def stroke(width, height=20, slant=0.0, side=29, background=-1.0, ink=1.25):
    """An image of one stroke: `slant` columns to the right from each row to the next above."""
    images = np.full((1, side, side), background, np.float32)
    for row in range(height):
        left = 2 + int(slant * (height - 1 - row))
        images[0, row + 4, left : left + width] += np.float32(ink)
    return images


@pytest.mark.parametrize("slant", [0, 0.5, 1])
def test_a_stroke_is_narrow_whatever_its_slant(slant):
    # A row of w equal pixels has the standard deviation sqrt((w**2 - 1) / 12): 1.41 and 1.71 for
    # 5 and 6 of them, on either side of 0.08 * 20 = 1.6.
    assert is_narrow(stroke(5, slant=slant)).tolist() == [True]
    assert is_narrow(stroke(6, slant=slant)).tolist() == [False]
    # It depends on the height: 1.71 <= 1.76, 1.71 > 1.68, 1.41 > 1.36.
    found = [is_narrow(stroke(*size))[0] for size in ((6, 22), (6, 21), (5, 17))]
    assert found == [True, False, False]


def test_ink_counts_by_its_strength_and_not_by_its_sign():
    faint = stroke(5)
    faint[0, 10, 2:28] += np.float32(0.01)  # a speck of dirt as wide as the image
    assert is_narrow(faint).tolist() == [True]
    faint[0, 10, 2:28] += np.float32(0.5)
    assert is_narrow(faint).tolist() == [False]
    assert is_narrow(-stroke(5), 1).tolist() == [True]
    assert is_narrow(stroke(5, background=0.5, ink=-1), 0.5).tolist() == [True]


def is_narrow_reference(image, background):
    """In integers' and fractions' place, float64, with numpy's weighted average."""
    ink = np.abs(image.astype(np.float64) - np.float64(np.float32(background)))
    rows = np.flatnonzero(ink.sum(axis=1))
    if not len(rows):
        return False
    columns = np.arange(image.shape[1])
    spread = 0.0
    for row in rows:
        mean = np.average(columns, weights=ink[row])
        spread += (ink[row] * (columns - mean) ** 2).sum()
    return bool(np.sqrt(spread / ink.sum()) <= 0.08 * (np.ptp(rows) + 1))


@property_of_cases
def test_narrow_is_what_the_reference_says(case):
    images, _, _ = case
    before = images.copy()
    found = is_narrow(images)
    assert found.dtype == np.bool_
    assert found.tolist() == [is_narrow_reference(image, -1) for image in images]
    # Of each image alone, whatever its background; and the images are left as they are.
    assert found.tolist() == [is_narrow(image[None])[0] for image in images]
    assert is_narrow(-images, 1).tolist() == found.tolist()
    assert images.tobytes() == before.tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": [[[0.0]]]}, "images is list"),
        ({"images": np.zeros((29, 29), np.float32)}, "images has shape"),
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
