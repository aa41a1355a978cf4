"""Tiles of matrix products on tensor cores, for compute capability 8.0 and later.

A block of 128 threads takes 64 x 64 results, a warp 32 x 32 of them: two by four tiles of 16 x 8.

Each factor is split into the nearest TF32 number and the rest, x = x_large + x_small. The rest has
12 bits, of which the cores drop the last: 2**-23 of x. A product of two is then
a_small b_large + a_large b_small + a_large b_large; the fourth term is below float32's rounding.
Tensor cores cut off the bits of a sum that do not fit, instead of rounding. So they add up at most
DEPTH inputs of the last term, from zero; additions in float32, which round, add these sums to the
result. The two small terms have a sum of their own, of all inputs: there a cut is at most 2**-33 of
the sum of |a b|.

While the warps multiply, the next numbers of both matrices are copied into the other half of shared
memory. Rows of shared memory are 36 or 72 words apart, so that the threads of a warp, which read 8
rows of 4 words or 4 rows of 8 words, find them in 32 different banks.
"""

import numpy as np

from deepbig_runtime.gpu import WARP, cuda
from deepbig_runtime.ptx import (
    MOST_WORDS,
    end_group,
    multiply_add,
    start_copy,
    to_tf32,
    wait_for_groups,
)

THREADS = 128
TILE = 64  # rows, and columns, of a block's results
DEPTH = 32  # inputs in shared memory at a time
ROW_STRIDE = DEPTH + 4  # words between rows of DEPTH numbers
COLUMN_STRIDE = TILE + 8  # words between rows of TILE numbers
HALF = TILE * ROW_STRIDE  # words of shared memory for either factor, by rows or by columns
BOTH = 2 * HALF  # of which one is copied while the other one is multiplied
M_TILES, N_TILES = 2, 4  # of a warp, at most: 16 rows, 8 columns each
SIDE = 16 * M_TILES  # of a warp's results
SLICE = SIDE * ROW_STRIDE  # words of shared memory for SIDE rows
STEP = 8  # inputs of one product of a tensor core
UNROLLED = 2  # steps of a loop's round: one multiplies while the next one's factors are loaded
ALIGNMENT = 4 * MOST_WORDS  # bytes


