"""Max-pooling, forward and back (2011, section 3: non-overlapping rectangles).

    y[m][y, x] = the largest of h[m] in the rectangle of K_y x K_x neurons from (y K_y, x K_x) on

h (n, maps * source height, pitch) and y (n, maps * height, pitch): float32, see `cnn_gpu.kernels`.
winners int32, of the shape of y: which neuron of its rectangle was the largest, by y, then x.

`pool_maps`: a block a map, a thread a rectangle. `unpool_deltas`, back: a block a map, a thread a
neuron of the layer before, which pulls the delta of its rectangle if it was the largest there, and
else has none. The paper describes no kernels for this layer.

Guesses: of equal neurons the first wins, by y, then x; neurons that are left over at the right and
lower border, because the rectangles do not divide the map, are not read.
"""

import numpy as np

from cnn_gpu.kernels import blocks
from cnn_gpu.layers import Layer
from deepbig_runtime.gpu import DeviceArray, Launch, cuda


@cuda.jit
def pool_maps(y, winners, h, height, source_height, kernel_y, kernel_x):
    m, image, column, line = cuda.blockIdx.x, cuda.blockIdx.z, cuda.threadIdx.x, blocks.line()
    top, left = m * source_height + line * kernel_y, column * kernel_x
    best, winner = h[image, np.uint32(top), np.uint32(left)], 0
    for v in range(kernel_y):
        for u in range(kernel_x):
            state = h[image, np.uint32(top + v), np.uint32(left + u)]
            if state > best:
                best, winner = state, v * kernel_x + u
    row = blocks.row_of(m, height, line)
    y[image, row, np.uint32(column)] = best
    winners[image, row, np.uint32(column)] = winner


@cuda.jit
def unpool_deltas(delta_in, delta, winners, source_height, height, width, kernel_y, kernel_x):
    m, u, v = cuda.blockIdx.x, cuda.threadIdx.x, blocks.line()
    y, x = v // kernel_y, u // kernel_x
    found = np.float32(0)
    if y < height and x < width:
        row, place = blocks.row_of(m, height, y), v % kernel_y * kernel_x + u % kernel_x
        if winners[0, row, np.uint32(x)] == place:
            found = delta[0, row, np.uint32(x)]
    delta_in[0, blocks.row_of(m, source_height, v), np.uint32(u)] = found


SIGNATURES = {
    pool_maps: "void(float32[:, :, ::1], int32[:, :, ::1], float32[:, :, ::1], int32, int32, "
    "int32, int32)",
    unpool_deltas: "void(float32[:, :, ::1], float32[:, :, ::1], int32[:, :, ::1], int32, int32, "
    "int32, int32, int32)",
}


def pool(y: DeviceArray, winners: DeviceArray, h: DeviceArray, layer: Layer) -> list[Launch]:
    """The largest of each rectangle. Modifies y and winners."""
    sizes = layer.maps.height, layer.source.height, *layer.kernel
    arguments = (y, winners, h, *map(np.int32, sizes))
    return [Launch(pool_maps, *blocks.over(layer.maps, y.shape[0]), arguments)]


def unpool(
    delta_in: DeviceArray, delta: DeviceArray, winners: DeviceArray, layer: Layer
) -> list[Launch]:
    """Deltas of max-pooling's source from its own. Modifies delta_in."""
    sizes = layer.source.height, layer.maps.height, layer.maps.width, *layer.kernel
    arguments = (delta_in, delta, winners, *map(np.int32, sizes))
    return [Launch(unpool_deltas, *blocks.over(layer.source, 1), arguments)]
