"""Time the GPU engine: each kernel of each layer, the evaluation of a batch, whole nets.

A kernel's time is the one between two CUDA events around its launch. Before the first event a
memset keeps the GPU busy until the host has launched everything, so that no time of the host is in
it. The memset also drives all else out of the L2 cache, which is then full of zeros still to be
written back: that is the state `cold`. For `warm` the
kernel runs once more between memset and event. An empty kernel, timed the same way, shows the least
that can be measured so.

Beside each kernel, in the same state and in turn with it, a copy on the GPU that moves as many
bytes, read and written.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from experiments.running.errors import Problem
from experiments.running.messages import tell
from mlp_gpu import cuda as engine
from mlp_gpu import gpu
from mlp_gpu.gpu import DeviceArray, Launch, Stream
from mlp_gpu.kernels import backward, forward
from mlp_gpu.kernels.backward import propagate_back
from mlp_gpu.kernels.evaluate import evaluate
from mlp_gpu.kernels.forward import propagate_forward
from mlp_gpu.kernels.output import output_deltas
from mlp_gpu.kernels.pick import pick
from mlp_gpu.kernels.update import update
from mlp_gpu.network import Network
from mlp_gpu.training import Schedule

STATES = ("warm", "cold")  # what of the kernel's data is in the L2 cache: all it has room for, none

MEMSET_BYTES = 1 << 29  # at least; some 0.2 ms of an H100
MEMSETS = (1, 4, 16, 64)  # one after another: more where the host needs longer
NEEDED_BYTES = 3 * MEMSET_BYTES  # of memory on the GPU: the memset's, and what net 4 takes
WAKE_SECONDS = 0.5

IMAGES = 1000  # different ones
STEPS = 1 << 16  # of an epoch: more than a kernel is run, since each run moves the step on
MOST_REPEATS = 1000

PAPER_GB = {"forward_partial": 115}  # GB/s, on a GTX 280 (2010, appendix)

Work = Callable[[Stream], None]  # launches something on a stream
ETA = Schedule().eta


class Timer:
    """Times work on the GPU, on `stream`."""

    def __init__(self) -> None:
        self.stream = gpu.new_stream()
        n_bytes = max(MEMSET_BYTES, 2 * gpu.cuda.get_current_device().L2_CACHE_SIZE)
        self._buffer = gpu.device_array((n_bytes,), np.uint8)

    def __call__(self, work: Work, state: str) -> float:
        """Microseconds of one run. state: one of STATES.

        Raises Problem if the host is too slow to be kept out of it.
        """
        work(self.stream)  # compiles the kernels, the first time
        for n_memsets in MEMSETS:
            microseconds, late = self._once(work, state, n_memsets)
            if not late:
                return microseconds
        raise Problem(
            "the host launches kernels too slowly for them to be timed; unset "
            "CUDA_LAUNCH_BLOCKING, end what else runs on this machine, and start again"
        )

    def _once(self, work: Work, state: str, n_memsets: int) -> tuple[float, bool]:
        """Microseconds, and whether the host was late: the GPU had no memset to do any more."""
        start, end = gpu.cuda.event(), gpu.cuda.event()
        for _ in range(n_memsets):
            self._memset()
        if state == "warm":
            work(self.stream)
        start.record(self.stream)
        work(self.stream)
        end.record(self.stream)
        late = start.query()
        end.synchronize()
        return 1e3 * start.elapsed_time(end), late

    def wake(self) -> None:
        """Keep the GPU busy for a moment: when it has been idle, its clock is slow at first."""
        until = time.perf_counter() + WAKE_SECONDS
        while time.perf_counter() < until:
            self._memset()
            gpu.synchronize(self.stream)

    def _memset(self) -> None:
        n_bytes = self._buffer.nbytes
        gpu.cuda.cudadrv.driver.device_memset(self._buffer, 0, n_bytes, stream=self.stream)


@dataclass(frozen=True)
class Kernel:
    """A kernel as it is launched for a layer, from 1, and the bytes that it must move."""

    name: str
    layer: int
    n_in: int
    n_out: int
    launch: Launch
    n_bytes: int


def kernel_bytes(n_in: int, n_out: int) -> dict[str, int]:
    """Bytes that each kernel must move at least for a layer, by the kernel's name.

    Everything once: weights, vectors and the partial sums of the reductions, each 4 bytes, and
    padding not. (The label, the step and the loss of output_delta, some 40 bytes, are left out.)
    """
    weights = (n_in + 1) * n_out
    forward_sums = -(-(n_in + 1) // forward.INPUTS) * n_out
    backward_sums = -(-n_out // backward.PATCH) * n_in
    numbers = {
        "pick_image": 2 * n_in,
        "forward_partial": weights + n_in + forward_sums,
        "forward_reduce": forward_sums + n_out,
        "output_delta": forward_sums + n_out,
        "delta_partial": weights + n_out + backward_sums,
        "delta_reduce": backward_sums + 2 * n_in,
        "update_weights": 2 * weights + n_in + n_out,
    }
    return {name: 4 * n for name, n in numbers.items()}


def kernels_of(network: Network, stream: Stream) -> Iterator[Kernel]:
    """What trains one image of a net, layer by layer, on arrays of its own full of random numbers.

    stream: what they are copied to the GPU on.
    """
    rng = np.random.default_rng(0)
    n_layers = len(network.weights)

    def put(host: np.ndarray) -> DeviceArray:
        return put_on_gpu(host, stream)

    def vector(n: int) -> DeviceArray:
        return put(rng.uniform(-1, 1, n).astype(np.float32))

    images = put(rng.uniform(-1, 1, (IMAGES, network.sizes[0])).astype(np.float32))
    labels = put(rng.integers(0, network.sizes[-1], IMAGES).astype(np.uint8))
    order = put(rng.integers(0, IMAGES, STEPS))
    losses, step = vector(STEPS), put(np.zeros(1, np.int64))

    for layer, (n_in, n_out) in enumerate(pairwise(network.sizes), start=1):
        W, h, delta = put(network.weights[layer - 1]), vector(n_in), vector(n_out)
        sums = gpu.device_array(forward.partial_shape(W.shape, n_in), np.float32)
        launches = pick(h, images, order, step) if layer == 1 else []
        if layer < n_layers:
            launches += propagate_forward(vector(n_out), sums, W, h)
        else:
            launches += output_deltas(delta, losses, step, sums, W, h, labels, order)
        if layer > 1:
            back = gpu.device_array(backward.partial_shape(W.shape), np.float32)
            launches += propagate_back(vector(n_in), back, W, delta, h)
        launches += update(W, h, delta, ETA)
        n_bytes = kernel_bytes(n_in, n_out)
        for launch in launches:
            name = launch.kernel.py_func.__name__
            yield Kernel(name, layer, n_in, n_out, launch, n_bytes[name])


def put_on_gpu(host: np.ndarray, stream: Stream) -> DeviceArray:
    """A copy of an array on the GPU."""
    array = gpu.device_array(host.shape, host.dtype)
    array.copy_to_device(host, stream=stream)
    gpu.synchronize(stream)  # only then may host go
    return array


def copies(n_bytes: int, stream: Stream) -> Callable[[int], Work]:
    """A function that makes a copy which moves as many bytes as it is told, n_bytes at most.

    Half of them are read, half written.
    """
    random = np.random.default_rng(0).integers(0, 256, n_bytes // 2, np.uint8)
    source = put_on_gpu(random, stream)
    target = gpu.device_array(source.shape, np.uint8)

    def copy_of(n: int) -> Work:
        driver = gpu.cuda.cudadrv.driver
        return lambda stream: driver.device_to_device(target, source, n // 2, stream=stream)

    return copy_of


def take_turns(timer: Timer, works: list[Work], repeats: int) -> dict[str, np.ndarray]:
    """Microseconds of each work, float64 (works, repeats), in each state."""
    us = {state: np.empty((len(works), repeats)) for state in STATES}
    for repeat in range(repeats):
        for state in STATES:
            for i, work in enumerate(works):
                us[state][i, repeat] = timer(work, state)
    return us


@gpu.cuda.jit
def empty_kernel() -> None:
    pass


def measure_floor(timer: Timer, repeats: int) -> list[dict]:
    """Measurements, as `bench_report.row` takes them, of a kernel that does nothing."""
    us = take_turns(timer, [Launch(empty_kernel, (1, 1), gpu.WARP, ())], repeats)
    return [
        {"group": "kernel", "name": "empty kernel", "state": state, "us": us[state][0]}
        for state in STATES
    ]


def measure_kernels(kernels: list[Kernel], timer: Timer, repeats: int) -> list[dict]:
    """Measurements of kernels, each beside its copy."""
    copy_of = copies(max(kernel.n_bytes for kernel in kernels), timer.stream)
    found = []
    for kernel in kernels:
        us = take_turns(timer, [kernel.launch, copy_of(kernel.n_bytes)], repeats)
        found += [
            {
                "group": "kernel",
                "name": kernel.name,
                "layer": kernel.layer,
                "n_in": kernel.n_in,
                "n_out": kernel.n_out,
                "state": state,
                "us": us[state][0],
                "bytes": kernel.n_bytes,
                "copy_us": us[state][1],
                "copy_bytes": kernel.n_bytes,
                "paper_gb_a_second": PAPER_GB.get(kernel.name),
            }
            for state in STATES
        ]
    return found


def measure_evaluation(network: Network, timer: Timer, repeats: int) -> list[dict]:
    """Measurements of the evaluation of a batch, from images to probabilities on the GPU."""
    n = engine.PREDICT_IMAGES
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (n, network.sizes[0])).astype(np.float32)
    states = [put_on_gpu(images, timer.stream)]
    states += [gpu.device_array((n, size), np.float32) for size in network.sizes[1:]]
    launches = evaluate(states, [put_on_gpu(W, timer.stream) for W in network.weights])
    us = take_turns(timer, [lambda stream: gpu.play(launches, stream)], repeats)
    return [
        {
            "group": "evaluation",
            "name": "forward_batch",
            "state": state,
            "us": us[state][0],
            "images": n,
            "flops": 2 * network.n_weights * n,  # a multiplication and an addition a weight
        }
        for state in STATES
    ]


def measure_schedule(network: Network, schedule: str, n_bytes: int, repeats: int) -> dict:
    """Measurement of the engine: microseconds an image. n_bytes: what it moves for one.

    By the host's clock, between two ticks, when the GPU is done; the first tick comes after all
    that an epoch does once.
    """
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (IMAGES, network.sizes[0])).astype(np.float32)
    labels = rng.integers(0, network.sizes[-1], IMAGES).astype(np.uint8)
    order = rng.integers(0, IMAGES, (repeats + 1) * engine.CHUNK)
    trainer = engine.CudaEngine(schedule)
    trainer.set_network(network)
    ticks = []
    trainer.train(images, labels, order, ETA, lambda n, loss: ticks.append(time.perf_counter()))
    us = 1e6 * np.diff(ticks) / engine.CHUNK
    name = f"engine cuda {schedule}"
    return {"group": "net", "name": name, "us": us, "images": 1, "bytes": n_bytes}


def measure_net(network: Network, timer: Timer, repeats: int) -> list[dict]:
    """All measurements of a net on the GPU."""
    timer.wake()
    kernels = list(kernels_of(network, timer.stream))
    n_bytes = sum(kernel.n_bytes for kernel in kernels)
    found = [measure_schedule(network, name, n_bytes, repeats) for name in engine.SCHEDULES]
    for measure in (
        lambda: measure_floor(timer, repeats),
        lambda: measure_kernels(kernels, timer, repeats),
        lambda: measure_evaluation(network, timer, repeats),
    ):
        try:
            found += measure()
        except Problem as reason:  # must not cost the figures of everything else
            tell(f"some figures are left out: {reason}")
    return found
