"""Products on tensor cores, for compute capability 8.0 and later.

The same sums over the same parts as in `products`, with as many threads, images and columns a
block; and the update of `blocks`, in blocks of 128 threads for 32 x 64 weights.

Each factor is split into the nearest TF32 number and the rest, x = x_large + x_small. The rest has
12 bits, of which the cores drop the last: 2**-23 of x. A product of two is then
a_small b_large + a_large b_small + a_large b_large; the fourth term is below float32's rounding.
Tensor cores cut off the bits of a sum that do not fit, instead of rounding. So they add up only
DEPTH inputs, from zero, and the last term apart from the two small ones. Additions
in float32, which round, add these two sums to the result.

A warp takes all 32 images and 16 columns: two by two tiles of 16 x 8. While the warps multiply, the
next numbers of both matrices are copied into the other half of shared memory, 16 bytes at a time.
Rows of shared memory are 36, 40 or 72 words apart, so that the threads of a warp, which read 8 rows
of 4 words or 4 rows of 8 words, find them in 32 different banks.
"""

from functools import partial

import numpy as np

from deepbig_runtime.gpu import cuda
from deepbig_runtime.ptx import (
    COPY_WORDS,
    end_group,
    multiply_add,
    start_copy,
    to_tf32,
    wait_for_groups,
)
from mlp_gpu.window import blocks, products
from mlp_gpu.window.products import COLUMNS, DEPTH, IMAGES, THREADS, images_of
from mlp_gpu.window.progress import BLOCK, FIRST

ROW_STRIDE = DEPTH + 4  # words between rows of DEPTH numbers
COLUMN_STRIDE = COLUMNS + 8  # words between rows of COLUMNS numbers
A_WORDS, B_WORDS = IMAGES * ROW_STRIDE, max(COLUMNS * ROW_STRIDE, DEPTH * COLUMN_STRIDE)
H_WORDS, D_WORDS = DEPTH * (IMAGES + 8), DEPTH * COLUMN_STRIDE
BOTH_A, BOTH_B, BOTH_H, BOTH_D = (2 * n for n in (A_WORDS, B_WORDS, H_WORDS, D_WORDS))
M_TILES, N_TILES = 2, 2  # of a warp: 16 images, 8 columns each
STEP = 8  # inputs of one product of a tensor core
ALIGNMENT = 4 * COPY_WORDS  # bytes


