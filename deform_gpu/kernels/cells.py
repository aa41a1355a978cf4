"""The random field, cell by cell, for kernels that need a part of it."""

import numpy as np

from deepbig_runtime.gpu import device_function
from deform_gpu import philox
from deform_gpu.kernels.matrices import philox4x32, uniform


@device_function
def draw_cells(pair, column, inner, batch, epoch, k0, k1):
    """The random field at (2 pair, column) and at (2 pair + 1, column): y, x, y, x, float32.

    Zero outside the inner x inner cells. As `deform_gpu.field.fill_field` draws them.
    """
    y0, x0, y1, x1 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    if pair >= 0 and 2 * pair < inner and column >= 0 and column < inner:
        index, purpose = np.uint32(pair * inner + column), np.uint32(philox.PURPOSE_FIELD)
        w0, w1, w2, w3 = philox4x32(index, batch, epoch, purpose, k0, k1)
        y0, x0, y1, x1 = uniform(w0), uniform(w1), uniform(w2), uniform(w3)
    return y0, x0, y1, x1
