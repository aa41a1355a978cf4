"""Products on tensor cores, for compute capability 8.0 and later.

The same sums as in `products`; and the update of `blocks`. A block of 128 threads takes 64 x 64
results, a warp 32 x 32 of them: two by four tiles of 16 x 8. Of G, the scalar products, a block
takes 32 x 32: each of its warps sums every fourth 32 inputs, and the block adds up the four sums.
So G lies in the first part of `partial` as a whole, from its column `columns` on, and it is zero
for s >= t, where nothing is to be corrected.

Each factor is split into the nearest TF32 number and the rest, x = x_large + x_small. The rest has
12 bits, of which the cores drop the last: 2**-23 of x. A product of two is then
a_small b_large + a_large b_small + a_large b_large; the fourth term is below float32's rounding.
Tensor cores cut off the bits of a sum that do not fit, instead of rounding. So they add up only
DEPTH inputs, from zero, and the last term apart from the two small ones. Additions
in float32, which round, add these two sums to the result.

While the warps multiply, the next numbers of both matrices are copied into the other half of shared
memory, 16 bytes at a time. Rows of shared memory are 36 or 72 words apart, so that the threads of a
warp, which read 8 rows of 4 words or 4 rows of 8 words, find them in 32 different banks.
"""

import numpy as np

from deepbig_runtime.gpu import WARP, DeviceArray, Launch, cuda
from deepbig_runtime.ptx import (
    COPY_WORDS,
    end_group,
    multiply_add,
    start_copy,
    to_tf32,
    wait_for_groups,
)
from mlp_gpu.window import blocks, products
from mlp_gpu.window.products import (
    COLUMNS,
    DEPTH,
    THREADS,
    TILE_IMAGES,
    WARPS,
    images_of,
    most_images,
)
from mlp_gpu.window.progress import BLOCK, FIRST

ROW_STRIDE = DEPTH + 4  # words between rows of DEPTH numbers
COLUMN_STRIDE = COLUMNS + 8  # words between rows of COLUMNS numbers
HALF = COLUMNS * ROW_STRIDE  # words of shared memory for either factor, by rows or by columns
BOTH = 2 * HALF
M_TILES, N_TILES = 2, 4  # of a warp, at most: 16 rows, 8 columns each
SIDE = 16 * M_TILES  # of a warp's results
SLICE = SIDE * ROW_STRIDE  # words of shared memory
STEP = 8  # inputs of one product of a tensor core
ALIGNMENT = 4 * COPY_WORDS  # bytes
NO_RING = -1


