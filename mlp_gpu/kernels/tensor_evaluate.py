"""Forward propagation of many images at once on tensor cores: as in `evaluate`.

Rows of H are copied 16 bytes at a time where that divides them, and else number by number. The
results go through shared memory: then threads side by side have neurons side by side.
"""

import numpy as np

from deepbig_runtime.gpu import cuda
from deepbig_runtime.ptx import MOST_WORDS
from mlp_gpu.kernels.forward import scaled_tanh
from mlp_gpu.tensor_tiles import (
    ALIGNMENT,
    BOTH,
    COLUMN_STRIDE,
    M_TILES,
    N_TILES,
    THREADS,
    TILE,
    Factor,
    column_of,
    row_of,
    sum_tile,
    warp_column,
    warp_row,
)


@cuda.jit
def forward_tensor_batch(Y, H, W, n_in, n_out, hidden):
    thread = cuda.threadIdx.x
    image0, neuron0 = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
    a = cuda.shared.array(BOTH, np.float32, alignment=ALIGNMENT)
    b = cuda.shared.array(BOTH, np.float32, alignment=ALIGNMENT)
    z = cuda.local.array((M_TILES, N_TILES, 4), np.float32)  # registers
    n, columns = H.shape[0], W.shape[1]
    images, neurons = Factor(H, True, image0, n), Factor(W[1:], False, neuron0, columns)
    if n_in % MOST_WORDS == 0:
        sum_tile(z, a, b, images, neurons, 0, n_in, thread, MOST_WORDS)
    else:
        sum_tile(z, a, b, images, neurons, 0, n_in, thread, 1)
    cuda.syncthreads()  # all warps are done with a, which takes the results
    for m in range(M_TILES):
        for tile in range(N_TILES):
            for c in range(4):
                row = warp_row(thread) + row_of(m, c, thread)
                column = warp_column(thread) + column_of(tile, c, thread)
                a[np.uint64(row * COLUMN_STRIDE + column)] = z[m, tile, c]
    cuda.syncthreads()
    row, column = thread // TILE, thread % TILE
    for _ in range(TILE * TILE // THREADS):
        image, neuron = image0 + row, neuron0 + column
        if image < n and neuron < n_out:
            total = a[np.uint64(row * COLUMN_STRIDE + column)] + W[np.uint64(0), np.uint64(neuron)]
            Y[np.uint64(image), np.uint64(neuron)] = scaled_tanh(total) if hidden else total
        row += THREADS // TILE
