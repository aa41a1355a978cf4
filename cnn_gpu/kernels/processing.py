"""Image processing: fixed filters over the maps of the input (2011, section 3).

    y[i] = h[i],  y[(1 + f) n + i][y, x] = sum of bank[f][v, u] h[i][y + v - K / 2, x + u - K / 2]

for n maps h and K x K filters; a pixel outside a map is the nearest one inside, as guessed in
`cnn_gpu.filters`. h (images, n height, pitch) and y (images, (1 + filters) n height, pitch):
float32, see `cnn_gpu.kernels`. bank (filters, K K) float32.

A block a map of the result, a thread a pixel. The paper prints no kernel for this layer.
"""

import numpy as np

from cnn_gpu.kernels import blocks
from cnn_gpu.layers import Layer
from deepbig_runtime.gpu import DeviceArray, Launch, cuda


@cuda.jit
def process_maps(y, h, bank, n, height, width, size):
    m, image, column, line = cuda.blockIdx.x, cuda.blockIdx.z, cuda.threadIdx.x, blocks.line()
    row = blocks.row_of(m, height, line)
    if m < n:
        y[image, row, np.uint32(column)] = h[image, row, np.uint32(column)]
    else:
        f, i = np.uint32(m // n - 1), m % n
        total = np.float32(0)
        for v in range(size):
            above = min(max(line + v - size // 2, 0), height - 1)
            for u in range(size):
                beside = min(max(column + u - size // 2, 0), width - 1)
                pixel = h[image, blocks.row_of(i, height, above), np.uint32(beside)]
                total += bank[f, np.uint32(v * size + u)] * pixel
        y[image, row, np.uint32(column)] = total


SIGNATURES = {
    process_maps: "void(float32[:, :, ::1], float32[:, :, ::1], float32[:, ::1], int32, int32, "
    "int32, int32)",
}


def process(y: DeviceArray, h: DeviceArray, bank: DeviceArray, layer: Layer) -> list[Launch]:
    """The maps of an image-processing layer from those of the input. Modifies y."""
    sizes = layer.source.n, layer.maps.height, layer.maps.width, layer.kernel[0]
    arguments = (y, h, bank, *map(np.int32, sizes))
    return [Launch(process_maps, *blocks.over(layer.maps, y.shape[0]), arguments)]
