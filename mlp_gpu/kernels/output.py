"""The output layer: softmax, loss, and the deltas that back-propagation begins with.

    a = W^T (1, h),  p = softmax(a),  delta = p - one_hot(label),  loss = -log p[label]

W, h and partial as in `forward`; delta (n_out,) and losses (m,) float32; labels uint8 (n,); order
int64 (m,); step int64 (1,). losses[step] gets the loss of this image, and step increases by one.

Stage 1 is `forward_partial`. Stage 2, `output_delta`, is one warp. Each thread adds up the partial
sums of a class (and of class + 32, and so on, if there are that many). Then every thread adds up
the exponentials of all classes, in the same order, instead of waiting for one thread to do so.

The papers print no such kernel: 2010 applies its stage 2 to the output layer too, 2012 names the
softmax. Guess: the loss is the cross-entropy.
"""

import math

import numpy as np

from deepbig_runtime.gpu import WARP, DeviceArray, Launch, cuda
from mlp_gpu.kernels.forward import forward_sums
from mlp_gpu.kernels.partial import sum_partials


@cuda.jit
def output_delta(delta, losses, step, partial, labels, order):
    thread = cuda.threadIdx.x
    n_out = delta.shape[0]
    for j in range(thread, n_out, WARP):
        delta[np.uint32(j)] = sum_partials(partial, np.uint32(j))  # a, for now
    cuda.syncthreads()
    highest = delta[0]
    for j in range(1, n_out):
        highest = max(highest, delta[np.uint32(j)])
    total = np.float32(0)
    for j in range(n_out):
        total += math.exp(delta[np.uint32(j)] - highest)
    now = np.uint32(step[0])
    label = np.uint32(labels[np.uint32(order[now])])
    loss = math.log(total) - (delta[label] - highest)
    cuda.syncthreads()
    for j in range(thread, n_out, WARP):
        p = math.exp(delta[np.uint32(j)] - highest) / total
        delta[np.uint32(j)] = p - np.float32(j == label)
    if thread == 0:
        losses[now] = loss
        step[0] += 1


SIGNATURES = {
    output_delta: "void(float32[::1], float32[::1], int64[::1], float32[:, ::1], uint8[::1], "
    "int64[::1])",
}


def output_deltas(
    delta: DeviceArray,
    losses: DeviceArray,
    step: DeviceArray,
    partial: DeviceArray,
    W: DeviceArray,
    h: DeviceArray,
    labels: DeviceArray,
    order: DeviceArray,
) -> list[Launch]:
    """Deltas and loss of the output layer. Modifies delta, losses, step and partial."""
    arguments = (delta, losses, step, partial, labels, order)
    return [
        *forward_sums(partial, W, h, delta.shape[0]),
        Launch(output_delta, (1, 1), WARP, arguments),
    ]
