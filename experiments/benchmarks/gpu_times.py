"""Time the GPU engine: each kernel of each layer, the evaluation of a batch, whole nets.

A kernel's time is the one between two CUDA events around its launch. Before the first event a
memset keeps the GPU busy until the host has launched everything, so that no time of the host is
included. The memset also drives all other data out of the L2 cache, which is then full of zeros
still to be written back: the state `cold`. For `warm` the kernel runs once more between memset and
event. An empty kernel, timed the same way, shows the shortest time that can be measured.

Each kernel takes turns with a copy on the GPU that moves as many bytes, read and written, in the
same state of the cache.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from cnn_gpu.network import ConvNetwork
from deepbig_runtime import gpu
from deepbig_runtime.errors import Problem
from deepbig_runtime.gpu import DeviceArray, Launch, Stream, play
from experiments.benchmarks import baselines
from experiments.benchmarks.columns import Ceiling, bench_row
from experiments.benchmarks.host import attempts, random_examples, training_examples
from experiments.benchmarks.mlp_times import ETA, training_flops
from experiments.results.rows import BenchRow
from mlp_gpu import cuda as engine
from mlp_gpu.cuda import CudaEngine, OnlineCudaEngine
from mlp_gpu.engine import SCHEDULES, WINDOW_IMAGES_PER_BLOCK
from mlp_gpu.kernels import backward, forward
from mlp_gpu.kernels.evaluate import evaluate
from mlp_gpu.network import Network, pad32
from mlp_gpu.tensor_cores import fastest
from mlp_gpu.window import products, progress
from mlp_gpu.window.engine import WindowCudaEngine
from mlp_gpu.window.workspace import Workspace

# Of the sweep whose kernels are timed, half way through a block; and of others, without baselines.
WINDOW_IMAGES, OTHER_WINDOWS = 256, (128, 512)
# Before the launch the L2 cache holds as much of the kernel's data as it has room for, or none.
CACHE_STATES = ("warm", "cold")

MIN_MEMSET_BYTES = 1 << 29  # takes some 0.2 ms of an H100
MEMSET_COUNTS = (1, 4, 16, 64, 256)  # tried one after another: more where the host takes longer
NEEDED_GPU_BYTES = 3 * MIN_MEMSET_BYTES  # for the memset, and for net 4
WAKE_SECONDS = 0.5

N_DIGITS = 60_000  # that an engine is timed on
N_IMAGES = 1000  # different ones
N_STEPS = 1 << 16  # in an epoch: more than a kernel is launched, since each launch is a step
MAX_REPEATS = 1000

# They multiply and add once for each weight.
WEIGHT_KERNELS = ("forward_partial", "delta_partial", "update_weights")

PAPER_GB_PER_SECOND = {"forward_partial": 115}  # on a GTX 280 (2010, appendix)

Enqueue = Callable[[Stream], None]  # puts work into a stream and does not wait for it


class Timer:
    """Times work that is put into `stream`."""

    def __init__(self) -> None:
        self.stream = gpu.new_stream()
        n_bytes = max(MIN_MEMSET_BYTES, 2 * gpu.cuda.get_current_device().L2_CACHE_SIZE)
        self._buffer = gpu.device_array((n_bytes,), np.uint8)

    def __call__(self, enqueue: Enqueue, state: str) -> float:
        """Microseconds that the GPU takes for the work. state: one of CACHE_STATES.

        Raises Problem if the host is so slow that its own time would be included.
        """
        enqueue(self.stream)  # compiles the kernels, the first time
        for n_memsets in MEMSET_COUNTS:
            microseconds, late = self._once(enqueue, state, n_memsets)
            if not late:
                return microseconds
        raise Problem(
            "the host launches kernels too slowly for them to be timed; unset "
            "CUDA_LAUNCH_BLOCKING, end what else runs on this machine, and start again"
        )

    def _once(self, enqueue: Enqueue, state: str, n_memsets: int) -> tuple[float, bool]:
        """Microseconds, and whether the host was late: whether the memsets had ended before."""
        start, end = gpu.cuda.event(), gpu.cuda.event()
        for _ in range(n_memsets):
            self._memset()
        if state == "warm":
            enqueue(self.stream)
        start.record(self.stream)
        enqueue(self.stream)
        end.record(self.stream)
        late = start.query()
        end.synchronize()
        return 1e3 * start.elapsed_time(end), late

    def wake(self) -> None:
        """Keep the GPU busy for a moment: after an idle time its clock is slow at first."""
        until = time.perf_counter() + WAKE_SECONDS
        while time.perf_counter() < until:
            self._memset()
            gpu.synchronize(self.stream)

    def _memset(self) -> None:
        n_bytes = self._buffer.nbytes
        gpu.cuda.cudadrv.driver.device_memset(self._buffer, 0, n_bytes, stream=self.stream)


@dataclass(frozen=True)
class Kernel:
    """A kernel as it is launched for a layer, counted from 1.

    n_bytes: that it must move. flops: its multiplications and additions, 0 where they are few.
    """

    name: str
    layer: int
    n_in: int
    n_out: int
    launch: Callable[[Stream], None]
    n_bytes: int
    flops: int


def kernel_bytes(n_in: int, n_out: int) -> dict[str, int]:
    """The least bytes that each kernel must move for a layer, by the kernel's name.

    Weights, vectors and the partial sums of the reductions count once, 4 bytes each; padding does
    not count, nor do the label, the step and the loss of output_delta, some 40 bytes.
    """
    weights = (n_in + 1) * n_out
    forward_sums = -(-(n_in + 1) // forward.INPUTS) * n_out
    backward_sums = -(-n_out // backward.PATCH) * n_in
    n_words = {
        "pick_image": 2 * n_in,
        "forward_partial": weights + n_in + forward_sums,
        "forward_reduce": forward_sums + n_out,
        "output_delta": forward_sums + n_out,
        "delta_partial": weights + n_out + backward_sums,
        "delta_reduce": backward_sums + 2 * n_in,
        "update_weights": 2 * weights + n_in + n_out,
    }
    return {name: 4 * n for name, n in n_words.items()}


def step_launches(
    trainer: OnlineCudaEngine, network: Network | ConvNetwork, n_maps: int = 0
) -> list[tuple[int, Launch]]:
    """The launches that train a net on one image, each after its layer; layer by layer.

    n_maps: layers of maps, convolutions all. Each launch may be repeated N_STEPS times.
    """
    trainer.set_network(network)
    trainer.train(*random_examples(N_IMAGES, trainer.n_inputs), np.arange(1), ETA)
    order, losses = np.arange(N_STEPS) % N_IMAGES, np.zeros(N_STEPS, np.float32)
    for name, host in ("order", order), ("losses", losses):
        trainer.epoch[name] = copy_to_gpu(host, trainer.stream)
    gpu.fill([(trainer.step, np.zeros(1, np.int64))], trainer.stream)
    maps = list(range(1, n_maps + 1))
    connected = list(range(n_maps + 1, len(network.weights) + 1))
    two_stages = [*connected, *(layer for layer in reversed(connected) if layer > 1)]
    layers = [1, *maps[:1], *maps, *maps[-1:]]  # pick an image, as maps; forward; as rows
    layers += [layer for layer in two_stages for _ in range(2)]
    layers += [*maps[-1:], *reversed(maps[1:]), *maps, *connected]  # as maps; back; update
    numbered = zip(layers, trainer.launches(), strict=True)
    return sorted(numbered, key=lambda launch: launch[0])


def connected_kernel(launch: Launch, layer: int, n_in: int, n_out: int) -> Kernel:
    """A kernel of a fully connected layer, or `pick_image`."""
    name, weights = launch.kernel.py_func.__name__, (n_in + 1) * n_out
    flops = 2 * weights if name in WEIGHT_KERNELS else 0
    return Kernel(name, layer, n_in, n_out, launch, kernel_bytes(n_in, n_out)[name], flops)


def training_kernels(network: Network) -> list[Kernel]:
    """The kernels that train a net on one image, layer by layer, with random images."""
    (_, pick), *launches = step_launches(CudaEngine("launch"), network)
    sizes, n_inputs = list(pairwise(network.sizes)), network.sizes[0]
    found = [connected_kernel(launch, layer, *sizes[layer - 1]) for layer, launch in launches]
    return [connected_kernel(pick, 1, n_inputs, n_inputs), *found]


# --- the window's kernels


@dataclass(frozen=True)
class Work:
    """The work of a kernel of the window. n_bytes: read and written. flops: operations.

    As in `kernel_bytes` each number that a launch reads or writes counts once, 4 bytes; padding,
    the numbers of progress and labels do not count.
    """

    n_bytes: float = 0
    flops: float = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.n_bytes + other.n_bytes, self.flops + other.flops)

    def __mul__(self, times: float) -> "Work":
        return Work(self.n_bytes * times, self.flops * times)


def _product_work(inner: int, columns: int, n: float, end: float, splits: int = 1) -> Work:
    """Products of n images, the last of which is image end - 1 of its block, in parts of sums."""
    words = inner * columns + inner * end + splits * n * (columns + end)
    return Work(4 * words, 2 * n * inner * (columns + end))


def _product(inner: int, columns: int, n: float, end: float, most: int) -> tuple[Work, float]:
    """Stage 1, see `_product_work`; parts in words. most: images of the largest such product.

    As below compute capability 8.0. From there on scalar products are no sums of parts.
    """
    rows, across = pad32(inner), pad32(columns)
    splits = -(-rows // products.depth_of(rows, across, most))
    return _product_work(inner, columns, n, end, splits), splits * n * (columns + end)


def _sum(parts: float, columns: int, n: float, end: float) -> Work:
    """Stage 2: the parts, what corrects them, and the results. Images before each correct it."""
    before = n * (end - (n + 1) / 2)  # pairs of an image and one before
    return Work(4 * (parts + end * columns + n * columns), 2 * before * columns + parts)


LayerWork = tuple[int, Work]  # a layer, from 1, and what one of its kernels does


def sweep_works(sizes: tuple[int, ...], n: float, end: float, n_block: int) -> list[LayerWork]:
    """Each kernel of a sweep, in the order of launches but for the last, which slides the window.

    A sweep of n images, of which the last is image end - 1 of its block. sizes: of the layers.
    Deltas are read before they are overwritten, to see how they changed.
    """
    found: list[LayerWork] = []
    most = progress.most_images(n_block)
    layers = list(enumerate(pairwise(sizes), start=1))
    for layer, (n_in, n_out) in layers:
        product, parts = _product(n_in + 1, n_out, n, end, most if layer > 1 else n_block)
        found += [(layer, product)] if layer > 1 else []
        found.append((layer, _sum(parts, n_out, n, end)))
    found.append((len(layers), Work(4 * 3 * n * sizes[-1])))
    for layer, (n_in, n_out) in reversed(layers[1:]):
        product, parts = _product(n_out, n_in + 1, n, end, most)
        found += [(layer, product), (layer, _sum(parts, n_in, n, end) + Work(4 * n * n_in))]
    return found


def begin_works(sizes: tuple[int, ...], n_block: int) -> list[LayerWork]:
    """Each kernel of a block's begin: its images, and layer 1's products."""
    product, _ = _product(sizes[0] + 1, sizes[1], n_block, n_block, n_block)
    return [(1, Work(4 * 2 * n_block * sizes[0])), (1, product)]


def update_works(sizes: tuple[int, ...], n_block: int) -> list[LayerWork]:
    """Each kernel of a block's end but for the last: the update of a layer's weights."""
    found = []
    for layer, (n_in, n_out) in enumerate(pairwise(sizes), start=1):
        words = 2 * (n_in + 1) * n_out + n_block * (n_in + 1 + n_out)
        found.append((layer, Work(4 * words, 2 * n_block * (n_in + 1) * n_out)))
    return found


def sweep_work(sizes: tuple[int, ...], n: float, end: float, n_block: int) -> Work:
    """A sweep as a whole; arguments as of `sweep_works`."""
    return sum((work for _, work in sweep_works(sizes, n, end, n_block)), Work())


def block_work(sizes: tuple[int, ...], n_block: int) -> Work:
    """A block's share: its begin and its end."""
    works = begin_works(sizes, n_block) + update_works(sizes, n_block)
    return sum((work for _, work in works), Work())


