"""The sums of a window's products, with corrections by tensor cores: stage 2, as in `sums`.

`tensor_products` left G as a whole, so the corrections G d and G h are products of matrices too. A
block of 256 threads takes 32 images and 64 columns, a warp 16 x 16 of these.
"""

import numpy as np

from deepbig_runtime.gpu import WARP, cuda, device_function
from deepbig_runtime.ptx import MOST_WORDS, end_group, start_copy, wait_for_groups
from mlp_gpu.kernels.backward import scaled_tanh_derivative
from mlp_gpu.kernels.forward import scaled_tanh
from mlp_gpu.tensor_tiles import (
    ALIGNMENT,
    BOTH,
    COLUMN_STRIDE,
    DEPTH,
    HALF,
    ROW_STRIDE,
    SIDE,
    SLICE,
    TILE,
    Factor,
    Tile,
    clear,
    column_of,
    copy_columns,
    multiply,
    row_of,
)
from mlp_gpu.window.progress import ALL, END, FIRST, SWEPT, as_bits, larger_of

THREADS = 256
M_TILES, N_TILES = 1, 2  # of a warp
OWN_ROWS, OWN_COLUMNS = 16 * M_TILES, 8 * N_TILES  # a warp's
ACROSS = TILE // OWN_COLUMNS  # warps side by side
BOTH_SLICES = 2 * SLICE
COPIES = DEPTH // MOST_WORDS  # of a row of G
assert THREADS == SIDE * COPIES  # a thread makes one
QUAD = 4  # threads side by side, which have numbers of the same rows
ROWS = 2 * M_TILES  # of which a thread has numbers


@device_function
def copy_images(a, b, half, partial, M, first, end, j0, s0, stop, thread):
    """The next DEPTH images s into a half of shared memory: of G, and of M's columns."""
    row, s = thread // COPIES, s0 + thread % COPIES * MOST_WORDS
    offset = ((first + row) & (partial.shape[1] - 1)) * partial.shape[2] + M.shape[1] + s
    place = (half * SIDE + row) * ROW_STRIDE + s - s0
    is_there = first + row < end and s < stop
    start_copy(a, np.uint64(place), partial, np.uint64(offset), is_there, MOST_WORDS)
    columns = Factor(M, False, j0, M.shape[1])
    copy_columns(b, half * HALF, columns, s0, stop, thread, THREADS)
    end_group()


@device_function
def own_row(c, thread):
    """The row of a thread's number z[0, n, c], in the block's result."""
    return thread // WARP // ACROSS * OWN_ROWS + row_of(0, c, thread)


@device_function
def own_column(n, c, thread):
    return thread // WARP % ACROSS * OWN_COLUMNS + column_of(n, c, thread)


@device_function
def corrected_sums(total, partial, M, eta, first, end, stop):
    """total = the sums of the parts - eta G M, of the block's images and columns.

    M has as many columns as the products. stop: of the images s, the one after the last.
    """
    thread = cuda.threadIdx.x
    j0 = cuda.blockIdx.x * TILE
    a = cuda.shared.array(BOTH_SLICES, np.float32, alignment=ALIGNMENT)
    b = cuda.shared.array(BOTH, np.float32, alignment=ALIGNMENT)
    z = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    small = cuda.local.array((M_TILES, N_TILES, 4), np.float32)
    clear(z)
    clear(small)
    clear(total)
    half = 0  # of shared memory
    copy_images(a, b, half, partial, M, first, end, j0, 0, stop, thread)
    if j0 + own_column(0, 0, thread) < M.shape[1]:  # so all columns of the warp are there
        for split in range(partial.shape[0]):
            for n in range(N_TILES):
                for c in range(4):
                    t = min(first + own_row(c, thread), end - 1)
                    ring_row = np.uint64(t & (partial.shape[1] - 1))
                    column = np.uint64(j0 + own_column(n, c, thread))
                    total[0, n, c] += partial[np.uint64(split), ring_row, column]
    first_row = thread // WARP // ACROSS * OWN_ROWS
    first_column = thread // WARP % ACROSS * OWN_COLUMNS
    for s0 in range(0, stop, DEPTH):
        wait_for_groups()
        cuda.syncthreads()  # all copies are there, and all warps are done with the other half
        other = 1 - half
        copy_images(a, b, other, partial, M, first, end, j0, s0 + DEPTH, stop, thread)
        a_start, b_start = half * SLICE + first_row * ROW_STRIDE, half * HALF + first_column
        a_tile, b_tile = Tile(a, a_start, 1, ROW_STRIDE), Tile(b, b_start, COLUMN_STRIDE, 1)
        multiply(z, small, a_tile, b_tile, DEPTH, thread)
        half = other
    wait_for_groups()  # as in tensor_tiles.sum_tile
    for n in range(N_TILES):
        for c in range(4):
            total[0, n, c] -= eta[0] * (z[0, n, c] + small[0, n, c])


