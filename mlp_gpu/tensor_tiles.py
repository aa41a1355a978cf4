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

from typing import Any, NamedTuple

import numpy as np

from deepbig_runtime.gpu import WARP, cuda, device_function
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


class Factor(NamedTuple):
    """A factor of a product: rows `first` to `end` - 1 of a matrix, or if not by_rows columns."""

    M: Any
    by_rows: bool
    first: int
    end: int


class Tile(NamedTuple):
    """A part of a factor in shared memory: number i of row j is at start + i step + j width."""

    words: Any
    start: int
    step: int
    width: int


@device_function
def copy_rows(tile, row0, column0, factor, n_rows, i0, depth, stop, thread, n_threads, n_words):
    """tile from its row row0 and column column0 on = n_rows rows, `depth` columns of a factor.

    The columns begin at i0. Zero from the factor's end on, and from column `stop` on but for the
    rest of a copy. n_words: of a copy; they divide a row of the matrix.
    """
    M, _, first, end = factor
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


@device_function
def copy_columns(tile, start, factor, i0, stop, thread, n_threads):
    """tile from `start` on = the first TILE columns of a factor, rows i0, i0 + 1, ...

    Zero from the factor's end on, a multiple of MOST_WORDS, and from row `stop` on.
    """
    M, _, j0, end = factor
    column, row = thread % (TILE // MOST_WORDS) * MOST_WORDS, thread // (TILE // MOST_WORDS)
    step = n_threads * MOST_WORDS // TILE
    place, offset = start + row * COLUMN_STRIDE + column, (i0 + row) * M.shape[1] + j0 + column
    rows, is_column = np.int32(stop - i0 - row), np.int32(j0 + column) < np.int32(end)
    for k in range(DEPTH // step):
        is_there = is_column and np.int32(k * step) < rows
        start_copy(tile, np.uint64(place), M, np.uint64(offset), is_there, MOST_WORDS)
        place += step * COLUMN_STRIDE
        offset += step * M.shape[1]


@device_function
def multiply(z, small, a, b, depth, thread):
    """z + small += a b over `depth` inputs: z (m, n, 4) is of 16 m rows of a and 8 n columns of b.

    a, b: each a Tile.
    """
    g, t = thread % 32 // 4, thread % 4
    a_large = cuda.local.array(4, np.float32)
    a_small = cuda.local.array(4, np.float32)
    b_large = cuda.local.array((N_TILES, 2), np.float32)
    b_small = cuda.local.array((N_TILES, 2), np.float32)
    large = cuda.local.array((M_TILES, N_TILES, 4), np.float32)
    m_tiles, n_tiles = z.shape[:2]
    clear(large)
    a_start = a.start + (t * a.step + g * a.width)
    b_start = b.start + (t * b.step + g * b.width)
    for _ in range(depth // (UNROLLED * STEP)):
        for _ in range(UNROLLED):
            for n in range(n_tiles):
                for h in range(2):
                    value = b.words[np.uint64(b_start + (4 * h * b.step + 8 * n * b.width))]
                    b_large[n, h] = to_tf32(value)
                    b_small[n, h] = value - b_large[n, h]
            for m in range(m_tiles):
                for h in range(4):
                    row, i = 16 * m + 8 * (h % 2), 4 * (h // 2)
                    value = a.words[np.uint64(a_start + (i * a.step + row * a.width))]
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
            a_start += STEP * a.step
            b_start += STEP * b.step
    add(z, large)


@device_function
def clear(z):
    for m in range(z.shape[0]):
        for n in range(z.shape[1]):
            for c in range(4):
                z[m, n, c] = 0


@device_function
def add(z, x):
    """z += x."""
    for m in range(z.shape[0]):
        for n in range(z.shape[1]):
            for c in range(4):
                z[m, n, c] += x[m, n, c]


@device_function
def row_of(m, c, thread):
    """The row of a thread's number z[m, n, c], among its warp's."""
    return 16 * m + thread % 32 // 4 + 8 * (c // 2)


@device_function
def column_of(n, c, thread):
    return 8 * n + 2 * (thread % 4) + c % 2


@device_function
def warp_row(thread):
    """The first row of a warp's results, among its block's."""
    return thread // (2 * WARP) * SIDE


@device_function
def warp_column(thread):
    return thread // WARP % 2 * SIDE


@device_function
def copy_both(a, b, half, A, B, i0, stop, thread, n_words):
    """The next DEPTH inputs of both factors into a half of shared memory: a group of copies."""
    start, row0 = half * HALF, half * TILE
    if A.by_rows:
        copy_rows(a, row0, 0, A, TILE, i0, DEPTH, stop, thread, THREADS, n_words)
    else:
        copy_columns(a, start, A, i0, stop, thread, THREADS)
    if B.by_rows:
        copy_rows(b, row0, 0, B, TILE, i0, DEPTH, stop, thread, THREADS, MOST_WORDS)
    else:
        copy_columns(b, start, B, i0, stop, thread, THREADS)
    end_group()


@device_function
def sum_tile(z, a, b, A, B, begin, stop, thread, n_words):
    """z = the block's products of two matrices, over inputs `begin` to `stop` - 1.

    A: the Factor whose rows, or columns, are rows of the result; the block takes TILE of them. B:
    so for the columns of the result. a, b: shared memory, BOTH words each. n_words: of a copy of
    A's rows.
    """
    a_step, a_width = 1 if A.by_rows else COLUMN_STRIDE, ROW_STRIDE if A.by_rows else 1
    b_step, b_width = 1 if B.by_rows else COLUMN_STRIDE, ROW_STRIDE if B.by_rows else 1
    row, column = warp_row(thread) * a_width, warp_column(thread) * b_width
    small = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    clear(z)
    clear(small)
    half = 0
    copy_both(a, b, 0, A, B, begin, stop, thread, n_words)
    for i0 in range(begin, stop, DEPTH):
        wait_for_groups()
        cuda.syncthreads()  # all copies are there, and all warps are done with the other half
        other = 1 - half
        copy_both(a, b, other, A, B, i0 + DEPTH, stop, thread, n_words)
        a_tile = Tile(a, half * HALF + row, a_step, a_width)
        b_tile = Tile(b, half * HALF + column, b_step, b_width)
        multiply(z, small, a_tile, b_tile, DEPTH, thread)
        half = other
    add(z, small)
    wait_for_groups()  # the last copies, of zeros, must not arrive after the block has ended
