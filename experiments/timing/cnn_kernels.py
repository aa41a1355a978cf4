"""The kernels that train a convolutional net, layer by layer, and what each of them must move."""

from collections.abc import Iterator

import numpy as np

from cnn_gpu.cuda import constants_of, map_layers, padded, perceptron_sizes
from cnn_gpu.kernels import backward, blocks, forward, layout, weights
from cnn_gpu.layers import Layer, Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime.gpu import DeviceArray, Launch, Stream
from experiments.timing.gpu import ETA, Kernel, RandomData, connected_kernels, picking_kernel


def kernel_bytes(layer: Layer) -> dict[str, int]:
    """The least bytes that each kernel must move for a convolution, by the kernel's name.

    States, deltas, weights and entries of tables count once, 4 bytes each; padding does not count.
    """
    n_in, n_out, n = layer.source.n_neurons, layer.maps.n_neurons, layer.n_connections
    n_words = {
        "convolve_maps": n_in + layer.n_weights + n + 2 * layer.maps.n + n_out,
        "pull_deltas": n_out + 2 * n_in + layer.n_weights - layer.maps.n + 2 * n + layer.source.n,
        "adjust_weights": n_in + n_out + 2 * layer.n_weights + 3 * n,
    }
    return {name: 4 * number for name, number in n_words.items()}


def copying_kernel(launches: list[Launch], number: int, maps: Maps) -> Kernel:
    """The kernel that brings all neurons from rows to maps or back."""
    (launch,) = launches
    n = maps.n_neurons
    return Kernel(launch.kernel.py_func.__name__, number, n, n, launch, 8 * n, 0)


def training_kernels(network: ConvNetwork, stream: Stream) -> Iterator[Kernel]:
    """The kernels that train a net on one image, layer by layer, with random data of their own.

    stream: on which the data are copied to the GPU. Raises ValueError unless all layers have
    weights and the first is a convolution, as in the nets of Table 1 (2011).
    """
    data, layers = RandomData(stream), map_layers(network)
    if not layers or not all(layer.has_weights for layer in layers):
        raise ValueError("expected convolutions, then fully connected layers")

    def floats(maps: Maps) -> DeviceArray:
        return data.floats(*blocks.shape(maps, 1))

    first, last = network.source, layers[-1].maps
    eta = data.put(np.full(1, ETA, np.float32))
    yield picking_kernel(first.n_neurons, data)
    rows = data.floats(1, first.n_neurons)
    yield copying_kernel(layout.to_maps(floats(first), rows, first), 1, first)
    for number, layer in enumerate(layers, start=1):
        given = constants_of(layer, network.weights[number - 1], network.connections[number - 1])
        at = {name: data.put(array) for name, array in given.items()}
        h, delta = floats(layer.source), floats(layer.maps)
        launches = forward.convolve(
            floats(layer.maps), h, at["w"], at["bias"], at["connections"], layer
        )
        if number > 1:
            tables = at["readers"], at["numbers"]
            launches += backward.pull(floats(layer.source), delta, h, at["w"], *tables, layer)
        launches += weights.adjust(at["w"], at["bias"], delta, h, at["pairs"], eta, layer)
        n_in, n_out = layer.source.n_neurons, layer.maps.n_neurons
        for launch in launches:
            name = launch.kernel.py_func.__name__
            n_bytes, flops = kernel_bytes(layer)[name], 2 * layer.n_multiply_adds
            yield Kernel(name, number, n_in, n_out, launch, n_bytes, flops)
    rows = data.floats(1, last.n_neurons)
    yield copying_kernel(layout.to_rows(rows, floats(last), last), len(layers), last)
    yield copying_kernel(layout.to_maps(floats(last), rows, last), len(layers), last)
    connected = [padded(W) for W in network.weights[len(layers) :] if W is not None]
    yield from connected_kernels(connected, perceptron_sizes(network), data, len(layers) + 1)
