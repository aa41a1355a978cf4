"""Time work by the host's clock: every repeat runs each workload in turn.

Last the ceilings: what memory and arithmetic of this machine allow, and the CPU's kernel alone.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from deepbig_runtime.errors import explained, tell
from deform_gpu import TABLE1, deform
from experiments.benchmarks.columns import Ceiling, bench_row
from experiments.datasets import data
from experiments.results.rows import BenchRow
from mlp_gpu.vector_kernel import (
    LANES,
    PANEL,
    ROWS,
    VECTORS,
    add_product_at,
    add_product_nt_at,
    aligned_zeros,
    pointer,
)

MIN_REPEAT_SECONDS = 0.2
N_EXAMPLES = 6000
CALL_BYTES = 200_000_000  # that a call moves: enough that starting threads does not count
CALL_FLOPS = 4_000_000_000  # of a call that multiplies
KERNEL_ROWS = 24
KERNEL_K = 1024  # rows of the weights that it multiplies


@dataclass(frozen=True)
class Workload:
    """Something to time.

    call: does it once; returns when it is done. n_images: number of images that a call trains,
    deforms or evaluates; None if there are none. n_bytes: bytes that must be moved for an image or,
    without images, in a call; flops: floating-point operations, likewise; None if unknown. copy,
    read, peak: names of the workloads that are its ceilings, see `columns.bench_row`. settings,
    vectors: see `BenchRow`.
    """

    call: Callable[[], object]
    n_images: int | None = None
    n_bytes: float | None = None
    flops: int | None = None
    copy: str | None = None
    read: str | None = None
    peak: str | None = None
    settings: str = ""
    vectors: int | None = None


def random_examples(n: int, n_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images, float32 (n, n_inputs), and labels, uint8 (n,)."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (n, n_inputs)).astype(np.float32)
    return images, rng.integers(0, 10, n).astype(np.uint8)


@cache
def training_examples(n_inputs: int, n: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Images, float32 (n, n_inputs), and labels, uint8 (n,), for windows to train on.

    How often a window is swept depends on them. So they are deformed digits, of MNIST or else of
    load_digits; for nets of other sizes than those see they are random. n: None for N_EXAMPLES.
    """
    n = n or N_EXAMPLES
    if n_inputs != data.SIDE**2:
        return random_examples(n, n_inputs)
    dataset = data.load("auto")
    images = np.resize(dataset.train_images, (n, data.SIDE, data.SIDE))
    labels = np.resize(dataset.train_labels, n)
    return deform(images, labels, TABLE1, 0, 1).reshape(n, -1), labels


def time_calls(call: Callable[[], object], n_calls: int = 1) -> float:
    """Seconds that a call takes, on average."""
    started = time.perf_counter()
    for _ in range(n_calls):
        call()
    return (time.perf_counter() - started) / n_calls


def time_workloads(workloads: dict[str, Workload], repeats: int) -> dict[str, np.ndarray]:
    """Microseconds of each workload, by name, per image or else per call; float64 (repeats,).

    A repeat calls a workload as often as fills MIN_REPEAT_SECONDS, then the next one.
    """
    n_calls = {}
    for name, workload in workloads.items():
        workload.call()  # compiles, touches memory
        n_calls[name] = max(1, round(MIN_REPEAT_SECONDS / time_calls(workload.call)))
    us = {name: np.empty(repeats) for name in workloads}
    for repeat in range(repeats):
        for name, workload in workloads.items():
            seconds = time_calls(workload.call, n_calls[name])
            us[name][repeat] = 1e6 * seconds / (workload.n_images or 1)
    return us


def measure(group: str, workloads: dict[str, Workload], repeats: int) -> list[BenchRow]:
    """A row for each workload."""
    us = time_workloads(workloads, repeats)

    def ceiling(name: str | None, unit: str) -> Ceiling | None:
        work = getattr(workloads[name], unit) if name else None
        return Ceiling(us=us[name], work=work) if name and work else None

    return [
        bench_row(
            us[name],
            group=group,
            name=name,
            images=workload.n_images and 1,
            n_bytes=workload.n_bytes,
            copy=ceiling(workload.copy, "n_bytes"),
            read=ceiling(workload.read, "n_bytes"),
            flops=workload.flops,
            peak=ceiling(workload.peak, "flops"),
            settings=workload.settings,
            vectors=workload.vectors,
        )
        for name, workload in workloads.items()
    ]


def attempts(makers: Iterable[Callable[[], Iterable[BenchRow]]]) -> Iterator[BenchRow]:
    """The rows of each maker. One that fails is logged, and costs the others nothing."""
    for make in makers:
        try:
            yield from make()
        except Exception as error:
            reason = explained(error) or f"{type(error).__name__}: {error}"
            tell(f"some measurements are left out: {reason}")


# --- ceilings


@njit(nogil=True)
def scale(target: np.ndarray, source: np.ndarray, factor: np.float32, passes: int) -> None:
    """target = factor * source, float32 (n,), `passes` times. Modifies target."""
    for _ in range(passes):
        for i in range(source.shape[0]):
            target[i] = factor * source[i]


@njit(nogil=True, fastmath=True)
def add_up(source: np.ndarray, passes: int) -> np.float32:
    """The sum of source, float32 (n,), added up `passes` times."""
    total = np.float32(0)
    for _ in range(passes):
        for i in range(source.shape[0]):
            total += source[i]
    return total