@cuda.jit
def forward_tensor_sums(H_next, partial, progress, D, eta, n_out, hidden):
    thread = cuda.threadIdx.x
    first = progress[FIRST] + cuda.blockIdx.y * SIDE
    end = min(first + SIDE, progress[END])
    total = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    if first >= end:
        return
    corrected_sums(total, partial, D, eta, first, end, min(progress[SWEPT], end - 1))
    for n in range(N_TILES):
        for c in range(4):
            t, a = first + own_row(c, thread), total[0, n, c]
            neuron = cuda.blockIdx.x * TILE + own_column(n, c, thread)
            if t < end and neuron < n_out:
                H_next[np.uint64(t), np.uint64(1 + neuron)] = scaled_tanh(a) if hidden else a


@cuda.jit
def backward_tensor_sums(D, changes, partial, progress, H, eta, layer, n):
    thread = cuda.threadIdx.x
    swept = progress[SWEPT]
    first = progress[FIRST] + cuda.blockIdx.y * SIDE
    end = min(first + SIDE, progress[END])
    column0 = cuda.blockIdx.x * TILE
    total = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    y = cuda.local.array((M_TILES, N_TILES, 4), np.float32)
    before = cuda.local.array((M_TILES, N_TILES, 4), np.float32)
    change = cuda.local.array(ROWS, np.float32)
    size = cuda.local.array(ROWS, np.float32)
    if first >= end:
        return
    corrected_sums(total, partial, H, eta, first, end, end - 1)
    for tile in range(N_TILES):  # all loads before the first store: they are under way at once
        for c in range(4):
            t, column = first + own_row(c, thread), column0 + own_column(tile, c, thread)
            if t < end and 1 <= column <= n:  # column 0 is the bias
                y[0, tile, c] = H[np.uint64(t), np.uint64(column)]
                before[0, tile, c] = 0
                if t < swept:
                    before[0, tile, c] = D[np.uint64(t), np.uint64(column - 1)]
    for r in range(ROWS):
        change[r] = size[r] = 0
    for tile in range(N_TILES):
        for c in range(4):
            t, column = first + own_row(c, thread), column0 + own_column(tile, c, thread)
            if t < end and 1 <= column <= n:
                delta = total[0, tile, c] * scaled_tanh_derivative(y[0, tile, c])
                D[np.uint64(t), np.uint64(column - 1)] = delta
                difference = abs(delta - before[0, tile, c])
                change[c // 2] = larger_of(change[c // 2], difference)
                size[c // 2] = larger_of(size[c // 2], abs(delta))
    for r in range(ROWS):
        lanes = QUAD // 2
        while lanes > 0:
            change[r] = larger_of(change[r], cuda.shfl_xor_sync(ALL, change[r], lanes))
            size[r] = larger_of(size[r], cuda.shfl_xor_sync(ALL, size[r], lanes))
            lanes //= 2
        row = own_row(2 * r, thread)
        if thread % QUAD == 0 and first + row < end:
            of_layer, image = changes[np.uint64(layer)], np.uint64(cuda.blockIdx.y * SIDE + row)
            cuda.atomic.max(of_layer, (np.uint64(0), image), as_bits(change[r]))
            cuda.atomic.max(of_layer, (np.uint64(1), image), as_bits(size[r]))