@cuda.jit(device=True, forceinline=True)
def copy_rows(
    tile, row0, column0, M, n_rows, first, end, i0, depth, stop, thread, n_threads, n_words
):
    """tile from its row row0 and column column0 on = n_rows rows, `depth` columns of M.

    M's rows begin at `first`, its columns at i0. Zero from row `end` on, and from column `stop` on
    but for the rest of a copy. n_words: of a copy; they divide a row of M.
    """
    column, row = thread % (depth // n_words) * n_words, thread // (depth // n_words)
    step = n_threads * n_words // depth  # rows from one copy of a thread to the next
    place = (row0 + row) * ROW_STRIDE + column0 + column
    offset = (first + row) * M.shape[1] + i0 + column
    # Comparisons of 32 bits, and an offset that runs: half the instructions of a copy.
    rows, is_column = np.int32(end - first - row), np.int32(i0 + column) < np.int32(stop)
    for k in range(n_rows // step):
        is_there = is_column and np.int32(k * step) < rows
        start_copy(tile, np.uint64(place), M, np.uint64(offset), is_there, n_words)
        place += step * ROW_STRIDE
        offset += step * M.shape[1]


@cuda.jit(device=True, forceinline=True)
def copy_columns(tile, start, M, j0, end, i0, stop, thread, n_threads):
    """tile from `start` on = columns j0, j0 + 1, ... of M, TILE of them, rows i0, i0 + 1, ...

    Zero from column `end` on, a multiple of MOST_WORDS, and from row `stop` on.
    """
    column, row = thread % (TILE // MOST_WORDS) * MOST_WORDS, thread // (TILE // MOST_WORDS)
    step = n_threads * MOST_WORDS // TILE
    place, offset = start + row * COLUMN_STRIDE + column, (i0 + row) * M.shape[1] + j0 + column
    rows, is_column = np.int32(stop - i0 - row), np.int32(j0 + column) < np.int32(end)
    for k in range(DEPTH // step):
        is_there = is_column and np.int32(k * step) < rows
        start_copy(tile, np.uint64(place), M, np.uint64(offset), is_there, MOST_WORDS)
        place += step * COLUMN_STRIDE
        offset += step * M.shape[1]


@cuda.jit(device=True, forceinline=True)
def multiply(z, small, a, a_start, a_step, a_width, b, b_start, b_step, b_width, depth, thread):
    """z + small += a b over `depth` inputs: z (m, n, 4) is of 16 m rows of a and 8 n columns of b.

    Input i of row j of a is at word a_start + i a_step + j a_width; so are b's columns.
    """
    g, t = thread % 32 // 4, thread % 4
    a_large = cuda.local.array(4, np.float32)
    a_small = cuda.local.array(4, np.float32)
    b_large = cuda.local.array((N_TILES, 2), np.float32)
    b_small = cuda.local.array((N_TILES, 2), np.float32)
    large = cuda.local.array((M_TILES, N_TILES, 4), np.float32)
    m_tiles, n_tiles = z.shape[:2]
    clear(large)
    a_start += t * a_step + g * a_width
    b_start += t * b_step + g * b_width
    for _ in range(depth // (UNROLLED * STEP)):
        for _ in range(UNROLLED):
            for n in range(n_tiles):
                for h in range(2):
                    value = b[np.uint64(b_start + (4 * h * b_step + 8 * n * b_width))]
                    b_large[n, h] = to_tf32(value)
                    b_small[n, h] = value - b_large[n, h]
            for m in range(m_tiles):
                for h in range(4):
                    row, i = 16 * m + 8 * (h % 2), 4 * (h // 2)
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
            a_start += STEP * a_step
            b_start += STEP * b_step
    add(z, large)


@cuda.jit(device=True, forceinline=True)
def clear(z):
    for m in range(z.shape[0]):
        for n in range(z.shape[1]):
            for c in range(4):
                z[m, n, c] = 0


@cuda.jit(device=True, forceinline=True)
def add(z, x):
    """z += x."""
    for m in range(z.shape[0]):
        for n in range(z.shape[1]):
            for c in range(4):
                z[m, n, c] += x[m, n, c]


@cuda.jit(device=True, forceinline=True)
def row_of(m, c, thread):
    """The row of a thread's number z[m, n, c], among its warp's."""
    return 16 * m + thread % 32 // 4 + 8 * (c // 2)


@cuda.jit(device=True, forceinline=True)
def column_of(n, c, thread):
    return 8 * n + 2 * (thread % 4) + c % 2


@cuda.jit(device=True, forceinline=True)
def warp_row(thread):
    """The first row of a warp's results, among its block's."""
    return thread // (2 * WARP) * SIDE


@cuda.jit(device=True, forceinline=True)
def warp_column(thread):
    return thread // WARP % 2 * SIDE


@cuda.jit(device=True, forceinline=True)
def copy_both(a, b, half, A, a_rows, first, end, n_words, B, b_rows, j0, columns, i0, stop, thread):
    """The next DEPTH inputs of both factors into a half of shared memory: a group of copies."""
    start, row0 = half * HALF, half * TILE
    if a_rows:
        copy_rows(a, row0, 0, A, TILE, first, end, i0, DEPTH, stop, thread, THREADS, n_words)
    else:
        copy_columns(a, start, A, first, end, i0, stop, thread, THREADS)
    if b_rows:
        copy_rows(b, row0, 0, B, TILE, j0, columns, i0, DEPTH, stop, thread, THREADS, MOST_WORDS)
    else:
        copy_columns(b, start, B, j0, columns, i0, stop, thread, THREADS)
    end_group()


@cuda.jit(device=True, forceinline=True)
def sum_tile(z, a, b, A, a_rows, first, end, n_words, B, b_rows, j0, columns, begin, stop, thread):
    """z = the block's products of two matrices, over inputs `begin` to `stop` - 1.

    A: has a row for each row of the result, or if not a_rows a column; the block takes TILE from
    `first` on, up to `end`. n_words: of a copy of A's rows. B: so for the columns of the result,
    from j0 on, up to `columns`. a, b: shared memory, BOTH words each.
    """
    a_step, a_width = 1 if a_rows else COLUMN_STRIDE, ROW_STRIDE if a_rows else 1
    b_step, b_width = 1 if b_rows else COLUMN_STRIDE, ROW_STRIDE if b_rows else 1
    row, column = warp_row(thread) * a_width, warp_column(thread) * b_width
    small = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    clear(z)
    clear(small)
    half = 0
    copy_both(a, b, 0, A, a_rows, first, end, n_words, B, b_rows, j0, columns, begin, stop, thread)
    for i0 in range(begin, stop, DEPTH):
        wait_for_groups()
        cuda.syncthreads()  # all copies are there, and all warps are done with the other half
        other, i1 = 1 - half, i0 + DEPTH
        copy_both(
            a, b, other, A, a_rows, first, end, n_words, B, b_rows, j0, columns, i1, stop, thread
        )
        multiply(
            z, small, a, half * HALF + row, a_step, a_width, b, half * HALF + column, b_step,
            b_width, DEPTH, thread,
        )  # fmt: skip
        half = other
    add(z, small)
    wait_for_groups()  # the last copies, of zeros, must not arrive after the block has ended