def work_of_an_image(
    sizes: tuple[int, ...], sweeps_per_block: float, window: float, n_block: int
) -> Work:
    """The work of an image. sweeps_per_block; window, images of a sweep: on average."""
    sweep = sweep_work(sizes, window, (n_block + window) / 2, n_block)
    return (sweep * sweeps_per_block + block_work(sizes, n_block)) * (1 / n_block)


def window_kernels(network: Network, stream: Stream, n: int = WINDOW_IMAGES) -> Iterator[Kernel]:
    """The kernels of a block of the window: of its begin, a sweep of n images, its end.

    Each is launched as in the middle of a block.

    Those that only move the window, `slide_window` and `next_block`, are left out: they would move
    it between two repeats.
    """
    sizes, n_block = network.sizes, WINDOW_IMAGES_PER_BLOCK
    weights = [copy_to_gpu(W, stream) for W in network.weights]
    workspace = Workspace(sizes, weights, n_block, gpu.compute_capability())
    gpu.fill([*workspace.blank(), *workspace.at_start(n_block)], stream)
    images, labels = training_examples(sizes[0])
    put = {"labels": labels, "order": np.arange(len(labels))}
    put |= {"losses": np.zeros(len(labels), np.float32)}
    epoch = {name: copy_to_gpu(array, stream) for name, array in put.items()}
    eta = copy_to_gpu(np.full(1, ETA, np.float32), stream)
    first = (n_block - n) // 2
    end = first + n

    def at(done: int, swept: int, last: int) -> None:
        """Set the window's progress, which the launches made next will read."""
        state = progress.at_start(n_block, len(labels))
        state[[progress.FIRST, progress.SWEPT, progress.END]] = done, swept, last
        workspace.progress = copy_to_gpu(state, stream)

    at(0, 0, n)
    begin = workspace.begin_block(copy_to_gpu(images, stream), epoch["order"])
    at(first, end, end)
    sweep = workspace.sweep(epoch, eta)[:-1]
    at(n_block, n_block, n_block)
    update = workspace.end_block(eta, len(labels))[:-1]
    play([*begin, *sweep], stream)
    works = begin_works(sizes, n_block)
    works += sweep_works(sizes, n, end, n_block)
    works += update_works(sizes, n_block)
    for launch, (layer, work) in zip([*begin, *sweep, *update], works, strict=True):
        n_in, n_out = sizes[layer - 1 : layer + 1]
        name, n_bytes = launch.kernel.py_func.__name__, round(work.n_bytes)
        yield Kernel(name, layer, n_in, n_out, launch, n_bytes, round(work.flops))


