"""From any picture of a digit to one like MNIST's, 28x28: find the ink, scale it, centre it.

MNIST's digits fill 20x20 pixels, their centre of mass in the middle of 28x28 (LeCun et al. 1998).
All else here is our guess at what people bring: dark on light or light on dark, in any colours, on
paper lit from one side, large or small, drawn with a pencil or a broad pen.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from deepbig_runtime import files
from deepbig_runtime.errors import Problem
from experiments.datasets import reading

SIDE, DIGIT_SIDE = 28, 20  # pixels of an image, and of the longest side of a digit in it
CENTRE = 14.0  # where its centre of mass goes, in pixels from the top and from the left

WORK_SIDE = 600  # pixels; larger pictures are reduced first
FINE = 4  # times DIGIT_SIDE: where strokes are made thicker or thinner

MIN_CONTRAST = 15  # between ink and paper, of 255
MAX_INK = 0.6  # part of the picture; more is no digit
MIN_PAPER = 0.9  # part of the border
FAINT = 0.1  # of the ink's full strength; less is paper
MIN_PART = 0.02  # of all ink; smaller blots are not of the digit
# Another digit has so much of the larger one's ink and size, and keeps so much distance.
MIN_OTHER_INK, MIN_OTHER_SIZE = 0.25, 0.5
MIN_GAP_BESIDE, MIN_GAP_BELOW = 0.08, 0.25
STROKES, USUAL_STROKE = (2.0, 4.1), 2.8  # widths of MNIST's, pixels: nine in ten; their median

Pixels = NDArray[np.float32]


class NoDigit(Exception):
    """Why a picture shows no single digit, in words that follow the name of its file."""


def read_digit(path: Path) -> np.ndarray:
    """The digit in a picture, as MNIST has its digits: uint8 (28, 28), ink 255, paper 0.

    Raises Fault, one sentence, if the file cannot be read or shows no single digit.
    """
    try:
        return centred(find_ink(_read(path)))
    except NoDigit as reason:
        raise Problem(f"{path}: {reason}") from None


def _read(path: Path) -> Pixels:
    """A picture's red, green and blue, float32 (height, width, 3), from 0 to 255, the right way up.

    Transparent pixels become paper. Raises Fault if it cannot be read.
    """
    with reading.picture(path, files.read_bytes(path)) as image:
        image.draft("RGB", (WORK_SIDE, WORK_SIDE))  # a JPEG is decoded no larger than needed
        upright = reading.upright(image)
        if upright.mode[0] in "IF":  # more than 8 bits
            values = np.nan_to_num(np.asarray(upright, np.float64))
            values *= 255 / max(1, values.max())  # scanners' pictures may use 10 bits of 16
            upright = Image.fromarray(values.clip(0, 255).astype(np.uint8))
        upright = upright.convert("RGBA")
    upright.thumbnail((WORK_SIDE, WORK_SIDE), Image.Resampling.BOX)
    pixels = np.asarray(upright, np.float32)
    colours, opaque = pixels[..., :3], pixels[..., 3:] / np.float32(255)
    if opaque.mean() > MAX_INK:  # a sheet with round corners, or with a margin
        paper = np.median(colours[opaque[..., 0] > 0.5], axis=0)
    else:  # ink alone
        brightness = (colours * opaque).sum() / max(3 * opaque.sum(), 1)
        paper = np.full(3, 255 if brightness < 128 else 0, np.float32)
    return colours * opaque + (1 - opaque) * paper


def find_ink(colours: Pixels) -> Pixels:
    """How much ink there is at each pixel, float32 (height, width), from 0 to 1.

    Paper is what the picture's border shows; its colour may change evenly over the picture. Raises
    NoDigit if there is no ink, or no paper.
    """
    distance = np.sqrt(np.square(colours - _paper(colours)).sum(axis=2) / 3)
    if np.ptp(distance) < MIN_CONTRAST:
        raise NoDigit("it shows no ink; expected a digit that stands out from its background")
    threshold = _threshold(distance)
    border = reading.border(distance)
    low = np.quantile(border, MIN_PAPER)
    if low > threshold / 2 or (distance > threshold).mean() > MAX_INK:
        raise NoDigit("it has no plain background; expected a digit on paper, nothing else")
    high = np.quantile(distance[distance > threshold], 0.8)
    return np.clip((distance - low) / (high - low), 0, 1).astype(np.float32)


def _paper(colours: Pixels) -> np.ndarray:
    """The colour of the paper at each pixel: the plane that fits the border, without ink on it."""
    height, width = colours.shape[:2]
    y, x = np.mgrid[:height, :width]
    plane = np.stack((np.ones((height, width)), y / height, x / width), axis=2)
    points, border = reading.border(plane), reading.border(colours)
    keep = np.ones(len(points), bool)
    coefficients = np.zeros((3, 3))
    for _ in range(5):
        coefficients = np.linalg.lstsq(points[keep], border[keep], rcond=None)[0]
        off = np.abs(border - points @ coefficients).max(axis=1)
        keep = off <= max(np.median(off) * 3, 2)
    return plane @ coefficients


def _threshold(values: np.ndarray) -> float:
    """Between ink and paper: the variance between both is the largest (Otsu, 1979)."""
    counts, edges = np.histogram(values, 256)
    middles = (edges[1:] + edges[:-1]) / 2
    below = np.cumsum(counts)
    above = below[-1] - below
    sums = np.cumsum(counts * middles)
    with np.errstate(invalid="ignore", divide="ignore"):
        between = below * above * (sums / below - (sums[-1] - sums) / above) ** 2
    return float(edges[1 + np.nanargmax(between[:-1])])


def centred(ink: Pixels) -> np.ndarray:
    """The one digit of some ink, as MNIST has its digits: uint8 (28, 28).

    Raises NoDigit if there are several, or only blots.
    """
    digit = _with_usual_strokes(_resized(_cropped(_without_blots(ink)), FINE * DIGIT_SIDE))
    digit = _resized(_cropped(digit), DIGIT_SIDE)
    digit /= np.quantile(digit[digit > FAINT], 0.9)
    height, width = digit.shape
    y, x = ndimage.center_of_mass(digit)
    top = min(max(round(CENTRE - y), 0), SIDE - height)
    left = min(max(round(CENTRE - x), 0), SIDE - width)
    image = np.zeros((SIDE, SIDE), np.uint8)
    image[top : top + height, left : left + width] = np.round(255 * np.clip(digit, 0, 1))
    return image


def _without_blots(ink: Pixels) -> Pixels:
    """The ink without small blots. Raises NoDigit if nothing is left, or several digits are."""
    labels, n = ndimage.label(ink > FAINT, np.ones((3, 3)))
    parts = np.arange(1, n + 1)
    amounts = ndimage.sum_labels(ink, labels, parts)
    strongest = ndimage.maximum(ink, labels, parts)
    keep = (amounts >= MIN_PART * amounts.sum()) & (strongest >= 0.5)
    if not keep.any():
        raise NoDigit("it shows only small spots; expected a digit")
    kept = ink * np.isin(labels, parts[keep])
    _refuse_several(kept, MIN_GAP_BESIDE, "side by side")
    _refuse_several(kept.T, MIN_GAP_BELOW, "one above the other")
    return kept


def _refuse_several(ink: Pixels, min_gap: float, how: str) -> None:
    """Raise NoDigit if ink is in several places one after another, each as a digit would be.

    min_gap: between two digits, a fraction of the larger one's size. how: arrangement, in words.
    """
    columns, _ = ndimage.label((ink > FAINT).any(axis=0))
    groups = []
    for (where,) in ndimage.find_objects(columns):
        part = ink[:, where]
        rows = np.flatnonzero((part > FAINT).any(axis=1))
        groups.append((part.sum(), np.ptp(rows) + 1, where.start, where.stop))
    most, largest = (max(group[k] for group in groups) for k in (0, 1))
    digits = [
        group
        for group in groups
        if group[0] >= MIN_OTHER_INK * most and group[1] >= MIN_OTHER_SIZE * largest
    ]
    gaps = [right[2] - left[3] for left, right in pairwise(digits)]
    n_digits = 1 + sum(gap >= min_gap * largest for gap in gaps)
    if n_digits > 1:
        raise NoDigit(f"it shows {n_digits} digits {how}; expected one")


def _cropped(ink: Pixels) -> Pixels:
    """The ink without the empty rows and columns around it."""
    rows, columns = (np.flatnonzero((ink > FAINT).any(axis=axis)) for axis in (1, 0))
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _resized(ink: Pixels, side: int) -> Pixels:
    """The ink, resized so that its longest side has `side` pixels."""
    factor = side / max(ink.shape)
    height, width = (max(1, round(factor * n)) for n in ink.shape)
    image = Image.fromarray(np.ascontiguousarray(ink, np.float32))
    return np.array(image.resize((width, height), Image.Resampling.HAMMING)).clip(0, 1)


def _with_usual_strokes(ink: Pixels) -> Pixels:
    """Ink FINE times as large as a digit; strokes thinner or wider than MNIST's are as usual."""
    ink = np.pad(ink / ink.max(), 2 * FINE)  # thin strokes became faint when they were reduced
    width = stroke_width(ink)
    if STROKES[0] <= width <= STROKES[1]:
        return ink
    radius = max(1, round(FINE * abs(USUAL_STROKE - width) / 2))
    change = ndimage.grey_dilation if width < USUAL_STROKE else ndimage.grey_erosion
    changed = change(ink, footprint=disc(radius))
    return changed if changed.max() > 0.5 else ink


def stroke_width(ink: Pixels) -> float:
    """How wide strokes are on average, in pixels of a digit. ink: FINE times as large, with paper
    around it.
    """
    depth = ndimage.distance_transform_edt(ink > 0.5)
    # Across a stroke of width w the mean depth is w / 4.
    return 4 * depth[depth > 0].mean() / FINE if depth.any() else 0.0


def disc(radius: int) -> np.ndarray:
    """The pixels within a radius, bool (2 radius + 1, 2 radius + 1)."""
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    return x * x + y * y <= radius * radius
