"""Sums of partial results, the second stage of Listings 2 and 3."""

import numpy as np

from mlp_gpu.gpu import cuda

ROWS = 16  # rows whose loads are under way together


@cuda.jit(device=True, inline="always")
def sum_partials(partial, column):
    """Sum of a column of `partial`, float32, from the first row to the last.

    Departure from the listings, which read one row after another: their loop leaves the GPU
    waiting for memory. The order of the additions is the same.
    """
    total = np.float32(0)
    whole = partial.shape[0] // ROWS * ROWS
    for first in range(0, whole, ROWS):
        for i in range(ROWS):
            total += partial[np.uint32(first + i), column]
    for row in range(whole, partial.shape[0]):
        total += partial[np.uint32(row), column]
    return total