def sweep_kernels(network: Network, stream: Stream, n: int) -> list[Kernel]:
    """Of `window_kernels` those of the sweep of n images, which their names tell."""
    n_layers = len(network.weights)
    found = list(window_kernels(network, stream, n))[2:-n_layers]  # a block begins with two
    return [replace(kernel, name=f"{kernel.name}, {n} images") for kernel in found]


def with_baselines(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """The kernels of `window_kernels`; after each one that only multiplies the same by cuBLAS."""
    makers = baselines.available("product", baselines.GPU)
    for kernel in kernels:
        yield kernel
        product = kernel.name.partition("_")[0]
        if "products" not in kernel.name and product != "update":
            continue
        n, n_block = WINDOW_IMAGES, WINDOW_IMAGES_PER_BLOCK
        end = (n_block + n) // 2
        if kernel.layer == 1:  # of all images of a block at once
            n = end = n_block
        n_bytes, shape = kernel.n_bytes, (kernel.n_in + 1, kernel.n_out)
        if product != "update":  # cuBLAS leaves no parts of sums
            inner, columns = shape if product == "forward" else shape[::-1]
            n_bytes = round(_product_work(inner, columns, n, end).n_bytes)
        for name, make in makers.items():
            launch = make(product, kernel.n_in, kernel.n_out, n, end, n_block)
            yield replace(kernel, name=f"{name}, {product}", launch=launch, n_bytes=n_bytes)


# --- times


def copy_to_gpu(host: np.ndarray, stream: Stream) -> DeviceArray:
    """A copy of an array on the GPU, complete on return."""
    array = gpu.device_array(host.shape, host.dtype)
    gpu.fill([(array, host)], stream)
    return array


def make_copier(max_bytes: int, stream: Stream) -> Callable[[int], Enqueue]:
    """A function that returns a device-to-device copy of n_bytes, at most max_bytes.

    Half of them are read, half written.
    """
    random = np.random.default_rng(0).integers(0, 256, max_bytes // 2, np.uint8)
    source = copy_to_gpu(random, stream)
    target = gpu.device_array(source.shape, np.uint8)

    def copy_of(n_bytes: int) -> Enqueue:
        driver = gpu.cuda.cudadrv.driver
        return lambda stream: driver.device_to_device(target, source, n_bytes // 2, stream=stream)

    return copy_of


@gpu.cuda.jit
def empty_kernel() -> None:
    pass


def measure_states(
    work: Enqueue, timer: Timer, repeats: int, copy: Enqueue | None = None, **fields: Any
) -> list[BenchRow]:
    """Rows of a work in each of CACHE_STATES, in turn with a copy of as many bytes.

    fields: others of the rows.
    """
    works = [work, *([copy] if copy else [])]
    us = {state: np.empty((len(works), repeats)) for state in CACHE_STATES}
    for repeat in range(repeats):
        for state in CACHE_STATES:
            for i, enqueue in enumerate(works):
                us[state][i, repeat] = timer(enqueue, state)

    def ceiling(state: str) -> Ceiling | None:
        return Ceiling(us[state][1], fields["n_bytes"]) if copy else None

    return [
        bench_row(us[state][0], state=state, copy=ceiling(state), **fields)
        for state in CACHE_STATES
    ]


def measure_kernels(
    kernels: list[Kernel], timer: Timer, repeats: int, group: str = "kernel"
) -> Iterator[BenchRow]:
    """Rows of kernels, each in turn with a copy of as many bytes."""
    copy_of = make_copier(max(kernel.n_bytes for kernel in kernels), timer.stream)

    def measure(kernel: Kernel) -> list[BenchRow]:
        return measure_states(
            *(kernel.launch, timer, repeats, copy_of(kernel.n_bytes)),
            group=group,
            name=kernel.name,
            layer=kernel.layer,
            n_in=kernel.n_in,
            n_out=kernel.n_out,
            n_bytes=kernel.n_bytes,
            flops=kernel.flops or None,
            paper_gb_a_second=PAPER_GB_PER_SECOND.get(kernel.name),
        )

    return attempts(partial(measure, kernel) for kernel in kernels)


def measure_evaluation(network: Network, timer: Timer, repeats: int) -> list[BenchRow]:
    """Rows of the evaluation of a batch, from images to probabilities on the GPU."""
    n = engine.PREDICT_BATCH
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (n, network.sizes[0])).astype(np.float32)
    states = [copy_to_gpu(images, timer.stream)]
    states += [gpu.device_array((n, size), np.float32) for size in network.sizes[1:]]
    weights = [copy_to_gpu(W, timer.stream) for W in network.weights]
    launches = fastest(evaluate(states, weights), gpu.compute_capability())
    return measure_states(
        *(lambda stream: play(launches, stream), timer, repeats),
        group="evaluation",
        name=launches[0].kernel.py_func.__name__,
        images=n,
        flops=2 * network.n_weights * n,  # a multiplication and an addition per weight
    )


def measure_engine(
    trainer: OnlineCudaEngine,
    network: Network | ConvNetwork,
    repeats: int,
    find_work: Callable[[], Work],
) -> BenchRow:
    """The row of an engine. find_work: the work of an image, known after training."""
    us, work = time_training(trainer, network, repeats), find_work()
    return bench_row(
        us,
        group="cnn" if isinstance(network, ConvNetwork) else "net",
        name=f"engine cuda {trainer.schedule}",
        images=1,
        n_bytes=round(work.n_bytes),
        flops=round(work.flops),
    )


def engine_makers(
    make_engine: Callable[[str], OnlineCudaEngine],
    network: Network | ConvNetwork,
    kernels: Sequence[Kernel],
    flops: int,
    repeats: int,
) -> list[Callable[[], list[BenchRow]]]:
    """For each launch mode of an engine a function that measures it.

    kernels: those of a step. flops: multiplications and additions of a step.
    """
    work = Work(sum(kernel.n_bytes for kernel in kernels), flops)

    def measure(schedule: str) -> list[BenchRow]:
        return [measure_engine(make_engine(schedule), network, repeats, lambda: work)]

    return [partial(measure, schedule) for schedule in SCHEDULES]


def measure_window(network: Network, repeats: int) -> list[BenchRow]:
    """The row of the launch mode `window`, with the work of the sweeps that were needed."""
    n_block = WINDOW_IMAGES_PER_BLOCK
    trainer = WindowCudaEngine(n_block)

    def find_work() -> Work:
        blocks = (repeats + 1) * trainer.images_per_tick // n_block
        sweeps, times = trainer.count_sweeps()
        return work_of_an_image(network.sizes, sweeps / blocks, times / sweeps, n_block)

    return [measure_engine(trainer, network, repeats, find_work)]


def time_training(
    trainer: OnlineCudaEngine, network: Network | ConvNetwork, repeats: int
) -> np.ndarray:
    """Microseconds per image of an engine on a GPU; float64 (repeats,).

    By the host's clock, from tick to tick, when the GPU is done. The first tick comes after all
    that is done once in an epoch. A short epoch first compiles the kernels; then the net is set
    anew. Few images come twice, because a net that knows them needs fewer sweeps.
    """
    trainer.set_network(network)
    n = trainer.images_per_tick
    order = np.arange((repeats + 1) * n) % N_DIGITS
    images, labels = training_examples(trainer.n_inputs, N_DIGITS)
    ticks: list[tuple[float, int]] = []
    for part in (order[: 2 * n], order):
        trainer.set_network(network)
        ticks.clear()
        trainer.train(
            images, labels, part, ETA, lambda n, loss: ticks.append((time.perf_counter(), n))
        )
    if len(ticks) < 2:
        raise Problem(f"{trainer.name} {trainer.schedule} ended before it could be timed")
    moments, images_done = np.array(ticks).T
    return 1e6 * (np.diff(moments) / images_done[1:])[-repeats:]


def measure_net(network: Network, timer: Timer, repeats: int) -> Iterator[BenchRow]:
    """All rows of a net on the GPU."""
    timer.wake()
    kernels = training_kernels(network)
    flops = training_flops(network.sizes)
    empty = Launch(empty_kernel, (1, 1), gpu.WARP, ())

    def measure_window_kernels() -> Iterator[BenchRow]:
        kernels = with_baselines(window_kernels(network, timer.stream))
        return measure_kernels(list(kernels), timer, repeats)

    def measure_sweep_kernels(n: int) -> Iterator[BenchRow]:
        kernels = sweep_kernels(network, timer.stream, n)
        return measure_kernels(kernels, timer, repeats, group="window kernel")

    return attempts(
        [
            *engine_makers(CudaEngine, network, kernels, flops, repeats),
            partial(measure_window, network, repeats),
            partial(measure_states, empty, timer, repeats, group="kernel", name="empty kernel"),
            partial(measure_kernels, kernels, timer, repeats),
            partial(measure_evaluation, network, timer, repeats),
            measure_window_kernels,
            *(partial(measure_sweep_kernels, n) for n in OTHER_WINDOWS),
        ]
    )
