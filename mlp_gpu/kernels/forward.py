"""Forward propagation, a reduction in two stages (2010, Listing 2 and Figure 2).

    y = A tanh(B a),  a = W^T (1, h)

W (pad32(n_in + 1), pad32(n_out)), row 0 the bias; h (n_in,); y (n_out,); partial (ceil((n_in + 1) /
32), pad32(n_out)): float32, C order. h is what the listing calls prevLN, y its currLN.

Stage 1, `forward_partial`: a block takes 32 rows of W, one per input, and 256 columns, one thread
per neuron. The first 32 threads load the inputs into shared memory; then each thread adds up 32
products. Consecutive threads read consecutive weights.

Stage 2, `forward_reduce`: a block is a warp, a thread adds up the partial sums of one neuron and
applies the activation.

Departures from the listing:
- The loop over inputs always has 32 steps, so that it is unrolled; in the listing the last block
  row has fewer. Rows past n_in are padding, zero in W, and their inputs are zero as well.
- Stage 2 reads 16 partial sums at a time (see `partial.py`).
- Its comment speaks of 128 threads where there are 256.
- Three branches choose each input instead of the listing's two nests of conditions with empty
  `else`s; what they choose is the same.
"""

import numpy as np

from deepbig_runtime.gpu import WARP, DeviceArray, Launch, cuda, device_function
from mlp_gpu import activation
from mlp_gpu.kernels.partial import sum_partials

THREADS = 256  # per block of stage 1, each for a neuron
INPUTS = 32  # per block of stage 1

scaled_tanh = device_function(activation.scaled_tanh)


@cuda.jit
def forward_partial(partial, W, h, n_in, n_out):
    thread = cuda.threadIdx.x
    neuron = np.uint32(cuda.blockIdx.x * THREADS + thread)
    first = cuda.blockIdx.y * INPUTS
    inputs = cuda.shared.array(INPUTS, np.float32)
    if thread < INPUTS:
        row = first + thread
        if row == 0:
            inputs[thread] = 1  # the bias neuron
        elif row <= n_in:
            inputs[thread] = h[np.uint32(row - 1)]
        else:
            inputs[thread] = 0
    cuda.syncthreads()
    if neuron < n_out:
        total = np.float32(0)
        for i in range(INPUTS):
            total += inputs[i] * W[np.uint32(first + i), neuron]
        partial[np.uint32(cuda.blockIdx.y), neuron] = total


@cuda.jit
def forward_reduce(y, partial):
    neuron = np.uint32(cuda.grid(1))
    if neuron < y.shape[0]:
        y[neuron] = scaled_tanh(sum_partials(partial, neuron))


SIGNATURES = {
    forward_partial: "void(float32[:, ::1], float32[:, ::1], float32[::1], int32, int32)",
    forward_reduce: "void(float32[::1], float32[:, ::1])",
}


def partial_shape(W_shape: tuple[int, int], n_in: int) -> tuple[int, int]:
    """Shape of the partial sums of a layer."""
    return -(-(n_in + 1) // INPUTS), W_shape[1]


def forward_sums(partial: DeviceArray, W: DeviceArray, h: DeviceArray, n_out: int) -> list[Launch]:
    """Stage 1 alone. Modifies partial."""
    grid = -(-n_out // THREADS), partial.shape[0]
    sizes = np.int32(h.shape[0]), np.int32(n_out)
    return [Launch(forward_partial, grid, THREADS, (partial, W, h, *sizes))]


def propagate_forward(
    y: DeviceArray, partial: DeviceArray, W: DeviceArray, h: DeviceArray
) -> list[Launch]:
    """States y of a hidden layer from the states h that it reads. Modifies y and partial."""
    n_out = y.shape[0]
    reduce = Launch(forward_reduce, (-(-n_out // WARP), 1), WARP, (y, partial))
    return [*forward_sums(partial, W, h, n_out), reduce]
