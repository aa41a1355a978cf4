"""Sums of partial results, the second stage of Listings 2 and 3."""

import numpy as np

from deepbig_runtime.gpu import cuda, device_function

ROWS = 16  # rows whose loads are under way together


@device_function
def sum_partials(partial, column):
    """Sum of a column of `partial`, float32, from the first row to the last.

    Departure from the listings, which read one row after another: their loop leaves the GPU
    waiting for memory. The order of the additions is the same; rows past the last one count as
    zero, which changes no sum that began with zero.
    """
    total = np.float32(0)
    values = cuda.local.array(ROWS, np.float32)  # registers
    for first in range(0, partial.shape[0], ROWS):
        for i in range(ROWS):
            row = np.uint32(first + i)
            values[i] = partial[row, column] if row < partial.shape[0] else np.float32(0)
        for i in range(ROWS):
            total += values[i]
    return total
