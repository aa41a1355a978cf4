"""Weight update (2010, Listing 4).

    W -= eta (1, h) delta^T

W (pad32(n_in + 1), pad32(n_out)), row 0 the bias; h (n_in,); delta (n_out,); eta (1,): float32, C
order. The listing calls h states.

A block takes 16 rows and 256 columns. The first 16 threads load the states of these rows into
shared memory; then each thread updates the 16 weights of its column in an unrolled loop.
Consecutive threads read and write consecutive weights.

Departures from the listing:
- Its condition for the bias multiplies instead of choosing, so that thread 0 of the first block row
  still reads states[-1]. A NaN there would spread to all biases. Here that thread reads nothing.
- Its `cond2` and `size` are computed and not used. So where ncon is not a multiple of 16, the last
  block row reads past the end of states, and writes the result into the padding rows. From there it
  reaches the partial sums of Listing 3. Here the states of these rows are zero, and the padding
  stays zero.
- It reads the delta before it checks whether the column is a neuron. Here the check comes first.
- It writes each weight before it reads the next, and so waits 16 times for memory. Here all 16 are
  read first.
- Its eta is an argument. Here it is read from memory, so that a CUDA graph serves all epochs.
- It calls its 16 rows pitch_y, hiding the pitch_y of 32 that the other listings have.
"""

import numpy as np

from deepbig_runtime.gpu import DeviceArray, Launch, cuda

THREADS = 256  # per block, each for a column
ROWS = 16  # weights per thread
MAX_INPUTS = 65_535 * ROWS - 1  # of a layer: a GPU's grid has at most 65,535 blocks in y


@cuda.jit
def update_weights(W, h, delta, eta, n_in, n_out):
    thread = cuda.threadIdx.x
    neuron = np.uint32(cuda.blockIdx.x * THREADS + thread)
    first = cuda.blockIdx.y * ROWS
    states = cuda.shared.array(ROWS, np.float32)
    if thread < ROWS:
        row = first + thread
        if row == 0:
            states[thread] = 1  # the bias neuron
        elif row <= n_in:
            states[thread] = h[np.uint32(row - 1)]
        else:
            states[thread] = 0
    cuda.syncthreads()
    if neuron < n_out:
        step = eta[0] * delta[neuron]
        w = cuda.local.array(ROWS, np.float32)  # registers
        for i in range(ROWS):
            w[i] = W[np.uint32(first + i), neuron]
        for i in range(ROWS):
            W[np.uint32(first + i), neuron] = w[i] - step * states[i]


SIGNATURES = {
    update_weights: "void(float32[:, ::1], float32[::1], float32[::1], float32[::1], int32, int32)",
}


def update(W: DeviceArray, h: DeviceArray, delta: DeviceArray, eta: DeviceArray) -> list[Launch]:
    """One step of gradient descent on a layer. Modifies W."""
    n_in, n_out = h.shape[0], delta.shape[0]
    grid = -(-n_out // THREADS), -(-(n_in + 1) // ROWS)
    arguments = (W, h, delta, eta, np.int32(n_in), np.int32(n_out))
    return [Launch(update_weights, grid, THREADS, arguments)]
