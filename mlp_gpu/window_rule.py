"""How a window of images slides and grows: scalar formulas, compiled for the CPU and the GPU.

See docs/online-in-blocks.md. The NumPy program `experiments/benchmarks/window.py` uses them too.
"""

import math
from typing import NamedTuple

import numpy as np


class Rounding(NamedTuple):
    """How large a change of a delta may be beside the rounding of a float32 loop: see `tolerance`.

    steps: tolerance times eta, between SMALLEST and LARGEST. corrections: at most tolerance times
    eta^2 |h|^3 / sqrt(n). Both float32, found by trying; tests/mlp_gpu/test_input_sizes.py holds
    what they achieve.
    """

    steps: np.float32
    corrections: np.float32


# A GPU's windows are larger, and so is the error that tolerated changes leave together.
CPU_ROUNDING = Rounding(np.float32(3e-7), np.float32(1e-7))
GPU_ROUNDING = Rounding(np.float32(3e-8), np.float32(6e-8))
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


def tolerance(eta, n, square, rounding):
    """The largest change of a delta that counts as none, as a part of the window's largest delta.

    n: numbers h that the layer reads, the bias's 1 included. square: the largest |h|^2 of an image.
    rounding: CPU_ROUNDING or GPU_ROUNDING. eta and square float32.

    A step of a float32 loop changes a weight by eta |h| / sqrt(n) times a delta, and rounds it. As
    a part of the step that rounding is proportional to sqrt(n) / (eta |h|), and so may the
    tolerance be. And a change of image s's delta changes the activations of a later image t by eta
    (h_s . h_t) times as much, at most eta |h|^2 times: this effect, too, must stay below the
    rounding.
    """
    least = min(max(rounding.steps / eta if eta > 0 else LARGEST, SMALLEST), LARGEST)
    effect = eta * eta * square * math.sqrt(square / n)
    if effect * least > rounding.corrections:
        least = rounding.corrections / effect
    return least
