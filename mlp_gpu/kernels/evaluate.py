"""Forward propagation of many images at once, for evaluation: between them no weight changes.

    Y = A tanh(B Z) or Y = Z,  Z = (1, H) W

H (n, n_in), a row per image; W (pad32(n_in + 1), pad32(n_out)), row 0 the bias; Y (n, n_out):
float32, C order. Then `softmax_rows` turns the rows of the last Y into class probabilities.

`forward_batch`: a block of 16 x 16 threads computes a tile of 64 images x 64 neurons. Each thread
computes 4 x 4 of them, 16 apart, in registers. The block walks along the inputs 16 at a time, with
these columns of H and rows of W in shared memory. A number read from shared memory is used four
times, one read from global memory 64 times. In shared memory a warp reads two rows of H, each for
16 threads at once, and 16 consecutive words of W twice: no bank conflicts.

`softmax_rows`: one thread per image.

Not in the papers; the tiling is that of any textbook on matrix products.
"""

import math
from collections.abc import Sequence

import numpy as np

from deepbig_runtime.gpu import DeviceArray, Launch, cuda
from mlp_gpu.kernels.forward import scaled_tanh

SIDE = 16  # threads along each side of a block
EACH = 4  # images, and neurons, per thread
TILE = SIDE * EACH  # images, and neurons, per block
DEPTH = 16  # inputs in shared memory at a time
SOFTMAX_THREADS = 128


@cuda.jit
def forward_batch(Y, H, W, n_in, n_out, hidden):
    thread = cuda.threadIdx.x
    x, y = thread % SIDE, thread // SIDE
    image0, neuron0 = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
    h_tile = cuda.shared.array((TILE, DEPTH), np.float32)
    w_tile = cuda.shared.array((DEPTH, TILE), np.float32)
    z = cuda.local.array((EACH, EACH), np.float32)
    for r in range(EACH):
        for c in range(EACH):
            z[r, c] = 0

    for i0 in range(0, n_in, DEPTH):
        for r in range(EACH):  # 16 threads side by side read 16 inputs of an image
            row = y + SIDE * r
            image, i = image0 + row, i0 + x
            value = np.float32(0)
            if image < H.shape[0] and i < n_in:
                value = H[np.uint32(image), np.uint32(i)]
            h_tile[np.uint32(row), np.uint32(x)] = value
        for r in range(EACH):  # 64 threads side by side read 64 weights of an input
            row, column = thread // TILE + EACH * r, thread % TILE
            i, neuron = i0 + row, neuron0 + column
            value = np.float32(0)
            if i < n_in and neuron < n_out:
                value = W[np.uint32(i + 1), np.uint32(neuron)]
            w_tile[np.uint32(row), np.uint32(column)] = value
        cuda.syncthreads()
        for i in range(DEPTH):
            for r in range(EACH):
                h = h_tile[np.uint32(y + SIDE * r), np.uint32(i)]
                for c in range(EACH):
                    z[r, c] += h * w_tile[np.uint32(i), np.uint32(x + SIDE * c)]
        cuda.syncthreads()

    for r in range(EACH):
        for c in range(EACH):
            image, neuron = image0 + y + SIDE * r, neuron0 + x + SIDE * c
            if image < Y.shape[0] and neuron < n_out:
                a = z[r, c] + W[0, np.uint32(neuron)]
                Y[np.uint32(image), np.uint32(neuron)] = scaled_tanh(a) if hidden else a


@cuda.jit
def softmax_rows(Y):
    image = np.uint32(cuda.grid(1))
    if image < Y.shape[0]:
        highest = Y[image, 0]
        for j in range(1, Y.shape[1]):
            highest = max(highest, Y[image, np.uint32(j)])
        total = np.float32(0)
        for j in range(Y.shape[1]):
            value = math.exp(Y[image, np.uint32(j)] - highest)
            Y[image, np.uint32(j)] = value
            total += value
        for j in range(Y.shape[1]):
            Y[image, np.uint32(j)] /= total


SIGNATURES = {
    forward_batch: "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], int32, int32, boolean)",
    softmax_rows: "void(float32[:, ::1])",
}


def evaluate(states: Sequence[DeviceArray], weights: Sequence[DeviceArray]) -> list[Launch]:
    """Class probabilities of a batch of images.

    states: states[0] the images (n, n_in), then an array (n, n_out) for each layer. weights: a W
    for each layer. Modifies all states but the first; the last gets the probabilities.
    """
    launches = []
    for H, Y, W in zip(states[:-1], states[1:], weights, strict=True):
        n, n_out = Y.shape
        grid = -(-n_out // TILE), -(-n // TILE)
        arguments = (Y, H, W, np.int32(H.shape[1]), np.int32(n_out), Y is not states[-1])
        launches.append(Launch(forward_batch, grid, SIDE * SIDE, arguments))
    blocks = -(-states[-1].shape[0] // SOFTMAX_THREADS)
    launches.append(Launch(softmax_rows, (blocks, 1), SOFTMAX_THREADS, (states[-1],)))
    return launches
