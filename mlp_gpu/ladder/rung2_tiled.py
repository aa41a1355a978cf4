"""Rung 2, tiled: the forward kernel reads weights and inputs through shared memory.

What changed: in the forward kernel alone. A block loads a tile of W1, all neurons by 8 inputs,
into shared memory, with neighbouring threads reading neighbouring weights, and the 8 inputs beside
it; then each thread adds up its row of the tile. The blog: "I bring parts of the weight matrices
and input vector into shared memory". A row of the tile takes 9 words and not 8, so that the threads
of a warp, each in its row, read from 32 different banks. They write a tile by 4 rows at a time,
which takes two passes.

Why it helps, and why not: tiles are for data that are used again. In a product of two matrices
every number of a tile is. For one image at a time every weight is used once, so no tile can spare a
read. What it spares is the walk along rows: 32 threads that fill the tile read 4 sectors of 32
bytes instead of 32. The next rung has that without a tile. Only the 8 inputs are used by all
threads.
"""

import numpy as np

from deepbig_runtime.gpu import Launch, Stream, cuda, play
from mlp_gpu.ladder import arrays
from mlp_gpu.ladder import rung1_naive as naive
from mlp_gpu.ladder.arrays import Arrays
from mlp_gpu.ladder.net import MAX_HIDDEN
from mlp_gpu.ladder.rung1_naive import sigmoid

TRANSPOSED = naive.TRANSPOSED
TILE = 8  # inputs
ROW = TILE + 1  # words of a row in shared memory


@cuda.jit
def forward_tiled(y1, y2, W1, W2, images, order, step):
    thread, hidden = cuda.threadIdx.x, y1.shape[0]
    j = np.uint32(thread)
    image = np.uint32(order[np.uint32(step[0])])
    weights = cuda.shared.array((MAX_HIDDEN, ROW), np.float32)
    inputs = cuda.shared.array(TILE, np.float32)
    total = np.float32(0)
    for first in range(0, images.shape[1], TILE):  # of 784 inputs: 98 whole tiles
        for place in range(thread, hidden * TILE, hidden):
            row, column = np.uint32(place // TILE), place % TILE
            weights[row, np.uint32(column)] = W1[row, np.uint32(first + column)]
        for column in range(thread, TILE, hidden):
            inputs[np.uint32(column)] = images[image, np.uint32(first + column)]
        cuda.syncthreads()
        for i in range(TILE):
            total += weights[j, i] * inputs[i]
        cuda.syncthreads()  # before the next tile is written
    y1[j] = sigmoid(total)
    cuda.syncthreads()
    if j < y2.shape[0]:
        total = np.float32(0)
        for i in range(y1.shape[0]):
            total += W2[j, np.uint32(i)] * y1[np.uint32(i)]
        y2[j] = sigmoid(total)


SIGNATURES = {
    forward_tiled: "void(float32[::1], float32[::1], float32[:, ::1], float32[:, ::1], "
    "float32[:, ::1], int64[::1], int64[::1])",
}


def launches(a: Arrays) -> list[Launch]:
    """The launches that make one step, in order."""
    return arrays.launches(a, (forward_tiled, *list(naive.SIGNATURES)[1:]), naive.RATES)


def train(a: Arrays, stream: Stream) -> None:
    """All steps of the epoch, launched by the host and not waited for."""
    play(launches(a) * a.steps, stream)