@cuda.jit(device=True, inline="always")
def copy_rows(tile, row0, M, n_rows, first, end, ring, i0, is_inside, thread, n_threads):
    """tile from its row row0 on = rows first, first + 1, ... of M, n_rows, from column i0 on.

    Zero from row `end` on, and if not is_inside. ring: M has row t in its row t & ring.
    """
    column, row = thread % (DEPTH // COPY_WORDS) * COPY_WORDS, thread // (DEPTH // COPY_WORDS)
    for _ in range(n_rows * DEPTH // COPY_WORDS // n_threads):
        is_there = first + row < end and is_inside
        offset = ((first + row) & ring) * M.shape[1] + i0 + column
        place = (row0 + row) * ROW_STRIDE + column
        start_copy(tile, np.uint64(place), M, np.uint64(offset), is_there)
        row += n_threads * COPY_WORDS // DEPTH


@cuda.jit(device=True, inline="always")
def copy_columns(tile, start, M, j0, i0, stop, thread, n_threads):
    """tile from `start` on = columns j0, j0 + 1, ... of M, COLUMNS of them, rows i0, i0 + 1, ...

    Zero past the last column and from row `stop` on.
    """
    column, row = thread % (COLUMNS // COPY_WORDS) * COPY_WORDS, thread // (COLUMNS // COPY_WORDS)
    for _ in range(COLUMNS * DEPTH // COPY_WORDS // n_threads):
        is_there = j0 + column < M.shape[1] and i0 + row < stop
        offset = (i0 + row) * M.shape[1] + j0 + column
        place = start + row * COLUMN_STRIDE + column
        start_copy(tile, np.uint64(place), M, np.uint64(offset), is_there)
        row += n_threads * COPY_WORDS // COLUMNS


@cuda.jit(device=True, inline="always")
def multiply(z, a, a_start, a_step, a_width, b, b_start, b_step, b_width, m_tiles, n_tiles, thread):
    """z += a b, for 16 m_tiles rows of a and 8 n_tiles columns of b, over DEPTH inputs.

    Input i of row j of a is at word a_start + i a_step + j a_width; so are b's columns.
    """
    g, t = thread % 32 // 4, thread % 4
    a_large = cuda.local.array(4, np.float32)
    a_small = cuda.local.array(4, np.float32)
    b_large = cuda.local.array((N_TILES, 2), np.float32)
    b_small = cuda.local.array((N_TILES, 2), np.float32)
    large = cuda.local.array((M_TILES, N_TILES, 4), np.float32)
    small = cuda.local.array((M_TILES, N_TILES, 4), np.float32)
    clear(large, m_tiles, n_tiles)
    clear(small, m_tiles, n_tiles)
    a_start += t * a_step + g * a_width
    b_start += t * b_step + g * b_width
    for i0 in range(0, DEPTH, STEP):
        for n in range(n_tiles):
            for h in range(2):
                value = b[np.uint64(b_start + ((i0 + 4 * h) * b_step + 8 * n * b_width))]
                b_large[n, h] = to_tf32(value)
                b_small[n, h] = value - b_large[n, h]
        for m in range(m_tiles):
            for h in range(4):
                row, i = 16 * m + 8 * (h % 2), i0 + 4 * (h // 2)
                value = a[np.uint64(a_start + (i * a_step + row * a_width))]
                a_large[h] = to_tf32(value)
                a_small[h] = value - a_large[h]
            for n in range(n_tiles):
                d = small[m, n, 0], small[m, n, 1], small[m, n, 2], small[m, n, 3]
                d = multiply_add(
                    a_small[0], a_small[1], a_small[2], a_small[3],
                    b_large[n, 0], b_large[n, 1], d[0], d[1], d[2], d[3],
                )  # fmt: skip
                d = multiply_add(
                    a_large[0], a_large[1], a_large[2], a_large[3],
                    b_small[n, 0], b_small[n, 1], d[0], d[1], d[2], d[3],
                )  # fmt: skip
                small[m, n, 0], small[m, n, 1], small[m, n, 2], small[m, n, 3] = d
                d = large[m, n, 0], large[m, n, 1], large[m, n, 2], large[m, n, 3]
                d = multiply_add(
                    a_large[0], a_large[1], a_large[2], a_large[3],
                    b_large[n, 0], b_large[n, 1], d[0], d[1], d[2], d[3],
                )  # fmt: skip
                large[m, n, 0], large[m, n, 1], large[m, n, 2], large[m, n, 3] = d
    for m in range(m_tiles):
        for n in range(n_tiles):
            for c in range(4):
                z[m, n, c] += large[m, n, c] + small[m, n, c]


@cuda.jit(device=True, inline="always")
def clear(z, m_tiles, n_tiles):
    for m in range(m_tiles):
        for n in range(n_tiles):
            for c in range(4):
                z[m, n, c] = 0


@cuda.jit(device=True, inline="always")
def row_of(m, c, thread):
    """The row of a thread's number z[m, n, c], among its warp's."""
    return 16 * m + thread % 32 // 4 + 8 * (c // 2)


@cuda.jit(device=True, inline="always")
def column_of(n, c, thread):
    return 8 * n + 2 * (thread % 4) + c % 2


@cuda.jit(device=True, inline="always")
def copy_inputs(a, b, half, A, B, first, end, j0, columns, i0, stop, by_rows, thread):
    """The next DEPTH inputs of both matrices into a half of shared memory: a group of copies."""
    copy_rows(
        a, half * COLUMNS, A, TILE_IMAGES, first, end, NO_RING, i0, i0 < stop, thread, THREADS
    )
    if by_rows:
        row0 = half * COLUMNS
        copy_rows(b, row0, B, COLUMNS, j0, columns, NO_RING, i0, i0 < stop, thread, THREADS)
    else:
        copy_columns(b, half * HALF, B, j0, i0, stop, thread, THREADS)
    end_group()


@cuda.jit(device=True, inline="always")
def sum_part(partial, A, W, first, end, split, depth, transposed, a, b, z):
    """A part of A W for the block's images and columns; `transposed`: of A W^T."""
    thread = cuda.threadIdx.x
    inner, columns = (W.shape[1], W.shape[0]) if transposed else W.shape
    j0 = cuda.blockIdx.x * COLUMNS
    step, width = 1 if transposed else COLUMN_STRIDE, ROW_STRIDE if transposed else 1
    row, column = thread // (2 * WARP) * SIDE, thread // WARP % 2 * SIDE  # of the warp
    begin, stop = split * depth, min((split + 1) * depth, inner)
    half = 0  # of shared memory
    copy_inputs(a, b, half, A, W, first, end, j0, columns, begin, stop, transposed, thread)
    for i0 in range(begin, stop, DEPTH):
        wait_for_groups(0)
        cuda.syncthreads()  # all copies are there, and all warps are done with the other half
        other = 1 - half
        i1 = i0 + DEPTH
        copy_inputs(a, b, other, A, W, first, end, j0, columns, i1, stop, transposed, thread)
        a_start, b_start = half * HALF + row * ROW_STRIDE, half * HALF + column * width
        stride = ROW_STRIDE
        multiply(z, a, a_start, 1, stride, b, b_start, step, width, M_TILES, N_TILES, thread)
        half = other
    wait_for_groups(0)  # the last copies, of zeros, must not arrive after the block has ended
    for m in range(M_TILES):
        for n in range(N_TILES):
            for c in range(4):
                t = first + row + row_of(m, c, thread)
                j = j0 + column + column_of(n, c, thread)
                if t < end and j < columns:
                    ring_row = np.uint64(t & (partial.shape[1] - 1))
                    partial[np.uint64(split), ring_row, np.uint64(j)] = z[m, n, c]


@cuda.jit(device=True, inline="always")
def sum_gram(partial, A, columns, first, end, a, b, z):
    """G of the block's 32 images t and 32 images s; zero for s >= t."""
    thread = cuda.threadIdx.x
    warp, lane, stride = thread // WARP, thread % WARP, ROW_STRIDE
    number = cuda.blockIdx.x - -(-columns // COLUMNS)  # among the blocks of scalar products
    first += number % 2 * SIDE
    s0 = number // 2 * SIDE
    end = min(first + SIDE, end)
    inner = A.shape[1] if s0 < end - 1 else 0
    start = warp * SLICE
    for i0 in range(warp * DEPTH, inner + warp * DEPTH, WARPS * DEPTH):
        copy_rows(a, warp * SIDE, A, SIDE, first, end, NO_RING, i0, i0 < inner, lane, WARP)
        copy_rows(b, warp * SIDE, A, SIDE, s0, end, NO_RING, i0, i0 < inner, lane, WARP)
        end_group()
        wait_for_groups(0)
        cuda.syncthreads()
        multiply(z, a, start, 1, stride, b, start, 1, stride, M_TILES, N_TILES, thread)
        cuda.syncthreads()
    for m in range(M_TILES):
        for n in range(N_TILES):
            for c in range(4):
                row = warp * SIDE + row_of(m, c, thread)
                a[np.uint64(row * SIDE + column_of(n, c, thread))] = z[m, n, c]
    cuda.syncthreads()
    for place in range(thread, SIDE * SIDE, THREADS):
        t, s = first + place // SIDE, s0 + place % SIDE
        total = a[np.uint64(place)]
        for other in range(1, WARPS):
            total += a[np.uint64(place + other * (SIDE * SIDE))]
        if t < end:
            ring_row = np.uint64(t & (partial.shape[1] - 1))
            partial[0, ring_row, np.uint64(columns + s)] = total if s < t else np.float32(0)


@cuda.jit(device=True, inline="always")
def sum_products(partial, A, W, first, end, depth, transposed):
    """A part of A W, or G, for the block's images; `transposed`: of A W^T."""
    a = cuda.shared.array(BOTH, np.float32, alignment=ALIGNMENT)
    b = cuda.shared.array(BOTH, np.float32, alignment=ALIGNMENT)
    z = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    if first >= end:
        return
    clear(z, M_TILES, N_TILES)
    columns = W.shape[0] if transposed else W.shape[1]
    if cuda.blockIdx.x * COLUMNS < columns:
        sum_part(partial, A, W, first, end, cuda.blockIdx.y, depth, transposed, a, b, z)
    elif cuda.blockIdx.y == 0:
        sum_gram(partial, A, columns, first, end, a, b, z)


@cuda.jit
def forward_tensor_products(partial, progress, H, W, depth, whole):
    first, end = images_of(progress, whole, cuda.blockIdx.z, TILE_IMAGES)
    sum_products(partial, H, W, first, end, depth, False)


@cuda.jit
def backward_tensor_products(partial, progress, D, W, depth):
    first, end = images_of(progress, False, cuda.blockIdx.z, TILE_IMAGES)
    sum_products(partial, D, W, first, end, depth, True)


@cuda.jit
def update_tensor_products(W, progress, H, D, eta, n_in, n_out):
    thread = cuda.threadIdx.x
    row0, column0 = cuda.blockIdx.y * COLUMNS, cuda.blockIdx.x * COLUMNS
    own_row, own_column = thread // (2 * WARP) * SIDE, thread // WARP % 2 * SIDE  # of the warp
    n, rate, step = progress[BLOCK], eta[0], COLUMN_STRIDE
    h = cuda.shared.array(BOTH, np.float32, alignment=ALIGNMENT)
    d = cuda.shared.array(BOTH, np.float32, alignment=ALIGNMENT)
    z = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    w = cuda.local.array((M_TILES, N_TILES, 4), np.float32)
    if n == 0 or progress[FIRST] < n:
        return
    clear(z, M_TILES, N_TILES)
    half = 0  # of shared memory
    copy_columns(h, 0, H, row0, 0, n, thread, THREADS)
    copy_columns(d, 0, D, column0, 0, n, thread, THREADS)
    end_group()
    for t0 in range(0, n, DEPTH):
        wait_for_groups(0)
        cuda.syncthreads()
        other, t1 = 1 - half, t0 + DEPTH
        copy_columns(h, other * HALF, H, row0, t1, n, thread, THREADS)
        copy_columns(d, other * HALF, D, column0, t1, n, thread, THREADS)
        end_group()
        h_start, d_start = half * HALF + own_row, half * HALF + own_column
        multiply(z, h, h_start, step, 1, d, d_start, step, 1, M_TILES, N_TILES, thread)
        half = other
    wait_for_groups(0)  # as in sum_part
    row0 += own_row
    column0 += own_column
    for m in range(M_TILES):  # all loads before the first store, so that they are under way at once
        for tile in range(N_TILES):
            for c in range(4):
                row, column = row0 + row_of(m, c, thread), column0 + column_of(tile, c, thread)
                if row <= n_in and column < n_out:
                    w[m, tile, c] = W[np.uint64(row), np.uint64(column)]
    for m in range(M_TILES):
        for tile in range(N_TILES):
            for c in range(4):
                row, column = row0 + row_of(m, c, thread), column0 + column_of(tile, c, thread)
                if row <= n_in and column < n_out:
                    W[np.uint64(row), np.uint64(column)] = w[m, tile, c] - rate * z[m, tile, c]


LOWEST_CC = 8, 0  # compute capability
SIGNATURES = {
    forward_tensor_products: products.SIGNATURES[products.forward_products],
    backward_tensor_products: products.SIGNATURES[products.backward_products],
    update_tensor_products: blocks.SIGNATURES[blocks.update_weights_of_block],
}


def forward(
    partial: DeviceArray,
    progress: DeviceArray,
    H: DeviceArray,
    W: DeviceArray,
    whole: bool = False,
) -> list[Launch]:
    """As `products.forward`."""
    (launch,) = products.forward(partial, progress, H, W, whole)
    grid = _grid(partial, W.shape[1], most_images(H.shape[0], whole))
    return [Launch(forward_tensor_products, grid, THREADS, launch.arguments)]


def backward(
    partial: DeviceArray, progress: DeviceArray, D: DeviceArray, W: DeviceArray
) -> list[Launch]:
    """As `products.backward`."""
    (launch,) = products.backward(partial, progress, D, W)
    grid = _grid(partial, W.shape[0], most_images(D.shape[0]))
    return [Launch(backward_tensor_products, grid, THREADS, launch.arguments)]


def _grid(partial: DeviceArray, columns: int, n_images: int) -> tuple[int, int, int]:
    splits, _, width = partial.shape
    grams = (width - columns) // SIDE * (TILE_IMAGES // SIDE)
    return grams + -(-columns // COLUMNS), splits, -(-n_images // TILE_IMAGES)


def update(
    W: DeviceArray,
    progress: DeviceArray,
    H: DeviceArray,
    D: DeviceArray,
    eta: DeviceArray,
    n_in: int,
    n_out: int,
) -> list[Launch]:
    """As `blocks.update`."""
    (launch,) = blocks.update(W, progress, H, D, eta, n_in, n_out)
    return [Launch(update_tensor_products, launch.grid, THREADS, launch.arguments)]
