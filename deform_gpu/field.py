"""The elastic displacement field: a random field, smoothed by a Gaussian, times alpha.

2012 section 4, Figure 2 and Listing 1.1; the method is that of Simard et al. 2003. A batch of 100
images is a grid of 10x10 images, so one field serves a batch: of 290x290 cells, where images have
the papers' 29x29 pixels. Its random values are zero-padded to 310x310, "avoiding margin effects" of
the 21x21 kernel. Below, `inner` is 10 times the side of an image.
"""

import math

import numpy as np

from deepbig_runtime.jit import njit
from deform_gpu.philox import PURPOSE_FIELD, philox4x32, uniform

GRID = 10  # a batch is GRID x GRID images
KERNEL = 21  # cells the Gaussian kernel is wide and high
MARGIN = KERNEL // 2


@njit(nogil=True)
def fill_field(field, top, k0, k1, epoch, batch):
    """Draw the random field of a batch, or some rows of it: uniform in [-1, 1), zero in the margin.

    Guess: the papers say only "random".

    field: (2, height, inner + 20) float32, axis 0 for y and x, modified. Its rows are top - 10,
    top - 9, ... of the inner x inner cells. k0, k1, epoch, batch: uint32.
    """
    # One Philox call gives the y and the x of a cell in an even row and of the cell below it.
    purpose = np.uint32(PURPOSE_FIELD)
    height, inner = field.shape[1], field.shape[2] - 2 * MARGIN
    field[:, :, :MARGIN] = 0
    field[:, :, MARGIN + inner :] = 0
    before, after = max(0, MARGIN - top), max(0, top + height - MARGIN - inner)
    field[:, :before] = 0
    field[:, height - after :] = 0
    cells = slice(MARGIN, MARGIN + inner)
    unused = np.empty(inner, np.float32)
    for pair in range(inner // 2):
        above = 2 * pair - top + MARGIN
        below = above + 1
        if below < 0 or above >= height:
            continue
        above_y = field[0, above, cells] if above >= 0 else unused
        above_x = field[1, above, cells] if above >= 0 else unused
        below_y = field[0, below, cells] if below < height else unused
        below_x = field[1, below, cells] if below < height else unused
        for column in range(inner):
            index = np.uint32(pair * inner + column)
            w0, w1, w2, w3 = philox4x32(index, batch, epoch, purpose, k0, k1)
            above_y[column] = uniform(w0)
            above_x[column] = uniform(w1)
            below_y[column] = uniform(w2)
            below_x[column] = uniform(w3)


def gaussian_weights(sigma: float) -> np.ndarray:
    """The Gaussian in one dimension, (21,) float32; the 21x21 kernel is its outer product.

    Guess: sampled at the cell centres, normalised to sum 1. sigma: cells, that is pixels. It is cut
    off at 10 cells from the centre, so a sigma above some 6 changes little.
    """
    # Plain floats become infinite for a tiny sigma without a warning, and exp(-inf) is 0.
    steps = [(i - MARGIN) / sigma for i in range(KERNEL)]
    weights = np.array([math.exp(-0.5 * step * step) for step in steps])
    return (weights / weights.sum()).astype(np.float32)


@njit(nogil=True, fastmath={"contract"})
def convolve_field(out, field, weights, alpha):
    """Listing 1.1 on a CPU: out = alpha * (field convolved with the outer product of weights).

    The kernel is separable, so 21 + 21 terms a cell do the work of 21x21.

    out: (height, width) float32, modified. field: (height + k - 1, width + k - 1) float32.
    weights: (k,) float32. alpha: float32, pixels.
    """
    taps = len(weights)
    height, width = out.shape
    sums = np.empty(field.shape[1], np.float32)
    for row in range(height):
        sums[:] = 0
        for i in range(taps):
            weight = weights[i]
            cells = field[row + i]
            for column in range(len(cells)):
                sums[column] += weight * cells[column]
        result = out[row]
        result[:] = 0
        for j in range(taps):
            weight = alpha * weights[j]
            shifted = sums[j : j + width]
            for column in range(width):
                result[column] += weight * shifted[column]
