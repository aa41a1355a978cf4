"""What this machine's memory and arithmetic allow: copies, reads and products of matrices."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

from experiments.timing.host import Workload

CALL_BYTES = 200_000_000  # that a call moves: enough that starting threads does not count
PRODUCT_SIDE = 1024  # of the matrices that are multiplied


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


def matrix_product(threads: int = 1) -> Workload:
    """A product of two matrices by NumPy's library in each thread, at the same time."""
    rng = np.random.default_rng(0)
    shape = PRODUCT_SIDE, PRODUCT_SIDE
    left, right = (rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(2))

    def work(out: np.ndarray) -> Callable[[], object]:
        return lambda: np.matmul(left, right, out=out)

    multiply = in_threads([work(np.empty_like(left)) for _ in range(threads)])

    def call() -> None:
        # Our own threads: those of the library spin for a while when they are done.
        with threadpool_limits(1, user_api="blas"):
            multiply()

    return Workload(call, flops=threads * 2 * PRODUCT_SIDE**3)
