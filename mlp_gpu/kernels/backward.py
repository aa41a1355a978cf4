"""Back-propagation of deltas, a reduction in two stages (2010, Listing 3).

    delta_in = (W delta) y'(y),  without the bias row

W (pad32(n_in + 1), pad32(n_out)); delta (n_out,), of this layer; y (n_in,), the states that it
reads; delta_in (n_in,), of the layer before; partial (pad32(n_out) / 32, pad32(n_in + 1)): float32,
C order. delta is the listing's indelta, delta_in its outdelta, y its instates.

Stage 1, `delta_partial`: a block is a warp and takes a patch of 32 x 32 weights. Thread t reads
column t into shared memory, so that consecutive threads read consecutive weights. Then it adds up
row t. Neither has bank conflicts, because a row takes 33 words of shared memory and not 32: word
33 i + j is in bank (i + j) % 32.

Stage 2, `delta_reduce`: a thread adds up the partial sums of one row of W and multiplies by the
derivative of the activation.

Departures from the listing:
- Its stage 2 writes the deltas of padding rows too, past the n_in deltas that there are, and reads
  past the n_in states for them; here a row that is no neuron does nothing.
- Stage 2 reads 16 partial sums at a time (see `partial.py`).
- Its ncon has to count the bias, which the listing does not say. Otherwise the last row is missed
  where n_in is a multiple of 32. Here the number of rows follows from the shape of W.
- Its comment calls the barrier needless for a block of one warp. Since compute capability 7.0 the
  threads of a warp need not be in step, so the barrier stays.
"""

import numpy as np

from deepbig_runtime.gpu import WARP, DeviceArray, Launch, cuda, device_function
from mlp_gpu import activation
from mlp_gpu.kernels.partial import sum_partials

PATCH = 32  # rows and columns of W that a block takes
STRIDE = PATCH + 1  # words per row of the patch in shared memory
PATCH_WORDS = PATCH * STRIDE

scaled_tanh_derivative = device_function(activation.scaled_tanh_derivative)


def patch_index(row, column):
    """Where the patch has a weight, in words."""
    return row * STRIDE + column


in_patch = device_function(patch_index)


@cuda.jit
def delta_partial(partial, W, delta, n_out):
    thread = cuda.threadIdx.x
    neuron = np.uint32(cuda.blockIdx.x * PATCH + thread)
    first = cuda.blockIdx.y * PATCH
    w = cuda.shared.array(PATCH_WORDS, np.float32)
    deltas = cuda.shared.array(PATCH, np.float32)
    for i in range(PATCH):
        w[np.uint32(in_patch(i, thread))] = W[np.uint32(first + i), neuron]
    deltas[thread] = delta[neuron] if neuron < n_out else np.float32(0)
    cuda.syncthreads()
    total = np.float32(0)
    for j in range(PATCH):
        total += w[np.uint32(in_patch(thread, j))] * deltas[j]
    partial[np.uint32(cuda.blockIdx.x), np.uint32(first + thread)] = total


@cuda.jit
def delta_reduce(delta_in, partial, y):
    row = cuda.grid(1)
    if 1 <= row <= y.shape[0]:  # row 0 is the bias, which has no delta
        neuron = np.uint32(row - 1)
        total = sum_partials(partial, np.uint32(row))
        delta_in[neuron] = total * scaled_tanh_derivative(y[neuron])


SIGNATURES = {
    delta_partial: "void(float32[:, ::1], float32[:, ::1], float32[::1], int32)",
    delta_reduce: "void(float32[::1], float32[:, ::1], float32[::1])",
}


def partial_shape(W_shape: tuple[int, int]) -> tuple[int, int]:
    """Shape of the partial sums of a layer."""
    return W_shape[1] // PATCH, W_shape[0]


def propagate_back(
    delta_in: DeviceArray,
    partial: DeviceArray,
    W: DeviceArray,
    delta: DeviceArray,
    y: DeviceArray,
) -> list[Launch]:
    """Deltas of the layer before, from those of this layer. Modifies delta_in and partial."""
    columns, rows = partial.shape[0], partial.shape[1] // PATCH
    n_out = np.int32(delta.shape[0])
    return [
        Launch(delta_partial, (columns, rows), PATCH, (partial, W, delta, n_out)),
        Launch(delta_reduce, (rows, 1), WARP, (delta_in, partial, y)),
    ]
