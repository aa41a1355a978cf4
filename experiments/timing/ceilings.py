"""What this machine's memory and arithmetic allow, and how much of it the CPU's kernel uses."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from experiments.timing.host import Workload
from mlp_gpu.vector_kernel import (
    LANES,
    PANEL,
    ROWS,
    VECTORS,
    add_product_at,
    add_product_nt_at,
    aligned_zeros,
    place,
)

CALL_BYTES = 200_000_000  # that a call moves: enough that starting threads does not count
CALL_FLOPS = 4_000_000_000  # of a call that multiplies
KERNEL_ROWS = 24
KERNEL_K = 1024  # rows of the weights that it multiplies


@njit(nogil=True)
def scale(target: np.ndarray, source: np.ndarray, factor: np.float32, passes: int) -> None:
    """target = factor * source, float32 (n,), so many times. Modifies target."""
    for _ in range(passes):
        for i in range(source.shape[0]):
            target[i] = factor * source[i]


@njit(nogil=True, fastmath=True)
def add_up(source: np.ndarray, passes: int) -> np.float32:
    """The sum of source, float32 (n,), so many times."""
    total = np.float32(0)
    for _ in range(passes):
        for i in range(source.shape[0]):
            total += source[i]
    return total


def in_threads(works: list[Callable[[], object]]) -> Callable[[], None]:
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

    def work(target: np.ndarray, source: np.ndarray) -> Callable[[], object]:
        return lambda: scale(target, source, np.float32(0.5), passes)

    works = [work(*parts) for parts in zip(targets, sources, strict=True)]
    return Workload(in_threads(works), n_bytes=8 * n * passes)


def memory_read(n: int, threads: int) -> Workload:
    """The sum of n float32, of which each thread has its part."""
    passes = max(1, CALL_BYTES // (4 * n))

    def work(part: np.ndarray) -> Callable[[], object]:
        return lambda: add_up(part, passes)

    works = [work(part) for part in np.array_split(np.ones(n, np.float32), threads)]
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
    return Workload(in_threads(works), flops=threads * steps * of_step)


@njit(nogil=True)
def multiply_forward(C: np.ndarray, A: np.ndarray, W: np.ndarray, passes: int) -> None:
    """C += A W for each panel of W, as forward; `passes` times. Modifies C (KERNEL_ROWS, PANEL)."""
    for _ in range(passes):
        for panel in W:
            c, k = place(C, 0, 0), panel.shape[0]
            add_product_at(c, c, place(A, 0, 0), place(panel, 0, 0), C.shape[0], PANEL, k)


@njit(nogil=True)
def multiply_backward(C: np.ndarray, A: np.ndarray, W: np.ndarray, passes: int) -> None:
    """C += A W^T for each PANEL rows of W, as backward; `passes` times. Modifies C."""
    for _ in range(passes):
        for i in range(0, W.shape[1], PANEL):
            c, w, k = place(C, 0, 0), place(W[0], i, 0), W.shape[0] * PANEL
            add_product_nt_at(c, c, place(A, 0, 0), w, W[0].size, C.shape[0], PANEL, k)


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

    return Workload(in_threads([work() for _ in range(threads)]), flops=threads * passes * flops)