@cuda.jit(device=True, inline="always")
def copy_rows(tile, start, M, n_tile, first, end, i0, stop, thread):
    """tile from `start` on = rows first, first + 1, ... of M from column i0 on.

    Zero from row `end` and from column `stop` on.
    """
    column, row = thread % (DEPTH // COPY_WORDS) * COPY_WORDS, thread // (DEPTH // COPY_WORDS)
    for _ in range(n_tile * DEPTH // COPY_WORDS // THREADS):
        is_there = first + row < end and i0 < stop
        offset = (first + row) * M.shape[1] + i0 + column if is_there else 0
        place = start + row * ROW_STRIDE + column
        start_copy(tile, np.uint64(place), M, np.uint64(offset), is_there)
        row += THREADS * COPY_WORDS // DEPTH


@cuda.jit(device=True, inline="always")
def copy_columns(tile, start, M, n_tile, j0, i0, stop, thread):
    """tile from `start` on = columns j0, j0 + 1, ... of M, n_tile of them, rows i0, i0 + 1, ...

    Zero past the last column and from row `stop` on.
    """
    column, row = thread % (n_tile // COPY_WORDS) * COPY_WORDS, thread // (n_tile // COPY_WORDS)
    for _ in range(n_tile * DEPTH // COPY_WORDS // THREADS):
        is_there = j0 + column < M.shape[1] and i0 + row < stop
        offset = (i0 + row) * M.shape[1] + j0 + column if is_there else 0
        place = start + row * (n_tile + 8) + column
        start_copy(tile, np.uint64(place), M, np.uint64(offset), is_there)
        row += THREADS * COPY_WORDS // n_tile


@cuda.jit(device=True, inline="always")
def multiply(z, a, a_start, a_step, a_width, b, b_start, b_step, b_width, thread):
    """z += a b, for the warp's rows of a and columns of b, over DEPTH inputs.

    Input i of row j of a is at word a_start + i a_step + j a_width; so are b's columns.
    """
    g, t = thread % 32 // 4, thread % 4
    a_large = cuda.local.array(4, np.float32)
    a_small = cuda.local.array(4, np.float32)
    b_large = cuda.local.array((N_TILES, 2), np.float32)
    b_small = cuda.local.array((N_TILES, 2), np.float32)
    large = cuda.local.array((M_TILES, N_TILES, 4), np.float32)
    small = cuda.local.array((M_TILES, N_TILES, 4), np.float32)
    clear(large)
    clear(small)
    a_start += t * a_step + g * a_width
    b_start += t * b_step + (thread // 32 * 8 * N_TILES + g) * b_width
    for i0 in range(0, DEPTH, STEP):
        for n in range(N_TILES):
            for h in range(2):
                value = b[np.uint64(b_start + ((i0 + 4 * h) * b_step + 8 * n * b_width))]
                b_large[n, h] = to_tf32(value)
                b_small[n, h] = value - b_large[n, h]
        for m in range(M_TILES):
            for h in range(4):
                row, i = 16 * m + 8 * (h % 2), i0 + 4 * (h // 2)
                value = a[np.uint64(a_start + (i * a_step + row * a_width))]
                a_large[h] = to_tf32(value)
                a_small[h] = value - a_large[h]
            for n in range(N_TILES):
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
    for m in range(M_TILES):
        for n in range(N_TILES):
            for c in range(4):
                z[m, n, c] += large[m, n, c] + small[m, n, c]


@cuda.jit(device=True, inline="always")
def clear(z):
    for m in range(M_TILES):
        for n in range(N_TILES):
            for c in range(4):
                z[m, n, c] = 0


@cuda.jit(device=True, inline="always")
def row_of(m, c, thread):
    """The row of a thread's number z[m, n, c], in the block's result."""
    return 16 * m + thread % 32 // 4 + 8 * (c // 2)


@cuda.jit(device=True, inline="always")
def column_of(n, c, thread):
    return (thread // 32 * N_TILES + n) * 8 + 2 * (thread % 4) + c % 2


@cuda.jit(device=True, inline="always")
def store(partial, z, first, end, j0, offset, n_columns, thread):
    """Columns j0, j0 + 1, ... of n_columns, which `partial` has from `offset` on."""
    for m in range(M_TILES):
        for n in range(N_TILES):
            for c in range(4):
                image, column = first + row_of(m, c, thread), j0 + column_of(n, c, thread)
                if image < end and column < n_columns:
                    row = np.uint64(image & (partial.shape[0] - 1))
                    partial[row, np.uint64(offset + column)] = z[m, n, c]


@cuda.jit(device=True, inline="always")
def copy_inputs(a, b, half, A, B, first, end, j0, columns, i0, stop, by_rows, thread):
    """The next DEPTH inputs of both matrices into a half of shared memory: a group of copies."""
    copy_rows(a, half * A_WORDS, A, IMAGES, first, end, i0, stop, thread)
    if by_rows:
        copy_rows(b, half * B_WORDS, B, COLUMNS, j0, columns, i0, stop, thread)
    else:
        copy_columns(b, half * B_WORDS, B, COLUMNS, j0, i0, stop, thread)
    end_group()


@cuda.jit(device=True, inline="always")
def sum_inputs(z, a, b, A, B, first, end, j0, columns, begin, stop, by_rows, thread):
    """z += rows of A times columns of B, or if by_rows its rows, of inputs from `begin` on."""
    step, width = 1 if by_rows else COLUMN_STRIDE, ROW_STRIDE if by_rows else 1
    half = 0  # of shared memory
    copy_inputs(a, b, half, A, B, first, end, j0, columns, begin, stop, by_rows, thread)
    for i0 in range(begin, stop, DEPTH):
        wait_for_groups(0)
        cuda.syncthreads()  # all copies are there, and all warps are done with the other half
        other = 1 - half
        copy_inputs(a, b, other, A, B, first, end, j0, columns, i0 + DEPTH, stop, by_rows, thread)
        multiply(z, a, half * A_WORDS, 1, ROW_STRIDE, b, half * B_WORDS, step, width, thread)
        half = other
    wait_for_groups(0)  # the last copies, of zeros, must not arrive after the block has ended


@cuda.jit(device=True, inline="always")
def sum_part(partial, A, W, first, end, split, depth, transposed):
    """A part of A (W | A^T) for the block's images and columns; `transposed`: of A (W^T | A^T)."""
    thread = cuda.threadIdx.x
    inner, columns = (W.shape[1], W.shape[0]) if transposed else W.shape
    tiles = -(-columns // COLUMNS)
    is_gram = cuda.blockIdx.x >= tiles
    j0 = (cuda.blockIdx.x - tiles if is_gram else cuda.blockIdx.x) * COLUMNS
    a = cuda.shared.array(BOTH_A, np.float32, alignment=ALIGNMENT)
    b = cuda.shared.array(BOTH_B, np.float32, alignment=ALIGNMENT)
    z = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    clear(z)
    if first >= end or (is_gram and j0 >= end):
        return
    begin, stop = split * depth, min((split + 1) * depth, inner)
    if transposed or is_gram:
        B = A if is_gram else W
        n_rows = end if is_gram else columns
        sum_inputs(z, a, b, A, B, first, end, j0, n_rows, begin, stop, True, thread)
    else:
        sum_inputs(z, a, b, A, W, first, end, j0, columns, begin, stop, False, thread)
    offset = columns if is_gram else 0
    n_columns = end if is_gram else columns
    store(partial[np.uint64(split)], z, first, end, j0, offset, n_columns, thread)


@cuda.jit
def forward_tensor_products(partial, progress, H, W, depth, whole):
    first, end = images_of(progress, whole, cuda.blockIdx.z)
    sum_part(partial, H, W, first, end, cuda.blockIdx.y, depth, False)


@cuda.jit
def backward_tensor_products(partial, progress, D, W, depth):
    first, end = images_of(progress, False, cuda.blockIdx.z)
    sum_part(partial, D, W, first, end, cuda.blockIdx.y, depth, True)


@cuda.jit
def update_tensor_products(W, progress, H, D, eta, n_in, n_out):
    thread = cuda.threadIdx.x
    row0, column0 = cuda.blockIdx.y * IMAGES, cuda.blockIdx.x * COLUMNS
    n = progress[BLOCK]
    h = cuda.shared.array(BOTH_H, np.float32, alignment=ALIGNMENT)
    d = cuda.shared.array(BOTH_D, np.float32, alignment=ALIGNMENT)
    z = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    if n == 0 or progress[FIRST] < n:
        return
    clear(z)
    half = 0  # of shared memory
    copy_columns(h, 0, H, IMAGES, row0, 0, n, thread)
    copy_columns(d, 0, D, COLUMNS, column0, 0, n, thread)
    end_group()
    for t0 in range(0, n, DEPTH):
        wait_for_groups(0)
        cuda.syncthreads()
        other = 1 - half
        copy_columns(h, other * H_WORDS, H, IMAGES, row0, t0 + DEPTH, n, thread)
        copy_columns(d, other * D_WORDS, D, COLUMNS, column0, t0 + DEPTH, n, thread)
        end_group()
        multiply(z, h, half * H_WORDS, IMAGES + 8, 1, d, half * D_WORDS, COLUMN_STRIDE, 1, thread)
        half = other
    wait_for_groups(0)  # as in sum_inputs
    for m in range(M_TILES):
        for tile in range(N_TILES):
            for c in range(4):
                row, column = row0 + row_of(m, c, thread), column0 + column_of(tile, c, thread)
                if row <= n_in and column < n_out:
                    W[np.uint64(row), np.uint64(column)] -= eta[0] * z[m, tile, c]


LOWEST_CC = 8, 0  # compute capability
SIGNATURES = {
    forward_tensor_products: products.SIGNATURES[products.forward_products],
    backward_tensor_products: products.SIGNATURES[products.backward_products],
    update_tensor_products: blocks.SIGNATURES[blocks.update_weights_of_block],
}

# As `blocks.update`, on tensor cores.
update = partial(blocks.update, kernel=update_tensor_products, rows=IMAGES, threads=THREADS)
