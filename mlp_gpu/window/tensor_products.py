"""The products of a window on tensor cores: the same as in `products`, and the update of `blocks`.

Of G, the scalar products, a block takes 32 x 32: each of its warps sums a quarter of the inputs, 16
at a time, and the block adds up the four sums. A warp copies its next inputs while it multiplies,
and waits for no other warp. G lies in the first part of `partial` as a whole, from its column
`columns` on, and it is zero for s >= t, where nothing is to be corrected.
"""

import numpy as np

from deepbig_runtime.gpu import WARP, cuda, device_function
from deepbig_runtime.ptx import MOST_WORDS, end_group, wait_for_groups
from mlp_gpu.tensor_tiles import (
    ALIGNMENT,
    BOTH,
    DEPTH,
    M_TILES,
    N_TILES,
    ROW_STRIDE,
    SIDE,
    SLICE,
    THREADS,
    TILE,
    Factor,
    Tile,
    add,
    clear,
    column_of,
    copy_rows,
    multiply,
    row_of,
    sum_tile,
    warp_column,
    warp_row,
)
from mlp_gpu.window.products import images_of
from mlp_gpu.window.progress import BLOCK, FIRST

WARPS = THREADS // WARP
INPUTS = DEPTH // 2  # that a warp copies at a time of G's factors


@device_function
def sum_part(partial, A, W, first, end, split, depth, transposed, a, b, z):
    """A part of A W for the block's images and columns; `transposed`: of A W^T."""
    thread = cuda.threadIdx.x
    inner, columns = (W.shape[1], W.shape[0]) if transposed else W.shape
    j0 = cuda.blockIdx.x * TILE
    begin, stop = split * depth, min((split + 1) * depth, inner)
    images, neurons = Factor(A, True, first, end), Factor(W, transposed, j0, columns)
    sum_tile(z, a, b, images, neurons, begin, stop, thread, MOST_WORDS)
    for m in range(M_TILES):
        for n in range(N_TILES):
            for c in range(4):
                t = first + warp_row(thread) + row_of(m, c, thread)
                j = j0 + warp_column(thread) + column_of(n, c, thread)
                if t < end and j < columns:
                    ring_row = np.uint64(t & (partial.shape[1] - 1))
                    partial[np.uint64(split), ring_row, np.uint64(j)] = z[m, n, c]


@device_function
def copy_inputs(a, b, row0, column0, A, first, s0, end, i0, stop, lane):
    """INPUTS inputs, from i0 on, of SIDE images t and s into a half of a warp's rows."""
    t, s = Factor(A, True, first, end), Factor(A, True, s0, end)
    copy_rows(a, row0, column0, t, SIDE, i0, INPUTS, stop, lane, WARP, MOST_WORDS)
    copy_rows(b, row0, column0, s, SIDE, i0, INPUTS, stop, lane, WARP, MOST_WORDS)
    end_group()


@device_function
def sum_gram(partial, A, columns, first, end, number, a, b, z):
    """G of 32 images t and 32 images s, the number-th such pair; zero for s >= t."""
    thread = cuda.threadIdx.x
    warp, lane, stride = thread // WARP, thread % WARP, ROW_STRIDE
    first += number % 2 * SIDE
    s0 = number // 2 * SIDE
    end = min(first + SIDE, end)
    inner = A.shape[1] if first < end and s0 < end - 1 else 0
    row0, start = warp * SIDE, warp * SLICE
    small = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    clear(z)
    clear(small)
    half = 0
    i0 = warp * INPUTS
    copy_inputs(a, b, row0, 0, A, first, s0, end, i0, inner, lane)
    while i0 < inner:
        wait_for_groups()
        cuda.syncwarp()  # all copies are there, and all threads are done with the other half
        i0 += WARPS * INPUTS
        other = INPUTS - half
        copy_inputs(a, b, row0, other, A, first, s0, end, i0, inner, lane)
        at = start + half
        multiply(z, small, Tile(a, at, 1, stride), Tile(b, at, 1, stride), INPUTS, thread)
        half = other
    add(z, small)
    wait_for_groups()  # as in tensor_tiles.sum_tile
    cuda.syncwarp()
    for m in range(M_TILES):
        for n in range(N_TILES):
            for c in range(4):
                offset = row_of(m, c, thread) * stride + column_of(n, c, thread)
                a[np.uint64(start + offset)] = z[m, n, c]
    cuda.syncthreads()
    row, column = thread // SIDE, thread % SIDE
    for _ in range(SIDE * SIDE // THREADS):
        t, s = first + row, s0 + column
        total = a[np.uint64(row * stride + column)]
        for k in range(1, WARPS):
            total += a[np.uint64(row * stride + column + k * SLICE)]
        if t < end and columns + s < partial.shape[2]:
            ring_row = np.uint64(t & (partial.shape[1] - 1))
            partial[0, ring_row, np.uint64(columns + s)] = total if s < t else np.float32(0)
        row += THREADS // SIDE


@device_function
def sum_products(partial, A, W, first, end, depth, transposed):
    """A part of A W, or G, for the block's images; `transposed`: of A W^T."""
    a = cuda.shared.array(BOTH, np.float32, alignment=ALIGNMENT)
    b = cuda.shared.array(BOTH, np.float32, alignment=ALIGNMENT)
    z = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    if first >= end:
        return
    columns = W.shape[0] if transposed else W.shape[1]
    split, number = cuda.blockIdx.y, cuda.blockIdx.x - -(-columns // TILE)
    if number < 0:
        sum_part(partial, A, W, first, end, split, depth, transposed, a, b, z)
    else:
        # G is not split into parts: its blocks are spread over all rows of the grid.
        number = number * cuda.gridDim.y + split
        sum_gram(partial, A, columns, first, end, number, a, b, z)


@cuda.jit
def forward_tensor_products(partial, progress, H, W, depth, whole):
    first, end = images_of(progress, whole, cuda.blockIdx.z, TILE)
    sum_products(partial, H, W, first, end, depth, False)


@cuda.jit
def backward_tensor_products(partial, progress, D, W, depth):
    first, end = images_of(progress, False, cuda.blockIdx.z, TILE)
    sum_products(partial, D, W, first, end, depth, True)


@cuda.jit
def update_tensor_products(W, progress, H, D, eta, n_in, n_out):
    thread = cuda.threadIdx.x
    row0, column0 = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
    n, rate = progress[BLOCK], eta[0]
    h = cuda.shared.array(BOTH, np.float32, alignment=ALIGNMENT)
    d = cuda.shared.array(BOTH, np.float32, alignment=ALIGNMENT)
    z = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    w = cuda.local.array((M_TILES, N_TILES, 4), np.float32)
    if n == 0 or progress[FIRST] < n:
        return
    rows, columns = H.shape[1], D.shape[1]
    inputs, neurons = Factor(H, False, row0, rows), Factor(D, False, column0, columns)
    sum_tile(z, h, d, inputs, neurons, 0, n, thread, MOST_WORDS)
    row0 += warp_row(thread)
    column0 += warp_column(thread)
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
