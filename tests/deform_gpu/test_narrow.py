"""deform_gpu/width.py: which digits look like a one, against float64."""

import numpy as np
import pytest
from width_cases import one, property_of_cases

from deform_gpu.width import _is_narrow, is_narrow


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


def test_what_is_narrow_depends_on_the_height():
    assert is_narrow(stroke(6, 22)).tolist() == [True]  # 1.71 <= 1.76
    assert is_narrow(stroke(6, 21)).tolist() == [False]  # 1.71 > 1.68
    assert is_narrow(stroke(5, 17)).tolist() == [False]  # 1.41 > 1.36


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


def test_no_ink_is_not_narrow():
    images = np.concatenate([one(), stroke(1), one()])
    assert is_narrow(images).tolist() == [False, True, False]
    assert is_narrow(np.empty((0, 29, 29), np.float32)).shape == (0,)


def test_background_of_narrow_digits_may_have_any_value_and_is_rounded():
    images = stroke(3, background=0.1)  # as float32, which is not the float64 0.1
    assert is_narrow(images, 0.1).tolist() == [True]
    assert is_narrow(images).tolist() == [False]  # then all of it is ink


@pytest.mark.parametrize("width", [1, 5])
def test_no_index_is_out_of_range_for_narrow_digits(width):
    images = np.full((1, width, width), 0.5, np.float32)
    assert _is_narrow.py_func(images, np.float32(-1)).tolist() == is_narrow(images).tolist()
