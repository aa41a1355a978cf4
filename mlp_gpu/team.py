"""A team of threads in compiled code, which work side by side and wait at barriers.

A barrier spins for some microseconds, which is how long the others usually take, then lets other
threads run, then sleeps: so a team that shares its cores with other processes slows down and does
not stop, and a thread that lost its core gets that of one that waits for it.
"""

import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from deepbig_runtime.jit import njit

SPINS = 500  # before a waiting thread lets others run: some microseconds
YIELDS = 300  # before a waiting thread sleeps: more than it waits for a thread that has its core
HAS_CORE = 0.8  # share of its time that a thread runs; less means that others want its core
CHUNKS_TO_TRY = 20  # chunks, of some tenths of a second, until more threads are tried again
CHUNKS_OF_REST = 5  # chunks after a slower try until fewer threads are tried again
COUNT, ABORTED = 0, 8  # indices into a barrier: a cache line each
X86 = platform.machine().lower() in ("x86_64", "amd64", "i686")
IS_WINDOWS = sys.platform == "win32"
YIELD = "SwitchToThread" if IS_WINDOWS else "sched_yield"

_yield = types.ExternalFunction(YIELD, types.int32())
_sleep = types.ExternalFunction("usleep", types.int32(types.uint32))  # Windows has none


def new_barrier() -> np.ndarray:
    """A barrier of a thread team, int64: the number of arrivals, and whether it was aborted."""
    return np.zeros(16, np.int64)


def _pointer(context, builder, kind, array, index):
    """The address of an element of an array of int64."""
    found = make_array(kind)(context, builder, array)
    return cgutils.gep(builder, found.data, index)


@intrinsic
def _add(_context, array, index):
    """array[index] += 1 atomically, with release order: threads that load it see earlier writes."""

    def generate(context, builder, signature, values):
        place = _pointer(context, builder, signature.args[0], *values)
        builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "acq_rel")

    return types.void(array, types.intp), generate


@intrinsic
def _load(_context, array, index):
    """array[index] atomically, with acquire order: earlier writes of other threads are seen."""

    def generate(context, builder, signature, values):
        place = _pointer(context, builder, signature.args[0], *values)
        return builder.load_atomic(place, "acquire", 8)

    return types.int64(array, types.intp), generate


@intrinsic
def _pause(_context):
    """Tell the core that this thread waits."""

    def generate(_context, builder, _signature, _values):
        if X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            pause = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause")
            builder.call(pause, [])

    return types.void(), generate


@njit(nogil=True)
def wait(barrier, n_threads, times):
    """Wait until all threads of the team have arrived as often as this one. Returns times + 1.

    barrier: of the team, modified. times: this thread's earlier arrivals. An aborted barrier holds
    no thread.
    """
    times += 1
    if n_threads == 1:
        return times
    _add(barrier, COUNT)
    spins = 0
    while _load(barrier, COUNT) < times * n_threads and _load(barrier, ABORTED) == 0:
        spins += 1
        if spins < SPINS:
            _pause()
        elif IS_WINDOWS or spins < SPINS + YIELDS:
            _yield()
        else:
            _sleep(np.uint32(1))  # microsecond, with the system's slack some 50
    return times


def share(work: Callable, parts: Sequence, threads: int) -> list:
    """[work(part) for part in parts], in this number of threads at the same time.

    For threads = 1 the caller works: without memory, starting a thread can take for ever.
    """
    if threads == 1:
        return list(map(work, parts))
    with ThreadPoolExecutor(threads) as executor:
        return list(executor.map(work, parts))


def run(executor: ThreadPoolExecutor, n_threads: int, work: Callable) -> list:
    """The results of work(thread, barrier) for each thread, all at the same time.

    executor: of n_threads - 1 threads or more; this thread is thread 0. work: compiled, so that it
    needs no GIL. If anything is raised, by a thread or by a signal here, the barrier is aborted, so
    that no thread waits for ever.
    """
    barrier = new_barrier()

    def work_or_abort(thread: int) -> object:
        try:
            return work(thread, barrier)
        except BaseException:
            barrier[ABORTED] = 1
            raise

    try:
        others = [executor.submit(work_or_abort, thread) for thread in range(1, n_threads)]
        return [work_or_abort(0), *(other.result() for other in others)]
    except BaseException:
        barrier[ABORTED] = 1
        raise


class Pace:
    """The number of threads of a team that work: fewer while other processes use the cores.

    most: the largest number. A thread that lost its core holds up all others at a barrier, so next
    to busy processes a smaller team may train more images a second. A larger team is tried only
    when all working threads have a core. No number of threads changes a bit of the result.
    """

    def __init__(self, most: int):
        self.threads = self._most = most
        self._best: tuple[float, int] | None = None  # the rate to be beaten, and its threads
        self._chunks = 0  # since the last try
        self._rest = 0  # chunks until fewer are tried again
        self._busy = 1.0  # part of its time that a thread had a core, in the last chunk

    @contextmanager
    def measured(self, n_images: int) -> Iterator[None]:
        """Inside, the threads train n_images. Chooses their number for the next time."""
        start = time.monotonic()
        yield
        rate = n_images / max(time.monotonic() - start, 1e-9)
        self._chunks += 1
        if self._best is not None:  # another number was tried
            before, threads = self._best
            self._rest = CHUNKS_OF_REST if rate < before else 0
            if rate < before:
                self.threads = threads
            self._best, self._chunks = None, 0
        elif self._busy < HAS_CORE and self.threads > 1 and self._chunks >= self._rest:
            self._try(max(1, self.threads // 2), rate)
        elif self._busy >= HAS_CORE and self.threads < self._most and self._chunks >= CHUNKS_TO_TRY:
            self._try(min(self._most, 2 * self.threads), rate)

    def _try(self, threads: int, rate: float) -> None:
        self._best = rate, self.threads
        self.threads = threads

    def run(self, executor: ThreadPoolExecutor, work: Callable) -> list:
        """As `run` with this number of threads."""
        start = time.monotonic()
        used = [0.0] * self.threads

        def timed(thread: int, barrier: np.ndarray) -> object:
            before = time.thread_time()
            result = work(thread, barrier)
            used[thread] = time.thread_time() - before
            return result

        results = run(executor, self.threads, timed)
        self._busy = min(used) / max(time.monotonic() - start, 1e-9)
        return results
