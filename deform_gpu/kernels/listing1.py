"""The convolution of the elastic field as the papers have it (2010, Listing 1; 2012, Figure 2).

    out[y, x] = alpha * sum_i sum_j field[y + i, x + j] * K[i, j],  i, j = 0 ... 20

field (height + 20, stride), K (21, 32), out (height, stride): float32, C order, whose rows are
strided as the papers say, that is padded to a multiple of 32. height: a multiple of 10.

A block has 21 x 10 threads and computes 10 cells of a column. It loads the kernel and the 30 x 21
cells that it needs into shared memory. Each thread adds up a vertical strip of 21 products; then
the first thread of each row adds up the 21 strips.

Departures from the listing:
- Its shared K has rows of 32 words, of which 21 are used; here they have 21.
- The output's width is not a parameter: the grid is as wide as the output.
"""

import numpy as np

from deepbig_runtime.gpu import DeviceArray, Launch, cuda
from deform_gpu.field import KERNEL

ROWS = 10  # of the output a block
REGION = ROWS + KERNEL - 1  # rows of the field a block


@cuda.jit
def convolve_field(out, field, kernel, alpha):
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, first = cuda.blockIdx.x, ROWS * cuda.blockIdx.y
    K = cuda.shared.array((KERNEL, KERNEL), np.float32)
    R = cuda.shared.array((REGION, KERNEL), np.float32)
    strips = cuda.shared.array((ROWS, KERNEL), np.float32)
    for i in range(y, KERNEL, ROWS):
        K[np.uint32(i), x] = kernel[np.uint32(i), x]
    for i in range(0, REGION, ROWS):
        R[np.uint32(i + y), x] = field[np.uint32(first + i + y), np.uint32(column + x)]
    cuda.syncthreads()
    total = np.float32(0)
    for i in range(KERNEL):
        total += R[np.uint32(y + i), x] * K[np.uint32(i), x]
    strips[y, x] = total
    cuda.syncthreads()
    if x == 0:
        for j in range(1, KERNEL):
            total += strips[y, np.uint32(j)]
        out[np.uint32(first + y), np.uint32(column)] = total * alpha


SIGNATURES = {
    convolve_field: "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32)",
}


def convolve(
    out: DeviceArray, field: DeviceArray, kernel: DeviceArray, alpha: float, width: int
) -> list[Launch]:
    """Convolve one axis of the field of a batch. Modifies the first `width` columns of out."""
    grid = width, out.shape[0] // ROWS
    arguments = (out, field, kernel, np.float32(alpha))
    return [Launch(convolve_field, grid, (KERNEL, ROWS), arguments)]
