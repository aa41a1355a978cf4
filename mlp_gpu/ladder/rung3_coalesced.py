"""Rung 3, coalesced: the weights transposed, in all kernels.

What changed: W1 is (784, hidden) and W2 (hidden, 10), a column a neuron, and so are V1 and V2. The
kernels are those of rung 1 with rows and columns exchanged; the tile is gone. The blog: "using
column-major order to access the weights improved computation time, a lot".

Why it helps: threads of a warp now read weights that lie side by side, 128 bytes in 4 sectors of
32, in the forward kernel and in both updates. Against the tile of rung 2 the forward kernel gains
little: that read as few sectors, and this one spares the way through shared memory and 196
barriers. What the updates gain is larger: they read and write four numbers a weight.

In the deltas kernel it is the other way round: thread j reads row j of W2, 40 bytes from the next
thread's. That is 1,280 weights of 101,632.
"""

import numpy as np

from deepbig_runtime.gpu import Launch, Stream, cuda, play
from mlp_gpu.ladder import arrays
from mlp_gpu.ladder.arrays import Arrays
from mlp_gpu.ladder.rung1_naive import RATES, output_delta, sigmoid, slope, velocity

TRANSPOSED = True


@cuda.jit
def forward_coalesced(y1, y2, W1, W2, images, order, step):
    j = np.uint32(cuda.threadIdx.x)
    image = np.uint32(order[np.uint32(step[0])])
    total = np.float32(0)
    for i in range(images.shape[1]):
        total += W1[np.uint32(i), j] * images[image, np.uint32(i)]
    y1[j] = sigmoid(total)
    cuda.syncthreads()
    if j < y2.shape[0]:
        total = np.float32(0)
        for i in range(y1.shape[0]):
            total += W2[np.uint32(i), j] * y1[np.uint32(i)]
        y2[j] = sigmoid(total)


@cuda.jit
def deltas_coalesced(delta1, delta2, y1, y2, W2, labels, order, step):
    j = np.uint32(cuda.threadIdx.x)
    label = labels[np.uint32(order[np.uint32(step[0])])]
    if j < y2.shape[0]:
        delta2[j] = output_delta(y2[j], np.float32(j == label))
    cuda.syncthreads()
    total = np.float32(0)
    for k in range(y2.shape[0]):
        total += W2[j, np.uint32(k)] * delta2[np.uint32(k)]
    delta1[j] = slope(y1[j]) * total
    if j == 0:
        step[0] += 1


@cuda.jit
def update_outputs_coalesced(W2, V2, delta2, y1, eta, momentum):
    thread = cuda.grid(1)
    i, j = np.uint32(thread // W2.shape[1]), np.uint32(thread % W2.shape[1])
    if i < W2.shape[0]:
        V2[i, j] = velocity(V2[i, j], delta2[j], y1[i], eta, momentum)
        W2[i, j] += V2[i, j]


@cuda.jit
def update_hidden_coalesced(W1, V1, delta1, images, order, step, eta, momentum):
    thread = cuda.grid(1)
    i, j = np.uint32(thread // W1.shape[1]), np.uint32(thread % W1.shape[1])
    if i < W1.shape[0]:
        h = images[np.uint32(order[np.uint32(step[0] - 1)]), i]
        V1[i, j] = velocity(V1[i, j], delta1[j], h, eta, momentum)
        W1[i, j] += V1[i, j]


SIGNATURES = {
    forward_coalesced: "void(float32[::1], float32[::1], float32[:, ::1], float32[:, ::1], "
    "float32[:, ::1], int64[::1], int64[::1])",
    deltas_coalesced: "void(float32[::1], float32[::1], float32[::1], float32[::1], "
    "float32[:, ::1], uint8[::1], int64[::1], int64[::1])",
    update_outputs_coalesced: "void(float32[:, ::1], float32[:, ::1], float32[::1], float32[::1], "
    "float32, float32)",
    update_hidden_coalesced: "void(float32[:, ::1], float32[:, ::1], float32[::1], "
    "float32[:, ::1], int64[::1], int64[::1], float32, float32)",
}


def launches(a: Arrays) -> list[Launch]:
    """The launches that make one step, in order, with weights transposed."""
    return arrays.launches(a, SIGNATURES, RATES)


def train(a: Arrays, stream: Stream) -> None:
    """All steps of the epoch, launched by the host and not waited for."""
    play(launches(a) * a.steps, stream)
