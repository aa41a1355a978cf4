"""Back-propagation of deltas through a convolution by pulling, BP (2011, section 3.3).

    delta_in[i][v, u] = y'(h[i][v, u]) sum of delta[m][y, x] w[k][v - y step_y, u - x step_x]

over the maps m that read i, k being the connection, and the neurons (y, x) of m whose kernel covers
(v, u):

    max(ceil((u - K_x + 1) / (S_x + 1)), 0) <= x <= min(floor(u / (S_x + 1)), M_x - 1)

and y alike, where K is the kernel, S the skipping factor, S + 1 the step, M the size of map m.

delta (maps * height, pitch), h and delta_in (source maps * source height, pitch): float32, with an
axis of one image in front, see `cnn_gpu.kernels`. w as in `forward`. readers int32 (source maps, 1
+ the most that read a map), the paper's C_BP: the number of maps that read a map, then their
indices. numbers int32 (maps, source maps), its WIDX_BP: the number of each connection, where its
weights begin; -1 where there is none.

A block a map of the layer before, a thread a neuron. "Each thread computes the delta of its
corresponding neuron by pulling deltas from the current layer": nobody else writes there, so nothing
is atomic, and nothing partial is written to be added up. "After summing up the deltas, each thread
multiplies the result by the derivative of the activation function."

Departures from the paper:
- A max-pooling layer has no activation of its own. Where h is its output, y'(h) is the
  derivative at the largest neuron, to which `pooling` passes the delta unchanged.
- No delta is pulled for the input.
"""

import numpy as np

from cnn_gpu.kernels import blocks
from cnn_gpu.layers import Layer
from deepbig_runtime.gpu import DeviceArray, Launch, cuda, device_function
from mlp_gpu.kernels.backward import scaled_tanh_derivative


def pulled_range(i, kernel, step, n_out):
    """The neurons x of a line of n_out that read neuron i of the line before: first and last.

    There may be none: then the last is below the first. In x or y alone; all integers.
    """
    first = 0 if i < kernel else (i - kernel) // step + 1
    return first, min(i // step, n_out - 1)


range_of = device_function(pulled_range)


@cuda.jit
def pull_deltas(
    delta_in,
    delta,
    h,
    w,
    readers,
    numbers,
    source_height,
    height,
    width,
    kernel_y,
    kernel_x,
    step_y,
    step_x,
):
    i, u, v = cuda.blockIdx.x, cuda.threadIdx.x, blocks.line()
    y0, y1 = range_of(v, kernel_y, step_y, height)
    x0, x1 = range_of(u, kernel_x, step_x, width)
    total = np.float32(0)
    for c in range(readers[i, 0]):
        m = np.uint32(readers[i, np.uint32(1 + c)])
        k = np.uint32(numbers[m, i])
        for y in range(y0, y1 + 1):
            row, left = blocks.row_of(m, height, y), (v - y * step_y) * kernel_x + u
            for x in range(x0, x1 + 1):
                total += delta[0, row, np.uint32(x)] * w[k, np.uint32(left - x * step_x)]
    row = blocks.row_of(i, source_height, v)
    delta_in[0, row, np.uint32(u)] = total * scaled_tanh_derivative(h[0, row, np.uint32(u)])


SIGNATURES = {
    pull_deltas: "void(float32[:, :, ::1], float32[:, :, ::1], float32[:, :, ::1], "
    "float32[:, ::1], int32[:, ::1], int32[:, ::1], " + ", ".join(["int32"] * 7) + ")",
}


def tables(connections: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The paper's C_BP and WIDX_BP. connections: bool (source maps, maps)."""
    counts = connections.sum(axis=1)
    readers = np.zeros((len(connections), 1 + counts.max()), np.int32)
    readers[:, 0] = counts
    for row, read_by in zip(readers, connections, strict=True):
        indices = np.flatnonzero(read_by)
        row[1 : 1 + len(indices)] = indices
    numbers = np.full(connections.T.shape, -1, np.int32)
    numbers[connections.T] = np.arange(connections.sum())
    return readers, numbers


def pull(
    delta_in: DeviceArray,
    delta: DeviceArray,
    h: DeviceArray,
    w: DeviceArray,
    readers: DeviceArray,
    numbers: DeviceArray,
    layer: Layer,
) -> list[Launch]:
    """Deltas of a convolution's source from its own. Modifies delta_in."""
    sizes = layer.source.height, layer.maps.height, layer.maps.width, *layer.kernel, *layer.step
    arguments = (delta_in, delta, h, w, readers, numbers, *map(np.int32, sizes))
    return [Launch(pull_deltas, *blocks.over(layer.source, 1), arguments)]
