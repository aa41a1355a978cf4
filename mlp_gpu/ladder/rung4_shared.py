"""Rung 4, shared: numbers that a block reads again in shared memory, rates in constant memory.

What changed: the forward kernel loads the image into shared memory once, where all threads read
each pixel, and keeps y1 there for the second layer; the deltas kernel keeps delta2 there, which all
threads read. Learning rate and momentum are in constant memory. The blog: "some of the data such as
the weights and deltas are reused", and "constant values such as learning rate and momentum can be
kept in constant memory".

What to expect: little, as the blog measured. Weights cannot stay: shared memory ends with its
kernel. What all threads of a warp read at one address is one read from the L1 cache already. And
arguments of a kernel, as eta and momentum were, lie in constant memory anyway. The compiler goes
further: it knows the two constants and writes them into the instructions, which read no memory.
"""

import numpy as np

from deepbig_runtime.gpu import Launch, Stream, cuda, play
from mlp_gpu.ladder import arrays, formulas
from mlp_gpu.ladder import rung3_coalesced as coalesced
from mlp_gpu.ladder.arrays import Arrays
from mlp_gpu.ladder.net import MAX_HIDDEN, N_INPUTS, N_OUTPUTS
from mlp_gpu.ladder.rung1_naive import output_delta, sigmoid, slope, velocity

TRANSPOSED = coalesced.TRANSPOSED
CONSTANTS = np.array([formulas.ETA, formulas.MOMENTUM])


@cuda.jit
def forward_shared(y1, y2, W1, W2, images, order, step):
    thread, hidden = cuda.threadIdx.x, y1.shape[0]
    j = np.uint32(thread)
    image = np.uint32(order[np.uint32(step[0])])
    h = cuda.shared.array(N_INPUTS, np.float32)
    states = cuda.shared.array(MAX_HIDDEN, np.float32)
    for i in range(thread, N_INPUTS, hidden):
        h[np.uint32(i)] = images[image, np.uint32(i)]
    cuda.syncthreads()
    total = np.float32(0)
    for i in range(N_INPUTS):
        total += W1[np.uint32(i), j] * h[np.uint32(i)]
    states[j] = sigmoid(total)
    y1[j] = states[j]
    cuda.syncthreads()
    if j < y2.shape[0]:
        total = np.float32(0)
        for i in range(hidden):
            total += W2[np.uint32(i), j] * states[np.uint32(i)]
        y2[j] = sigmoid(total)


@cuda.jit
def deltas_shared(delta1, delta2, y1, y2, W2, labels, order, step):
    thread = cuda.threadIdx.x
    j = np.uint32(thread)
    label = labels[np.uint32(order[np.uint32(step[0])])]
    deltas = cuda.shared.array(N_OUTPUTS, np.float32)
    for k in range(thread, N_OUTPUTS, y1.shape[0]):
        deltas[np.uint32(k)] = output_delta(y2[np.uint32(k)], np.float32(k == label))
        delta2[np.uint32(k)] = deltas[np.uint32(k)]
    cuda.syncthreads()
    total = np.float32(0)
    for k in range(N_OUTPUTS):
        total += W2[j, np.uint32(k)] * deltas[np.uint32(k)]
    delta1[j] = slope(y1[j]) * total
    if j == 0:
        step[0] += 1


@cuda.jit
def update_outputs_shared(W2, V2, delta2, y1):
    rates = cuda.const.array_like(CONSTANTS)
    thread = cuda.grid(1)
    i, j = np.uint32(thread // W2.shape[1]), np.uint32(thread % W2.shape[1])
    if i < W2.shape[0]:
        V2[i, j] = velocity(V2[i, j], delta2[j], y1[i], rates[0], rates[1])
        W2[i, j] += V2[i, j]


@cuda.jit
def update_hidden_shared(W1, V1, delta1, images, order, step):
    rates = cuda.const.array_like(CONSTANTS)
    thread = cuda.grid(1)
    i, j = np.uint32(thread // W1.shape[1]), np.uint32(thread % W1.shape[1])
    if i < W1.shape[0]:
        h = images[np.uint32(order[np.uint32(step[0] - 1)]), i]
        V1[i, j] = velocity(V1[i, j], delta1[j], h, rates[0], rates[1])
        W1[i, j] += V1[i, j]


SIGNATURES = {
    forward_shared: "void(float32[::1], float32[::1], float32[:, ::1], float32[:, ::1], "
    "float32[:, ::1], int64[::1], int64[::1])",
    deltas_shared: "void(float32[::1], float32[::1], float32[::1], float32[::1], float32[:, ::1], "
    "uint8[::1], int64[::1], int64[::1])",
    update_outputs_shared: "void(float32[:, ::1], float32[:, ::1], float32[::1], float32[::1])",
    update_hidden_shared: "void(float32[:, ::1], float32[:, ::1], float32[::1], float32[:, ::1], "
    "int64[::1], int64[::1])",
}


def launches(a: Arrays) -> list[Launch]:
    """The launches that make one step, in order, with weights transposed."""
    return arrays.launches(a, SIGNATURES)


def train(a: Arrays, stream: Stream) -> None:
    """All steps of the epoch, launched by the host and not waited for."""
    play(launches(a) * a.steps, stream)
