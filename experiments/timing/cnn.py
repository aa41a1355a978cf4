"""Time the convolutional nets of Table 1 (2011): the CPU engine, its peers, and the GPU engine."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.cuda import ConvCudaEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from experiments.running import data
from experiments.running.messages import tell
from experiments.scoring.cnn_tables import PAPER
from experiments.timing import ceilings, cnn_peers, host
from experiments.timing.cnn_kernels import training_kernels
from experiments.timing.gpu import Timer, measure_kernels, time_training
from experiments.timing.host import Workload, random_examples
from experiments.timing.measurement import Measurement
from experiments.timing.peers import Peer
from mlp_gpu.engine import SCHEDULES
from mlp_gpu.network import N_CLASSES
from mlp_gpu.training import Schedule

ETA = Schedule().eta
KERNELS_OF = 3  # the net whose kernels are timed one by one

# Images per call: enough that the overhead of a call does not count, few enough that it ends soon.
ENGINE_IMAGES = 1000
CPU_PEER_IMAGES = 20
GPU_PEER_IMAGES = 500

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


def engine_workload(network: ConvNetwork) -> Workload:
    """The CPU engine."""
    images, labels = random_examples(ENGINE_IMAGES, network.source.n_neurons)
    order = np.arange(ENGINE_IMAGES)
    engine = ConvCpuEngine()
    engine.set_network(network)
    flops = training_flops(network)
    return Workload(
        lambda: engine.train(images, labels, order, ETA),
        ENGINE_IMAGES,
        flops=flops,
        peak=PEAK,
    )


def peer_workloads(
    makers: dict[str, Callable[..., Peer]],
    network: ConvNetwork,
    n_images: int,
    peak: str | None = None,
) -> dict[str, Workload]:
    """Those peers that take the steps of our engine on n_images images.

    Their names say with which settings they train. peak: see `Workload`.
    """
    images, labels = random_examples(n_images, network.source.n_neurons)
    engine = ConvCpuEngine()
    engine.set_network(network)
    engine.train(images, labels, np.arange(n_images), ETA)
    trained, notes = engine.get_network(), {}

    def maker(name: str) -> Callable[[], Callable[[], None]]:
        def make() -> Callable[[], None]:
            tell(f"  preparing {name}")
            peer = makers[name](network, images, labels, ETA)
            peer.train()
            cnn_peers.check(peer, network, trained)
            notes[name] = peer.note
            return peer.train

        return make

    made = host.make_workloads({name: maker(name) for name in makers}, n_images)
    flops = training_flops(network)
    return {name + notes[name]: replace(one, flops=flops, peak=peak) for name, one in made.items()}


def measure_on_cpu(network: ConvNetwork, repeats: int) -> list[Measurement]:
    """Measurements of the CPU engine, its peers, and multiply-adds."""
    peak = replace(ceilings.multiply_adds(), peak=PEAK)
    workloads = {"engine cpu": engine_workload(network), PEAK: peak}
    workloads |= peer_workloads(cnn_peers.on_cpu(), network, CPU_PEER_IMAGES, PEAK)
    return host.measure("cnn", workloads, repeats)


def measure_on_gpu(
    network: ConvNetwork, timer: Timer, repeats: int, kernel_by_kernel: bool
) -> Iterator[Measurement]:
    """Measurements of the GPU engine, of PyTorch on the GPU and, if asked for, of each kernel."""
    timer.wake()
    kernels = list(training_kernels(network, timer.stream))

    def measure_schedule(schedule: str) -> list[Measurement]:
        engine = ConvCudaEngine(schedule)
        engine.set_network(network)
        return [
            Measurement(
                group="cnn",
                name=f"engine cuda {schedule}",
                us=time_training(engine, network.source.n_neurons, repeats),
                n_images=1,
                n_bytes=sum(kernel.n_bytes for kernel in kernels),
                flops=training_flops(network),
            )
        ]

    def measure_peers() -> list[Measurement]:
        workloads = peer_workloads(cnn_peers.on_gpu(), network, GPU_PEER_IMAGES)
        return host.measure("cnn", workloads, repeats)

    makers: list[Callable[[], Iterable[Measurement]]] = [
        partial(measure_schedule, schedule) for schedule in SCHEDULES
    ]
    if kernel_by_kernel:
        makers.append(partial(measure_kernels, kernels, timer, repeats, "cnn kernel"))
    return host.attempts([*makers, measure_peers])
