"""Width normalisation: every digit except the ones gets a bounding box of the same width.

2012 section 5: "we normalize the width of the bounding box to range from 10 to 20 pixels with a
step-size of 2 pixels prior to training for all digits except ones" (WN10, WN12, ..., WN20). A box
of w columns becomes one of `width` columns. Row by row, column j of the new box is

    out[j] = sum over i of overlap(i, j) / w * in[i]
    overlap(i, j) = max(0, min((i + 1) * width, (j + 1) * w) - max(i * width, j * w))

the mean of in over [j * w / width, (j + 1) * w / width]. So no stroke gets lost, however narrow the
box, and each row keeps its ink, up to the stretch: sum(out - background) * w is
sum(in - background) * width.

Guess: the papers do not name the interpolation; this is area averaging.
Guess: nor do they say where the box goes. It keeps its rows, and goes to the columns where the
centre of mass of its ink is nearest to the middle column, as in MNIST's digits. With the box itself
centred, nets were worse than those of the original digits.

Training and testing need the same rule for the digits that stay as they are. Testing must not use
the label of a digit, and the papers do not say how a one is recognised. The caller of
`normalize_width` chooses. Our committees use `is_narrow` for both.
"""

import math
from numbers import Integral, Real

import numpy as np

from deepbig_runtime.jit import njit
from deform_gpu.checks import check_images
from deform_gpu.parameters import LARGEST

# Guess: the papers keep the ones as they are and do not say how a one is recognised. Here a digit
# is taken for a one if its ink spreads by no more than this share of its height. The spread is
# measured within each row, so slant does not matter. The share was chosen on MNIST's training
# digits, where it holds for 94 % of the ones and for 1 % of the others.
NARROW = 0.08


def normalize_width(
    images: np.ndarray, width: int, keep: np.ndarray, background: float = -1.0
) -> np.ndarray:
    """Copies of images whose bounding boxes are `width` columns wide, placed by centre of mass.

    images: (n, side, side) float32, C order, any side. width: 1..side, pixels of these images.
    keep: (n,) bool, True for images that stay as they are, in the paper the ones. background: the
    value of pixels without ink, and outside the new box.

    Returns (n, side, side) float32, C order, within the range of the values of images and the
    background. Images without ink stay as they are, and so do, bit for bit, results of this
    function for the same width. Raises ValueError for any other input.

    Limit: a column at the edge of the box becomes background, and the box narrower, where float32
    cannot hold its ink: for background -1 where all its pixels are within 2**-25 * w / width of it.
    The faintest pixel that MNIST can have at 29x29 is 1e-5 from it, too much for that at any width.
    Pixels above and below the background can also cancel out.
    """
    check_images("images", images)
    side = images.shape[1]
    if not (isinstance(width, Integral) and 1 <= width <= side):
        raise ValueError(f"width is {width}; expected an integer from 1 to {side} pixels")
    keep = np.asarray(keep)
    if keep.dtype != np.bool_ or keep.shape != images.shape[:1]:
        raise ValueError(
            f"keep is {keep.dtype} {keep.shape}; expected bool ({len(images)},), one per image"
        )
    background = _check_background(background)
    out = images.copy()
    _normalize(out, images, int(width), keep, background)
    return out


def is_narrow(images: np.ndarray, background: float = -1.0) -> np.ndarray:
    """Whether an image looks like a one: a single stroke, upright or not. Knows no label.

    images: (n, side, side) float32, C order. background: the value of pixels without ink.

    The measure is the standard deviation of columns about the mean column of their row, over all
    rows, each pixel weighted by its ink, |value - background|: at most NARROW times the height of
    the bounding box. Returns (n,) bool, False for images without ink. Raises ValueError for any
    other input.
    """
    check_images("images", images)
    return _is_narrow(images, _check_background(background))


def _check_background(background: float) -> np.float32:
    if not (isinstance(background, Real) and abs(background) <= LARGEST):  # False for NaN too
        raise ValueError(f"background is {background}; expected a finite number, float32")
    return np.float32(background)


@njit(nogil=True)
def _is_narrow(images, background):
    narrow = np.empty(len(images), np.bool_)
    for n, image in enumerate(images):
        _, height = _find_box(image.T, background)
        total = moment = 0.0
        for row in image:
            ink = np.abs(row.astype(np.float64) - background)
            row_total = ink.sum()
            if row_total > 0:
                columns = np.arange(len(row))
                mean = (ink * columns).sum() / row_total
                total += row_total
                moment += (ink * (columns - mean) ** 2).sum()
        narrow[n] = height > 0 and moment <= total * (NARROW * height) ** 2
    return narrow


@njit(nogil=True)
def _normalize(out, images, width, keep, background):
    """As normalize_width; out is a copy of images and modified. background: float32."""
    side = images.shape[1]
    box = np.empty((side, width), np.float32)
    for n in range(len(images)):
        first, w = _find_box(images[n], background)
        if keep[n] or w == 0:
            continue
        mass = moment = 0.0
        for row in range(side):
            source = images[n, row, first : first + w]
            for j in range(width):
                start, stop = j * w, (j + 1) * w  # in units of 1 / width of a source column
                # In float64, where sums of equal pixels are exact. From -0.0, so that -0.0 stays.
                total = -0.0
                for i in range(start // width, (stop - 1) // width + 1):
                    overlap = min((i + 1) * width, stop) - max(i * width, start)
                    total += overlap * np.float64(source[i])
                box[row, j] = total / w
                ink = abs(np.float64(box[row, j]) - background)
                mass += ink
                moment += ink * j
        # Without mass, where float32 could hold no ink, any place will do.
        centre = moment / mass if mass > 0 else 0.0
        # Half a pixel is rounded up, however the sums are rounded: symmetric digits often have it.
        left = math.floor((side - 1) / 2 - centre + 0.5 + 1e-6)
        left = max(0, min(left, side - width))
        out[n] = background
        out[n, :, left : left + width] = box


@njit(nogil=True)
def _find_box(image, background):
    """First column and width in columns of the bounding box; 0 wide where there is no ink.

    Guess: ink is every pixel that differs from the background, however faint. The papers are
    silent.
    """
    side = image.shape[1]
    first, last = side, -1
    for row in range(side):
        for column in range(side):
            if image[row, column] != background:
                first = min(first, column)
                last = max(last, column)
    return first, max(0, last - first + 1)
