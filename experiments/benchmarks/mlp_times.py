"""Time the nets of Table 1 (2010) and that of the committees (2012): CPU engine and baselines.

The engine trains on all threads, and on one, in turn with copies, reads and multiply-adds on as
many threads: the limits of memory and arithmetic.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import numba
import numpy as np
from msgspec import structs

from experiments.benchmarks import baselines, host
from experiments.benchmarks.baselines import Trainer
from experiments.benchmarks.host import Workload, random_examples
from experiments.results.rows import BenchRow
from mlp_gpu import network
from mlp_gpu.cpu import PREDICT_BATCH, CpuEngine
from mlp_gpu.cpu_window import GROUPS
from mlp_gpu.network import Network, count_weights
from mlp_gpu.training import Schedule
from mlp_gpu.vector_kernel import LANES

ETA = Schedule().eta
NETS: dict[int | str, tuple[int, ...]] = {"841-800-10": (841, 800, 10)} | {**network.NETS}

# Weight updates of a call: enough that its overhead does not count, few enough that it ends soon.
ENGINE_UPDATES = 1_000_000_000
BASELINE_UPDATES = 100_000_000
GPU_BASELINE_IMAGES = 1024
KERNELS = {"forward": host.multiply_forward, "backward": host.multiply_backward}
BATCHES_PER_THREAD = 4  # to evaluate


def engine_bytes(sizes: tuple[int, ...], sweeps: float, per_block: int) -> float:
    """Bytes of weights that the CPU engine must move for one image.

    Layers after the first are read twice for each sweep, forward and backward. Once a block the
    first is read for all images, and all are updated, that is read and written. sweeps: for an
    image on average. per_block: images of a block.
    """
    n_bytes = 4 * count_weights(sizes)
    first = 4 * (sizes[0] + 1) * sizes[1]
    return 2 * sweeps * (n_bytes - first) + (2 * n_bytes + first) / per_block


def training_flops(sizes: tuple[int, ...]) -> int:
    """Multiplications and additions that training on an image needs.

    Forward, back but for the first layer, and the update. Corrections within a block not counted.
    """
    return 2 * (3 * count_weights(sizes) - (sizes[0] + 1) * sizes[1])


def trained(net: Network) -> Network:
    """The net after an epoch of `host.training_examples`; its first windows are not typical."""
    engine = CpuEngine()
    engine.set_network(net)
    images, labels = host.training_examples(net.sizes[0])
    engine.train(images, labels, np.arange(len(labels)), ETA)
    return engine.get_network()


def engine_workload(net: Network, threads: int | None, suffix: str = "") -> Workload:
    """The CPU engine, each call on the next images. threads: as of the engine.

    suffix: of the names of its ceilings.
    """
    engine = CpuEngine(threads=threads)
    engine.set_network(net)
    per_block = engine.images_per_block
    n_images = per_block * -(-ENGINE_UPDATES // (per_block * net.n_weights))
    images, labels = host.training_examples(net.sizes[0])
    orders = cycle(
        np.arange(start, start + n_images) % len(labels)
        for start in range(0, len(labels), n_images)
    )
    engine.train(images, labels, np.arange(per_block), ETA)
    sweeps, _ = engine.count_sweeps()
    return Workload(
        lambda: engine.train(images, labels, next(orders), ETA),
        n_images,
        engine_bytes(net.sizes, sweeps / per_block, per_block),
        training_flops(net.sizes),
        copy="scaled copy" + suffix,
        read="read of memory" + suffix,
        peak="multiply-adds" + suffix,
        vectors=LANES,
    )


def ceiling_workloads(n_weights: int, threads: int, suffix: str = "") -> dict[str, Workload]:
    """Workloads that show the limits of memory and arithmetic, each its own ceiling."""
    copy, read, peak = (
        name + suffix for name in ("scaled copy", "read of memory", "multiply-adds")
    )
    return {
        copy: replace(host.scaled_copy(n_weights, threads), copy=copy),
        read: replace(host.memory_read(n_weights, threads), read=read),
        peak: replace(host.multiply_adds(threads), peak=peak),
    }


def cpu_workloads(net: Network) -> dict[str, Workload]:
    """The CPU engine and its ceilings. Names without a number of threads are of all threads.

    But the engine takes at most GROUPS, and its ceilings with it.
    """
    threads, one = numba.config.NUMBA_NUM_THREADS, ", 1 thread"
    most = min(threads, GROUPS)
    of_engine = f", {most} threads" if most < threads else ""
    evaluation = CpuEngine()
    evaluation.set_network(net)
    n_images = BATCHES_PER_THREAD * PREDICT_BATCH * threads
    images, _ = random_examples(n_images, net.sizes[0])
    return {
        "engine cpu": engine_workload(net, None, of_engine),
        "engine cpu, 1 thread": engine_workload(net, 1, one),
        **(ceiling_workloads(net.n_weights, most, of_engine) if of_engine else {}),
        **ceiling_workloads(net.n_weights, threads),
        **ceiling_workloads(net.n_weights, 1, one),
        **{
            f"kernel, {name}": replace(
                host.kernel(multiply, net.n_weights, threads), peak="multiply-adds"
            )
            for name, multiply in KERNELS.items()
        },
        "engine cpu, evaluation": Workload(
            lambda: evaluation.predict(images),
            n_images,
            flops=2 * net.n_weights,
            peak="multiply-adds",
            vectors=LANES,
        ),
    }


def measure_on_cpu(
    net: Network, makers: dict[str, Callable[..., Trainer]], repeats: int
) -> list[BenchRow]:
    """Rows of the CPU engine, its ceilings, and the baselines that the makers make."""
    workloads = cpu_workloads(net)
    n = BASELINE_UPDATES // net.n_weights
    examples = random_examples(n, net.sizes[0])
    workloads |= baselines.workloads(makers, (net, *examples, ETA), n)
    return [
        structs.replace(row, group="evaluation") if row.name == "engine cpu, evaluation" else row
        for row in host.measure("net", workloads, repeats)
    ]


def measure_baselines_on_gpu(net: Network, repeats: int) -> list[BenchRow]:
    """Rows of the baselines on a GPU, on images of the engine's: windows depend on them."""
    makers, n = baselines.available("net", baselines.GPU), GPU_BASELINE_IMAGES
    images, labels = host.training_examples(net.sizes[0])
    workloads = baselines.workloads(makers, (net, images[:n], labels[:n], ETA), n)
    return host.measure("net", workloads, repeats)
