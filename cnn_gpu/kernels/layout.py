"""From rows of neurons, by y, x and map, to maps, and back.

    maps[image, m height + y, x] = rows[image, (y width + x) n_maps + m]

rows (n, height width n_maps) and maps (n, n_maps height, pitch): float32, C order. Images, and the
inputs of fully connected layers, are rows; convolutions and max-pooling read maps. A thread copies
one neuron. Not in the paper.
"""

import numpy as np

from cnn_gpu.kernels import blocks
from cnn_gpu.layers import Maps
from deepbig_runtime.gpu import DeviceArray, Launch, cuda


@cuda.jit
def rows_to_maps(maps, rows, height, width):
    m, image, x, y = cuda.blockIdx.x, cuda.blockIdx.z, cuda.threadIdx.x, blocks.line()
    place = np.uint32((y * width + x) * cuda.gridDim.x + m)
    maps[image, blocks.row_of(m, height, y), np.uint32(x)] = rows[image, place]


@cuda.jit
def maps_to_rows(rows, maps, height, width):
    m, image, x, y = cuda.blockIdx.x, cuda.blockIdx.z, cuda.threadIdx.x, blocks.line()
    place = np.uint32((y * width + x) * cuda.gridDim.x + m)
    rows[image, place] = maps[image, blocks.row_of(m, height, y), np.uint32(x)]


SIGNATURES = {
    rows_to_maps: "void(float32[:, :, ::1], float32[:, ::1], int32, int32)",
    maps_to_rows: "void(float32[:, ::1], float32[:, :, ::1], int32, int32)",
}


def to_maps(there: DeviceArray, rows: DeviceArray, maps: Maps) -> list[Launch]:
    """Put rows (n, neurons) into an array of maps. Modifies there."""
    arguments = (there, rows, np.int32(maps.height), np.int32(maps.width))
    return [Launch(rows_to_maps, *blocks.over(maps, rows.shape[0]), arguments)]


def to_rows(rows: DeviceArray, there: DeviceArray, maps: Maps) -> list[Launch]:
    """Put an array of maps into rows (n, neurons). Modifies rows."""
    arguments = (rows, there, np.int32(maps.height), np.int32(maps.width))
    return [Launch(maps_to_rows, *blocks.over(maps, rows.shape[0]), arguments)]
