"""Adjusting the weights of a convolution, AW (2011, section 3.4).

    w[k][v, u] -= eta times the sum of delta[m][y, x] h[i][y step_y + v, x step_x + u]
    bias[m]    -= eta times the sum of delta[m][y, x]

over all neurons (y, x) of map m, where connection k leads from map i to map m.

delta (maps * height, pitch) and h (source maps * source height, pitch): float32, with an axis of
one image in front, see `cnn_gpu.kernels`. w and bias as in `forward`. pairs int32 (connections, 3),
the paper's list of "map index pairs": m, i, and 1 for the connection that has the bias of m with
it, its first one. eta float32 (1,).

"The 1d grid has a block for each connection between two maps. Thread blocks are 2d, with a
corresponding thread for every kernel weight. The bias weight is included as an entire row of
threads", so a block has (K_x + 1) x K_y threads. "Most of the time these additional K_y threads
will do nothing, thread (0,0) being activated only for blocks that have to process the bias": here
thread (K_x, 0).

Departure from the paper: a kernel of so many weights that a block cannot have as many threads has
fewer lines of threads, and each thread adjusts the weights of several lines.
"""

import numpy as np

from cnn_gpu.kernels import blocks
from cnn_gpu.layers import Layer
from deepbig_runtime.gpu import DeviceArray, Launch, cuda

OF, FROM, HAS_BIAS = 0, 1, 2  # columns of `pairs`


@cuda.jit
def adjust_weights(
    w,
    bias,
    delta,
    h,
    pairs,
    eta,
    height,
    width,
    source_height,
    kernel_y,
    kernel_x,
    step_y,
    step_x,
):
    k, u = cuda.blockIdx.x, cuda.threadIdx.x
    m, i = pairs[k, OF], pairs[k, FROM]
    if u < kernel_x:
        for v in range(cuda.threadIdx.y, kernel_y, cuda.blockDim.y):
            total = np.float32(0)
            for y in range(height):
                row = blocks.row_of(m, height, y)
                read = blocks.row_of(i, source_height, y * step_y + v)
                for x in range(width):
                    total += delta[0, row, np.uint32(x)] * h[0, read, np.uint32(x * step_x + u)]
            w[k, np.uint32(v * kernel_x + u)] -= eta[0] * total
    elif cuda.threadIdx.y == 0 and pairs[k, HAS_BIAS]:
        total = np.float32(0)
        for y in range(height):
            for x in range(width):
                total += delta[0, blocks.row_of(m, height, y), np.uint32(x)]
        bias[np.uint32(m)] -= eta[0] * total


SIGNATURES = {
    adjust_weights: "void(float32[:, ::1], float32[::1], float32[:, :, ::1], float32[:, :, ::1], "
    "int32[:, ::1], float32[::1], " + ", ".join(["int32"] * 7) + ")",
}


def pairs_of(connections: np.ndarray) -> np.ndarray:
    """The list of connections. connections: bool (source maps, maps)."""
    of, source = np.nonzero(connections.T)
    has_bias = np.diff(of, prepend=-1) > 0
    return np.stack([of, source, has_bias], axis=1).astype(np.int32)


def adjust(
    w: DeviceArray,
    bias: DeviceArray,
    delta: DeviceArray,
    h: DeviceArray,
    pairs: DeviceArray,
    eta: DeviceArray,
    layer: Layer,
) -> list[Launch]:
    """One step of gradient descent on a convolution. Modifies w and bias."""
    (kernel_y, kernel_x), maps = layer.kernel, layer.maps
    lines = min(kernel_y, blocks.MAX_THREADS // (kernel_x + 1))
    sizes = maps.height, maps.width, layer.source.height, kernel_y, kernel_x, *layer.step
    arguments = (w, bias, delta, h, pairs, eta, *map(np.int32, sizes))
    return [Launch(adjust_weights, (pairs.shape[0], 1), (kernel_x + 1, lines), arguments)]