def in_threads(works: Sequence[Callable[[], object]]) -> Callable[[], None]:
    """A function that does all works at the same time, each in a thread."""
    executor = ThreadPoolExecutor(len(works))

    def call() -> None:
        for future in [executor.submit(work) for work in works]:
            future.result()

    return call


def scaled_copy(n: int, threads: int) -> Workload:
    """A scaled copy of n float32, of which each thread has its part."""
    passes = max(1, CALL_BYTES // (8 * n))
    sources = np.array_split(np.ones(n, np.float32), threads)
    targets = np.array_split(np.ones(n, np.float32), threads)
    parts = zip(targets, sources, strict=True)
    works = [partial(scale, *arrays, np.float32(0.5), passes) for arrays in parts]
    return Workload(in_threads(works), n_bytes=8 * n * passes)


def memory_read(n: int, threads: int) -> Workload:
    """The sum of n float32, of which each thread has its part."""
    passes = max(1, CALL_BYTES // (4 * n))
    parts = np.array_split(np.ones(n, np.float32), threads)
    works = [partial(add_up, part, passes) for part in parts]
    return Workload(in_threads(works), n_bytes=4 * n * passes)


@intrinsic
def _multiply_adds(_context: Any, start: Any, steps: Any) -> tuple:
    """Chains of fused multiply-adds in as many registers as a tile of the kernel has."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        start, steps = values
        vector, zero = ir.VectorType(ir.FloatType(), LANES), ir.Constant(ir.IntType(32), 0)
        kind = ir.FunctionType(vector, [vector] * 3)
        name = f"llvm.fma.v{LANES}f32"
        multiply_add = cgutils.get_or_insert_function(builder.module, kind, name)
        first = builder.insert_element(ir.Constant(vector, ir.Undefined), start, zero)
        first = builder.shuffle_vector(
            first, first, ir.Constant(ir.VectorType(zero.type, LANES), [0] * LANES)
        )
        half = ir.Constant(vector, [0.5] * LANES)
        sums = [cgutils.alloca_once_value(builder, first) for _ in range(ROWS * VECTORS)]
        with cgutils.for_range(builder, steps):
            for one in sums:
                builder.store(builder.call(multiply_add, [builder.load(one), half, half]), one)
        total = builder.load(sums[0])
        for one in sums[1:]:
            total = builder.fadd(total, builder.load(one))
        return builder.extract_element(total, zero)

    return types.float32(types.float32, types.int64), generate


@njit(nogil=True)
def multiply_and_add(start: np.float32, steps: int) -> np.float32:
    """A step: 2 LANES ROWS VECTORS operations in registers. Returns ROWS VECTORS for start 1."""
    return _multiply_adds(start, steps)


def multiply_adds(threads: int = 1) -> Workload:
    """A loop of fused multiply-adds in each thread, at the same time: the most that there are."""
    of_step = 2 * LANES * ROWS * VECTORS
    steps = max(1, CALL_FLOPS // (threads * of_step))
    works = [lambda: multiply_and_add(np.float32(1), steps)] * threads
    return Workload(in_threads(works), flops=threads * steps * of_step, vectors=LANES)


@njit(nogil=True)
def multiply_forward(C: np.ndarray, A: np.ndarray, W: np.ndarray, passes: int) -> None:
    """C += A W for each panel of W, as forward; `passes` times. Modifies C (KERNEL_ROWS, PANEL)."""
    for _ in range(passes):
        for panel in W:
            c, k = pointer(C, 0, 0), panel.shape[0]
            add_product_at(c, c, pointer(A, 0, 0), pointer(panel, 0, 0), C.shape[0], PANEL, k)


@njit(nogil=True)
def multiply_backward(C: np.ndarray, A: np.ndarray, W: np.ndarray, passes: int) -> None:
    """C += A W^T for each PANEL rows of W, as backward; `passes` times. Modifies C."""
    for _ in range(passes):
        for i in range(0, W.shape[1], PANEL):
            c, w, k = pointer(C, 0, 0), pointer(W[0], i, 0), W.shape[0] * PANEL
            add_product_nt_at(c, c, pointer(A, 0, 0), w, W[0].size, C.shape[0], PANEL, k)


def kernel(
    multiply: Callable[[np.ndarray, np.ndarray, np.ndarray, int], None], n: int, threads: int
) -> Workload:
    """The CPU's kernel, KERNEL_ROWS rows with n weights, of which each thread has its part.

    multiply: `multiply_forward` or `multiply_backward`.
    """
    panels = max(1, n // (threads * KERNEL_K * PANEL))
    flops = 2 * KERNEL_ROWS * KERNEL_K * panels * PANEL
    passes = max(1, CALL_FLOPS // (threads * flops))

    def work() -> Callable[[], object]:
        W = aligned_zeros(panels, KERNEL_K, PANEL)
        W.fill(1)  # else its pages are all the same one
        A = aligned_zeros(KERNEL_ROWS, max(KERNEL_K, panels * PANEL) + PANEL)
        C = aligned_zeros(KERNEL_ROWS, PANEL)
        return lambda: multiply(C, A, W, passes)

    works = [work() for _ in range(threads)]
    return Workload(in_threads(works), flops=threads * passes * flops, vectors=LANES)
