"""The same as `tiles.py` with a kernel for each stage, and the field in memory between them.

    field         the random field of a batch, zero in its margin    (b, 2, inner + 20, inner + 20)
    sums          the field convolved with the Gaussian by columns   (b, 2, inner, inner + 20)
    displacement  the sums convolved with it by rows, times alpha    (b, 2, inner, inner)
    out           images, read where displacement and matrices say   (n, side, side)

for b batches, inner = 10 side, y and x on axis 1; weights (21,), matrices (n, 2, 3). All float32, C
order. A thread makes a pair of cells of the field, or one cell of the sums or the displacement, or
one pixel of the images.

These kernels show and test each stage alone. `make bench` compares `tiles.py` with them.
"""

from collections.abc import Sequence

import numpy as np

from deepbig_runtime.gpu import DeviceArray, Launch, cuda
from deform_gpu.field import GRID, KERNEL, MARGIN
from deform_gpu.kernels.cells import draw_cells
from deform_gpu.kernels.tiles import deform_pixel
from deform_gpu.parameters import Deformation

THREADS = 32, 8  # columns and rows per block


@cuda.jit
def fill_field(field, k0, k1, epoch, first_batch):
    column, pair = cuda.grid(2)
    b, padded = cuda.blockIdx.z, field.shape[2]
    if column < padded and 2 * pair < padded:
        y0, x0, y1, x1 = draw_cells(
            pair - MARGIN // 2,
            column - MARGIN,
            padded - 2 * MARGIN,
            np.uint32(first_batch + b),
            epoch,
            k0,
            k1,
        )
        field[b, 0, np.uint32(2 * pair), np.uint32(column)] = y0
        field[b, 1, np.uint32(2 * pair), np.uint32(column)] = x0
        field[b, 0, np.uint32(2 * pair + 1), np.uint32(column)] = y1
        field[b, 1, np.uint32(2 * pair + 1), np.uint32(column)] = x1


@cuda.jit
def convolve_columns(sums, field, weights):
    column, row = cuda.grid(2)
    b = cuda.blockIdx.z
    if column < sums.shape[3] and row < sums.shape[2]:
        for axis in range(2):
            total = np.float32(0)
            for i in range(KERNEL):
                total += weights[i] * field[b, axis, np.uint32(row + i), np.uint32(column)]
            sums[b, axis, np.uint32(row), np.uint32(column)] = total


@cuda.jit
def convolve_rows(displacement, sums, weights, alpha):
    column, row = cuda.grid(2)
    b = cuda.blockIdx.z
    if column < displacement.shape[3] and row < displacement.shape[2]:
        for axis in range(2):
            total = np.float32(0)
            for i in range(KERNEL):
                total += alpha * weights[i] * sums[b, axis, np.uint32(row), np.uint32(column + i)]
            displacement[b, axis, np.uint32(row), np.uint32(column)] = total


@cuda.jit
def warp_images(out, images, matrices, displacement, background, first):
    x, y = cuda.grid(2)
    image, side = cuda.blockIdx.z, images.shape[1]
    if x < side and y < side:
        place = first % (GRID * GRID) + image  # counted from the first batch
        b, place = place // (GRID * GRID), place % (GRID * GRID)
        row, column = np.uint32(place // GRID * side + y), np.uint32(place % GRID * side + x)
        shift_y, shift_x = displacement[b, 0, row, column], displacement[b, 1, row, column]
        value = deform_pixel(images, image, matrices, y, x, shift_y, shift_x, background)
        out[image, np.uint32(y), np.uint32(x)] = value


SIGNATURES = {
    fill_field: "void(float32[:, :, :, ::1], uint32, uint32, uint32, int64)",
    convolve_columns: "void(float32[:, :, :, ::1], float32[:, :, :, ::1], float32[::1])",
    convolve_rows: "void(float32[:, :, :, ::1], float32[:, :, :, ::1], float32[::1], float32)",
    warp_images: "void(float32[:, :, ::1], float32[:, :, ::1], float32[:, :, ::1], "
    "float32[:, :, :, ::1], float32, int64)",
}


def scratch_shapes(b: int, side: int) -> list[tuple[int, ...]]:
    """Shapes of field, sums and displacement of b batches."""
    inner = GRID * side
    padded = inner + KERNEL - 1
    return [(b, 2, padded, padded), (b, 2, inner, padded), (b, 2, inner, inner)]


def _grid(columns: int, rows: int, depth: int) -> tuple[int, int, int]:
    return -(-columns // THREADS[0]), -(-rows // THREADS[1]), depth


def displace(
    scratch: Sequence[DeviceArray],
    weights: DeviceArray,
    deformation: Deformation,
    key: tuple[np.uint32, ...],
    first_batch: int,
) -> list[Launch]:
    """Field, sums and displacement of batches first_batch, ..., at most 65,535. Modifies scratch.

    scratch: three arrays of `scratch_shapes`. key: (k0, k1, epoch), uint32.
    """
    field, sums, displacement = scratch
    b, inner, padded = field.shape[0], displacement.shape[3], field.shape[3]
    alpha = np.float32(deformation.alpha)
    steps = (
        (fill_field, padded, padded // 2, (field, *key, np.int64(first_batch))),
        (convolve_columns, padded, inner, (sums, field, weights)),
        (convolve_rows, inner, inner, (displacement, sums, weights, alpha)),
    )
    return [
        Launch(kernel, _grid(columns, rows, b), THREADS, arguments)
        for kernel, columns, rows, arguments in steps
    ]


def warp(
    out: DeviceArray,
    images: DeviceArray,
    matrices: DeviceArray,
    displacement: DeviceArray,
    deformation: Deformation,
    first: int,
) -> list[Launch]:
    """Deform images at places first, ... of a set, at most 65,535. Modifies out.

    displacement: of all batches that they are of.
    """
    n, side = images.shape[:2]
    background = np.float32(deformation.background)
    arguments = (out, images, matrices, displacement, background, np.int64(first))
    return [Launch(warp_images, _grid(side, side, n), THREADS, arguments)]
