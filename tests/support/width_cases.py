"""What tests of the width share: images as the pipeline makes them, and properties of them all."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from experiments.datasets import data

many = settings(deadline=None, max_examples=150)


def scale(pixels):
    """float32 in [-1, 1] from 0..255, as running/data.py does it; multiples of 2**-24."""
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
    return many(given(cases())(test))
