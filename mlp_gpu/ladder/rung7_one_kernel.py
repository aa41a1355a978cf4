"""Rung 7, one kernel: a block trains a chunk of images by itself.

What changed: everything between two images. One block of some 500 threads makes all steps of a
chunk, with barriers where the rungs before had launches. Thread (g, j) of its groups takes every
G-th weight of neuron j. It keeps the first of them in registers, with their velocities, from the
first image of the chunk to the last. The others stay in memory: 101,632 weights and as many
velocities are 813 kB. The registers of a multiprocessor are 256 kB, most of them with other work.

The update of one image waits for the forward pass of the next, so that one pass over the weights
does both: a weight is read, changed, used and written.

What to expect: no launch and no host. But one multiprocessor does it all, so the weights come and
go through its own way to the L2 cache, and not through those of all others.
"""

import numpy as np

from deepbig_runtime.gpu import Launch, Stream, cuda
from mlp_gpu.ladder.arrays import Arrays
from mlp_gpu.ladder.net import N_INPUTS, N_OUTPUTS
from mlp_gpu.ladder.rung1_naive import RATES, output_delta, sigmoid, slope, velocity

TRANSPOSED = True
MAX_THREADS = 512  # per block: so many have the registers that each needs
KEPT = 8  # weights that a thread has in registers, and as many velocities
LANES = 32  # threads that add up an output
ROW = LANES + 1  # words from one output's sums to the next one's: so they are in different banks
CHUNK = 1000  # images per launch


@cuda.jit
def train_chunk(W1, W2, V1, V2, images, labels, order, step, steps, eta, momentum):
    thread, hidden = cuda.threadIdx.x, W1.shape[1]
    threads, groups = cuda.blockDim.x, cuda.blockDim.x // W1.shape[1]
    group, neuron = thread // hidden, thread % hidden
    j = np.uint32(neuron)
    sums = cuda.shared.array(MAX_THREADS, np.float32)
    y1 = cuda.shared.array(MAX_THREADS, np.float32)
    delta1 = cuda.shared.array(MAX_THREADS, np.float32)
    delta2 = cuda.shared.array(N_OUTPUTS, np.float32)
    w = cuda.local.array(KEPT, np.float32)  # registers
    v = cuda.local.array(KEPT, np.float32)
    first = step[0]
    for r in range(KEPT):
        w[r] = v[r] = 0
        i = group + r * groups
        if i < N_INPUTS:
            w[r], v[r] = W1[np.uint32(i), j], V1[np.uint32(i), j]
    last = np.uint32(0)  # the image before
    for number in range(steps + 1):  # in the last round only the update
        is_step, has_last = number < steps, number > 0
        image = np.uint32(order[np.uint32(first + number)]) if is_step else last
        delta = delta1[j] if has_last else np.float32(0)
        total = np.float32(0)
        for r in range(KEPT):
            i = group + r * groups
            if i < N_INPUTS:
                if has_last:
                    v[r] = velocity(v[r], delta, images[last, np.uint32(i)], eta, momentum)
                    w[r] += v[r]
                total += w[r] * images[image, np.uint32(i)]
        for i in range(group + KEPT * groups, N_INPUTS, groups):
            weight = W1[np.uint32(i), j]
            if has_last:
                speed = V1[np.uint32(i), j]
                speed = velocity(speed, delta, images[last, np.uint32(i)], eta, momentum)
                weight += speed
                V1[np.uint32(i), j], W1[np.uint32(i), j] = speed, weight
            total += weight * images[image, np.uint32(i)]
        if is_step:
            sums[thread] = total
            cuda.syncthreads()
            if thread < hidden:
                total = np.float32(0)
                for g in range(groups):
                    total += sums[np.uint32(g * hidden + neuron)]
                y1[j] = sigmoid(total)
            cuda.syncthreads()
            for place in range(thread, N_OUTPUTS * LANES, threads):
                total = np.float32(0)
                for i in range(place % LANES, hidden, LANES):
                    total += W2[np.uint32(i), np.uint32(place // LANES)] * y1[np.uint32(i)]
                sums[np.uint32(place // LANES * ROW + place % LANES)] = total
            cuda.syncthreads()
            for k in range(thread, N_OUTPUTS, threads):
                total = np.float32(0)
                for lane in range(LANES):
                    total += sums[np.uint32(k * ROW + lane)]
                is_label = np.float32(k == labels[image])
                delta2[np.uint32(k)] = output_delta(sigmoid(total), is_label)
            cuda.syncthreads()
            if thread < hidden:
                total = np.float32(0)
                for k in range(N_OUTPUTS):
                    total += W2[j, np.uint32(k)] * delta2[np.uint32(k)]
                delta1[j] = slope(y1[j]) * total
            cuda.syncthreads()
            for place in range(thread, hidden * N_OUTPUTS, threads):
                row, column = np.uint32(place // N_OUTPUTS), np.uint32(place % N_OUTPUTS)
                speed = V2[row, column]
                speed = velocity(speed, delta2[column], y1[row], eta, momentum)
                V2[row, column] = speed
                W2[row, column] += speed
            last = image
    for r in range(KEPT):
        i = group + r * groups
        if i < N_INPUTS:
            W1[np.uint32(i), j], V1[np.uint32(i), j] = w[r], v[r]
    if thread == 0:
        step[0] = first + steps


SIGNATURES = {
    train_chunk: "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], "
    "float32[:, ::1], uint8[::1], int64[::1], int64[::1], int32, float32, float32)",
}


def launches(a: Arrays, steps: int = 1) -> list[Launch]:
    """The one launch that makes some steps, with weights transposed."""
    threads = MAX_THREADS // a.hidden * a.hidden
    arguments = (a.W1, a.W2, a.V1, a.V2, a.images, a.labels, a.order, a.step, np.int32(steps))
    return [Launch(train_chunk, (1, 1), threads, (*arguments, *RATES))]


def train(a: Arrays, stream: Stream) -> None:
    """All steps of the epoch, launched by the host and not waited for."""
    for first in range(0, a.steps, CHUNK):
        (launch,) = launches(a, min(CHUNK, a.steps - first))
        launch(stream)
