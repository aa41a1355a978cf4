"""Time the convolutional nets of Table 1 (2011): the CPU engine, baselines, the GPU's kernels."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.cuda import ConvCudaEngine, constants_of, map_layers, padded, perceptron_sizes
from cnn_gpu.kernels import backward, blocks, forward, layout, weights
from cnn_gpu.layers import Layer, Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime.gpu import DeviceArray, Launch, Stream
from experiments.benchmarks import baselines, host
from experiments.benchmarks.gpu_times import (
    ETA,
    Kernel,
    RandomData,
    Timer,
    connected_kernels,
    engine_makers,
    measure_kernels,
    picking_kernel,
)
from experiments.benchmarks.host import Workload, random_examples
from experiments.datasets import data
from experiments.results.cnn_tables import PAPER
from experiments.results.rows import BenchRow
from mlp_gpu.network import N_CLASSES
from mlp_gpu.vector_kernel import LANES

KERNELS_OF = 3  # the net whose kernels are timed one by one

# Images per call: enough that the overhead of a call does not count, few enough that it ends soon.
ENGINE_IMAGES = 1000
CPU_BASELINE_IMAGES = 20
GPU_BASELINE_IMAGES = 500

PEAK = "multiply-adds"


def initial(number: int) -> ConvNetwork:
    """A net of Table 1 before its first step."""
    source = Maps(1, data.SIDE, data.SIDE)
    return ConvNetwork.initial(PAPER[number].layers, source, N_CLASSES, seed=0)


def training_flops(network: ConvNetwork) -> int:
    """Multiplications and additions that training on an image needs, of connections that are there.

    As many for the weights as forward; as many back too, but for the first layer with weights.
    """
    forward = [2 * layer.n_multiply_adds for layer in network.layers if layer.has_weights]
    return 3 * sum(forward) - forward[0]


def baseline_workloads(
    makers: Mapping[str, Callable[..., Any]],
    network: ConvNetwork,
    n_images: int,
    peak: str | None = None,
) -> dict[str, Workload]:
    """Workloads of the baselines. peak: see `Workload`."""
    examples = random_examples(n_images, network.source.n_neurons)
    found = baselines.workloads(makers, (network, *examples, ETA), n_images)
    flops = training_flops(network)
    return {name: replace(one, flops=flops, peak=peak) for name, one in found.items()}


def measure_on_cpu(network: ConvNetwork, repeats: int) -> list[BenchRow]:
    """Rows of the CPU engine, its baselines, and multiply-adds."""
    images, labels = random_examples(ENGINE_IMAGES, network.source.n_neurons)
    engine = ConvCpuEngine()
    engine.set_network(network)
    train = partial(engine.train, images, labels, np.arange(ENGINE_IMAGES), ETA)
    flops = training_flops(network)
    ours = Workload(train, ENGINE_IMAGES, flops=flops, peak=PEAK, vectors=LANES)
    workloads = {"engine cpu": ours, PEAK: replace(host.multiply_adds(), peak=PEAK)}
    makers = baselines.available("cnn", baselines.CPU)
    workloads |= baseline_workloads(makers, network, CPU_BASELINE_IMAGES, PEAK)
    return host.measure("cnn", workloads, repeats)


def measure_on_gpu(
    network: ConvNetwork, timer: Timer, repeats: int, kernel_by_kernel: bool
) -> Iterator[BenchRow]:
    """Rows of the GPU engine, of PyTorch on the GPU and, if asked for, of each kernel."""
    timer.wake()
    kernels = list(training_kernels(network, timer.stream))

    def measure_baselines() -> list[BenchRow]:
        makers = baselines.available("cnn", baselines.GPU)
        return host.measure(
            "cnn", baseline_workloads(makers, network, GPU_BASELINE_IMAGES), repeats
        )

    makers: list[Callable[[], Iterable[BenchRow]]] = [
        *engine_makers(ConvCudaEngine, network, kernels, training_flops(network), repeats)
    ]
    if kernel_by_kernel:
        makers.append(partial(measure_kernels, kernels, timer, repeats, "cnn kernel"))
    return host.attempts([*makers, measure_baselines])


def convolution_bytes(layer: Layer) -> dict[str, int]:
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
            n_bytes, flops = convolution_bytes(layer)[name], 2 * layer.n_multiply_adds
            yield Kernel(name, number, n_in, n_out, launch, n_bytes, flops)
    rows = data.floats(1, last.n_neurons)
    yield copying_kernel(layout.to_rows(rows, floats(last), last), len(layers), last)
    yield copying_kernel(layout.to_maps(floats(last), rows, last), len(layers), last)
    connected = [padded(W) for W in network.weights[len(layers) :] if W is not None]
    yield from connected_kernels(connected, perceptron_sizes(network), data, len(layers) + 1)
