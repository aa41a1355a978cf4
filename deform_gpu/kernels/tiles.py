"""Field, convolution and interpolation in one kernel: images in, deformed images out.

For each pixel of the image at place p of a set (see `deform_gpu.warp` and `deform_gpu.field`):

    shift  = alpha * Gaussian * random field of batch p // 100, at the pixel's cell of the grid
    source = pixel + (M^-1 - 1) (pixel - centre) - M^-1 t + shift
    out    = image at source, bilinear

images and out (n, side, side), matrices (n, 2, 3) and weights (21,): float32, C order.

A block makes a tile of 29 x 29 pixels of an image, the whole image if it has the papers' size. It
draws 49 columns and 52 rows, whole pairs of rows, of the random field. Cells that neighbouring
tiles need too are drawn again, which takes less time than storing and reading the field. Then the
block convolves down the columns, and along the rows where it needs the shift of a pixel. Only
images and matrices are in global memory; everything else stays in shared memory and registers.

Not in the papers, which convolved on the GPU (`listing1.py`) and did everything else on the host.
They name "the hardware's interpolation capabilities", presumably textures. These would round
positions to 1/256 of a pixel, and numba has none.
"""

import numpy as np

from deepbig_runtime.gpu import WARP, DeviceArray, Launch, cuda, device_function
from deform_gpu import warp
from deform_gpu.field import GRID, KERNEL, MARGIN
from deform_gpu.kernels.cells import draw_cells
from deform_gpu.parameters import Deformation

THREADS = 256
TILE = 29  # width and height of a tile, pixels
REGION = TILE + KERNEL - 1  # columns of the field
STRIP = 6  # rows that a thread convolves at a time, down a column
STRIPS = 5
ROWS = STRIPS * STRIP  # that a tile convolves, one more than it needs
STRIP_CELLS = STRIP + KERNEL - 1  # cells of the field that a strip needs
PAIRS = 26  # of rows of the field: enough whether the first row begins a pair or ends one
FIELD_ROWS = 2 * PAIRS

offset = device_function(warp.offset_formula)
bilinear = device_function(warp.bilinear_formula)


@device_function
def deform_pixel(images, i, matrices, y, x, shift_y, shift_x, background):
    """Image i deformed, at a pixel. shift_y, shift_x: displacement."""
    centre = np.float32(images.shape[1] - 1) / np.float32(2)
    dy, dx = np.float32(y) - centre, np.float32(x) - centre
    yy, yx, y1 = matrices[i, 0, 0], matrices[i, 0, 1], matrices[i, 0, 2]
    xy, xx, x1 = matrices[i, 1, 0], matrices[i, 1, 1], matrices[i, 1, 2]
    down, right = offset(yy, yx, y1, xy, xx, x1, dy, dx, shift_y, shift_x)
    return bilinear(images[i], y, x, down, right, background)


@cuda.jit
def deform_tiles(out, images, matrices, weights, alpha, background, k0, k1, epoch, first):
    thread, image = cuda.threadIdx.x, cuda.blockIdx.x
    top, left = TILE * cuda.blockIdx.y, TILE * cuda.blockIdx.z
    side = images.shape[1]
    inner = GRID * side
    batch, place = (first + image) // (GRID * GRID), (first + image) % (GRID * GRID)
    first_row, first_column = place // GRID * side + top, place % GRID * side + left

    field = cuda.shared.array((2, FIELD_ROWS, REGION), np.float32)
    sums = cuda.shared.array((2, ROWS, REGION), np.float32)

    # Row first_row - MARGIN of the field may be the second of its pair.
    first_pair, odd = (first_row - MARGIN) >> 1, first_row & 1
    for i in range(thread, PAIRS * REGION, THREADS):
        pair, column = i // REGION, i % REGION
        y0, x0, y1, x1 = draw_cells(
            first_pair + pair,
            first_column - MARGIN + column,
            inner,
            np.uint32(batch),
            epoch,
            k0,
            k1,
        )
        field[0, np.uint32(2 * pair), np.uint32(column)] = y0
        field[1, np.uint32(2 * pair), np.uint32(column)] = x0
        field[0, np.uint32(2 * pair + 1), np.uint32(column)] = y1
        field[1, np.uint32(2 * pair + 1), np.uint32(column)] = x1
    cuda.syncthreads()

    w = cuda.local.array(KERNEL, np.float32)  # registers, as `cells`
    for i in range(KERNEL):
        w[i] = weights[i]
    for i in range(thread, 2 * STRIPS * REGION, THREADS):
        axis, strip = np.uint32(i // REGION % 2), i // (2 * REGION)
        column = np.uint32(i % REGION)  # type: ignore[assignment]  # numba allows it
        cells = cuda.local.array(STRIP_CELLS, np.float32)
        for k in range(STRIP_CELLS):
            cells[k] = field[axis, np.uint32(odd + strip * STRIP + k), column]
        for row in range(STRIP):
            total = np.float32(0)
            for k in range(KERNEL):
                total += w[k] * cells[row + k]
            sums[axis, np.uint32(strip * STRIP + row), column] = total
    cuda.syncthreads()

    for i in range(KERNEL):
        w[i] = alpha * weights[i]
    column = thread % WARP
    x = left + column
    if column < TILE and x < side:
        for row in range(thread // WARP, min(TILE, side - top), THREADS // WARP):
            y = top + row
            shift_y, shift_x = np.float32(0), np.float32(0)
            for i in range(KERNEL):
                shift_y += w[i] * sums[0, np.uint32(row), np.uint32(column + i)]
                shift_x += w[i] * sums[1, np.uint32(row), np.uint32(column + i)]
            value = deform_pixel(images, image, matrices, y, x, shift_y, shift_x, background)
            out[image, np.uint32(y), np.uint32(x)] = value


SIGNATURES = {
    deform_tiles: "void(float32[:, :, ::1], float32[:, :, ::1], float32[:, :, ::1], float32[::1], "
    "float32, float32, uint32, uint32, uint32, int64)",
}


def deform(
    out: DeviceArray,
    images: DeviceArray,
    matrices: DeviceArray,
    weights: DeviceArray,
    deformation: Deformation,
    key: tuple[np.uint32, ...],
    first: int,
) -> list[Launch]:
    """Deform images at places first, ... of a set. key: (k0, k1, epoch), uint32. Modifies out."""
    n, side = images.shape[:2]
    tiles_a_side = -(-side // TILE)
    alpha, background = np.float32(deformation.alpha), np.float32(deformation.background)
    arguments = (out, images, matrices, weights, alpha, background, *key, np.int64(first))
    return [Launch(deform_tiles, (n, tiles_a_side, tiles_a_side), THREADS, arguments)]
