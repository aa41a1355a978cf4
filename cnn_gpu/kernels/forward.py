"""Forward propagation of a convolution, FP (2011, section 3.2).

    y[m] = A tanh(B a),  a[y, x] = bias[m] + sum of h[i][y step_y + v, x step_x + u] w[k][v, u]

over the maps i that m reads, k being the connection, and all places (v, u) of the kernel.

h (n, source maps * source height, pitch) and y (n, maps * height, pitch): float32, see
`cnn_gpu.kernels`. w (connections, kernel_y * kernel_x) and bias (maps,) float32. connections int32
(maps, 2 + the most that a map reads), the paper's C: "in the first column we store the number of
previous connections", which is the number of the map's first one; "the second column stores the
number of connections, followed by corresponding indices of maps".

A block a map, a thread a neuron (see `blocks`). "Each thread starts by initializing its sum with
the bias, then loops over all map connections, convolving the appropriate patch of the input map
with the corresponding kernel." All threads of a block read the same weight at a time.

Departures from the paper:
- Its loops are "unrolled loops within template kernels", one for each kernel size. Here the sizes
  are arguments, and one kernel serves every net.
- The third axis of the grid has images: in an evaluation thousands, in a training one.
"""

import numpy as np

from cnn_gpu.kernels import blocks
from cnn_gpu.layers import Layer
from deepbig_runtime.gpu import DeviceArray, Launch, cuda
from mlp_gpu.kernels.forward import scaled_tanh

PREVIOUS, COUNT, FIRST_INDEX = 0, 1, 2  # columns of `connections`


@cuda.jit
def convolve_maps(
    y, h, w, bias, connections, height, source_height, kernel_y, kernel_x, step_y, step_x
):
    m, image, column, line = cuda.blockIdx.x, cuda.blockIdx.z, cuda.threadIdx.x, blocks.line()
    total = bias[m]
    first = connections[m, PREVIOUS]
    for c in range(connections[m, COUNT]):
        i = connections[m, np.uint32(FIRST_INDEX + c)]
        k, top = np.uint32(first + c), i * source_height + line * step_y
        for v in range(kernel_y):
            for u in range(kernel_x):
                state = h[image, np.uint32(top + v), np.uint32(column * step_x + u)]
                total += state * w[k, np.uint32(v * kernel_x + u)]
    y[image, blocks.row_of(m, height, line), np.uint32(column)] = scaled_tanh(total)


SIGNATURES = {
    convolve_maps: "void(float32[:, :, ::1], float32[:, :, ::1], float32[:, ::1], float32[::1], "
    "int32[:, ::1], int32, int32, int32, int32, int32, int32)",
}


def table(connections: np.ndarray) -> np.ndarray:
    """The paper's C. connections: bool (source maps, maps), as `cnn_gpu.network` has them."""
    counts = connections.sum(axis=0)
    found = np.zeros((connections.shape[1], FIRST_INDEX + counts.max()), np.int32)
    found[:, PREVIOUS] = np.cumsum(counts) - counts
    found[:, COUNT] = counts
    for row, reads in zip(found, connections.T, strict=True):
        indices = np.flatnonzero(reads)
        row[FIRST_INDEX : FIRST_INDEX + len(indices)] = indices
    return found


def convolve(
    y: DeviceArray,
    h: DeviceArray,
    w: DeviceArray,
    bias: DeviceArray,
    connections: DeviceArray,
    layer: Layer,
) -> list[Launch]:
    """States y of a convolutional layer from the states h of its source. Modifies y."""
    sizes = layer.maps.height, layer.source.height, *layer.kernel, *layer.step
    arguments = (y, h, w, bias, connections, *map(np.int32, sizes))
    return [Launch(convolve_maps, *blocks.over(layer.maps, y.shape[0]), arguments)]
