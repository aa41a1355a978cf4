"""How a window of images slides and grows: scalar formulas, compiled for the CPU and the GPU.

See docs/online-in-blocks.md. The NumPy program `experiments/benchmarks/window.py` uses them too.
"""

import math
from typing import NamedTuple

import numpy as np

# Tolerance times eta, between the limits below. A GPU's windows are larger, and so is the error
# that a tolerated change leaves.
CPU_ROUNDING, GPU_ROUNDING = 3e-7, np.float32(3e-8)
SMALLEST, LARGEST = np.float32(1e-4), np.float32(0.1)  # tolerance


def larger(a, b):
    """The larger of two numbers; NaN if one is."""
    return b if b > a or math.isnan(b) else a


class Limits(NamedTuple):
    """The bounds within which windows grow.

    smallest, largest: images of a window. few, many: bounds of how often an average image of a
    block goes forward and backward. Below `few` the next block's windows are twice as large, above
    `many` half as large. many >= 2 few, because a window twice as large at most doubles that
    number: so window sizes do not oscillate.
    """

    smallest: int
    largest: int
    few: float
    many: float


def next_window(window, times, images, limits):
    """Images of the next block's windows, after a block whose images went `times` through sweeps.

    times: of all images together. Larger windows need fewer sweeps for a block, but take each image
    through more of them.
    """
    if times > limits.many * images and window > limits.smallest:
        return window // 2
    if times < limits.few * images and window < limits.largest:
        return 2 * window
    return window


def tolerance(eta, rounding):
    """The largest change of a delta that counts as none, as a part of the window's largest delta.

    Relative to the weight change, rounding grows as 1 / eta, and so may the tolerance. rounding:
    CPU_ROUNDING or GPU_ROUNDING.
    """
    return min(max(rounding / eta if eta > 0 else LARGEST, SMALLEST), LARGEST)
