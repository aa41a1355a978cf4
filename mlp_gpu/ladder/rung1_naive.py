"""Rung 1, naive: a thread a neuron, a thread a weight, as one would write them first.

    y1 = sigmoid(W1 h),  y2 = sigmoid(W2 y1)                           forward_naive
    delta2 = y2 (1 - y2) (1 or 0 - y2),  delta1 = y1 (1 - y1) W2^T delta2      deltas_naive
    V2 = momentum V2 + eta delta2 y1^T,  W2 += V2                      update_outputs_naive
    V1 = momentum V1 + eta delta1 h^T,   W1 += V1                      update_hidden_naive

with h = images[order[step]]; `deltas_naive` counts the step, so the updates look one back. Arrays
are as in `arrays.Arrays`. The blog: one kernel for the forward pass, where "each thread was then
mapped to each element of the output vectors", 128 threads; one for the deltas, also 128; one for
the weights of each layer, with as many threads as weights. The host launches these four for each
image.

What to expect: each launch takes the host some microseconds, and the GPU has less to do than that.
In the forward kernel thread j walks along row j of W1. So the 32 threads of a warp read from 32
rows, 3,136 bytes apart: 32 sectors of memory where 4 would do. The same in the updates. The forward
kernel is one block, because y2 needs all of y1, so all but one multiprocessor see nothing of it.

Guess: threads of an update are numbered by neuron first, like those of the forward kernel.
"""

import numpy as np

from deepbig_runtime.gpu import Launch, Stream, cuda, device_function, play
from mlp_gpu.ladder import arrays, formulas
from mlp_gpu.ladder.arrays import Arrays

TRANSPOSED = False
RATES = formulas.ETA, formulas.MOMENTUM

sigmoid = device_function(formulas.sigmoid)
slope = device_function(formulas.slope)
output_delta = device_function(formulas.output_delta)
velocity = device_function(formulas.velocity)


@cuda.jit
def forward_naive(y1, y2, W1, W2, images, order, step):
    j = np.uint32(cuda.threadIdx.x)
    image = np.uint32(order[np.uint32(step[0])])
    total = np.float32(0)
    for i in range(images.shape[1]):
        total += W1[j, np.uint32(i)] * images[image, np.uint32(i)]
    y1[j] = sigmoid(total)
    cuda.syncthreads()
    if j < y2.shape[0]:
        total = np.float32(0)
        for i in range(y1.shape[0]):
            total += W2[j, np.uint32(i)] * y1[np.uint32(i)]
        y2[j] = sigmoid(total)


@cuda.jit
def deltas_naive(delta1, delta2, y1, y2, W2, labels, order, step):
    j = np.uint32(cuda.threadIdx.x)
    label = labels[np.uint32(order[np.uint32(step[0])])]
    if j < y2.shape[0]:
        delta2[j] = output_delta(y2[j], np.float32(j == label))
    cuda.syncthreads()
    total = np.float32(0)
    for k in range(y2.shape[0]):
        total += W2[np.uint32(k), j] * delta2[np.uint32(k)]
    delta1[j] = slope(y1[j]) * total
    if j == 0:
        step[0] += 1  # all threads of the only block have read it


@cuda.jit
def update_outputs_naive(W2, V2, delta2, y1, eta, momentum):
    thread = cuda.grid(1)
    j, i = np.uint32(thread % W2.shape[0]), np.uint32(thread // W2.shape[0])
    if i < W2.shape[1]:
        V2[j, i] = velocity(V2[j, i], delta2[j], y1[i], eta, momentum)
        W2[j, i] += V2[j, i]


@cuda.jit
def update_hidden_naive(W1, V1, delta1, images, order, step, eta, momentum):
    thread = cuda.grid(1)
    j, i = np.uint32(thread % W1.shape[0]), np.uint32(thread // W1.shape[0])
    if i < W1.shape[1]:
        h = images[np.uint32(order[np.uint32(step[0] - 1)]), i]
        V1[j, i] = velocity(V1[j, i], delta1[j], h, eta, momentum)
        W1[j, i] += V1[j, i]


SIGNATURES = {
    forward_naive: "void(float32[::1], float32[::1], float32[:, ::1], float32[:, ::1], "
    "float32[:, ::1], int64[::1], int64[::1])",
    deltas_naive: "void(float32[::1], float32[::1], float32[::1], float32[::1], float32[:, ::1], "
    "uint8[::1], int64[::1], int64[::1])",
    update_outputs_naive: "void(float32[:, ::1], float32[:, ::1], float32[::1], float32[::1], "
    "float32, float32)",
    update_hidden_naive: "void(float32[:, ::1], float32[:, ::1], float32[::1], float32[:, ::1], "
    "int64[::1], int64[::1], float32, float32)",
}


def launches(a: Arrays) -> list[Launch]:
    """The launches that make one step, in order."""
    return arrays.launches(a, SIGNATURES, RATES)


def train(a: Arrays, stream: Stream) -> None:
    """All steps of the epoch, launched by the host and not waited for."""
    play(launches(a) * a.steps, stream)
