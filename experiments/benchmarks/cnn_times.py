"""Time the convolutional nets of Table 1 (2011): the CPU engine, baselines, the GPU's kernels."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.cuda import ConvCudaEngine, map_layers
from cnn_gpu.layers import Layer, Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime.gpu import Launch
from experiments.benchmarks import baselines, host
from experiments.benchmarks.gpu_times import (
    ETA,
    Kernel,
    Timer,
    connected_kernel,
    engine_makers,
    measure_kernels,
    step_launches,
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
    kernels = training_kernels(network)

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


def map_kernel(launch: Launch, number: int, layer: Layer) -> Kernel:
    """A kernel of a convolution, or one that brings all neurons from rows to maps or back."""
    name, n_in, n_out = launch.kernel.py_func.__name__, layer.source.n_neurons, layer.maps.n_neurons
    if name in ("rows_to_maps", "maps_to_rows"):
        n = n_in if number == 1 else n_out
        return Kernel(name, number, n, n, launch, 8 * n, 0)
    n_bytes, flops = convolution_bytes(layer)[name], 2 * layer.n_multiply_adds
    return Kernel(name, number, n_in, n_out, launch, n_bytes, flops)


def training_kernels(network: ConvNetwork) -> list[Kernel]:
    """The kernels that train a net on one image, layer by layer, with random images.

    network: of several convolutions, then fully connected layers, as in Table 1 (2011).
    """
    maps, n = map_layers(network), network.source.n_neurons
    (_, pick), *launches = step_launches(ConvCudaEngine("launch"), network, len(maps))
    kernels = [connected_kernel(pick, 1, n, n)]
    for number, launch in launches:
        layer = network.layers[number - 1]
        if number <= len(maps):
            kernels.append(map_kernel(launch, number, layer))
        else:
            sizes = layer.source.n_neurons, layer.maps.n_neurons
            kernels.append(connected_kernel(launch, number, *sizes))
    return kernels
