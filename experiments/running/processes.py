"""A pool of processes on this machine."""

import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from typing import Any

from experiments.running import provenance
from experiments.running.errors import OF_TERMINALS, Interrupted, Problem, signals
from experiments.running.messages import drop_unwritable, silence_libraries

POLL_SECONDS = 0.2  # between two looks for messages
STOP_SECONDS = 5  # in which a command ends that a signal of the terminal reached too
CLOSE_SECONDS = 5  # grace period after the stop signal; a job that is compiling does not poll it

# Environment variables by which libraries learn how many threads they may use.
THREAD_VARIABLES = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)


class LocalProcesses:
    """Processes of this machine, which share its cores equally. See `pools.Pool` for the methods.

    n_gpus: how many GPUs there are; workers are assigned to them in turn, and this process gives
    them back.
    """

    WorkerDied: type[Exception] = BrokenExecutor

    def __init__(self, workers: int, n_gpus: int = 0):
        self.workers, self._n_gpus = workers, n_gpus
        if n_gpus:
            from deepbig_runtime import gpu  # imports numba

            gpu.release()
        self.on_message: Callable[[dict], None] = lambda message: None
        # A new interpreter each: CUDA and threads do not survive a fork.
        self._context = multiprocessing.get_context("spawn")
        # All workers write into one pipe, without a lock: a killed worker could keep a lock for
        # ever. A message of less than 4096 bytes arrives in one piece all the same.
        self._reader, self._writer = self._context.Pipe(duplex=False)
        try:
            # Python's tracker of semaphores is a process that starts here.
            with signals.blocked():
                self._stop_signal = self._context.RawValue(ctypes.c_int, 0)
                self._start()
        except OSError as error:  # of semaphores and shared memory, which Linux has in /dev/shm
            raise Problem(
                "several workers cannot be had, because this machine gives them no semaphores or "
                f"shared memory: {error.strerror}; see that /dev/shm can be written, or take "
                "--workers 1"
            ) from error

    def _start(self) -> None:
        self._processes: set[BaseProcess] = set()
        gpu_numbers = None
        if self._n_gpus:
            gpu_numbers = self._context.SimpleQueue()
            for worker in range(self.workers):
                gpu_numbers.put(worker % self._n_gpus)
        self._executor = ProcessPoolExecutor(
            self.workers,
            mp_context=self._context,
            initializer=_start_worker,
            initargs=(self._writer, self._stop_signal, gpu_numbers),
        )

    def submit(self, function: Callable, *arguments: Any) -> Future:
        threads = max(1, provenance.cores() // self.workers)
        others = set(multiprocessing.active_children())
        try:
            with signals.held(), _new_processes_have(dict.fromkeys(THREAD_VARIABLES, str(threads))):
                return self._executor.submit(_run_job, function, *arguments)
        except BrokenExecutor as error:  # a worker died before
            future: Future = Future()
            future.set_exception(error)
            return future
        finally:
            self._processes |= set(multiprocessing.active_children()) - others

    def as_completed(self, waiting: Iterable[Future]) -> Iterator[Future]:
        waiting = set(waiting)
        while waiting:
            self._reader.poll(POLL_SECONDS)
            if not all(process.is_alive() for process in self._processes):
                # The executor notices that its newest worker died only at its next event.
                self.submit(_do_nothing)
            messages = []
            # A signal that came between would lose half a message, or leave a lock held.
            with signals.held():
                done, waiting = futures.wait(waiting, timeout=0)
                while self._reader.poll():
                    messages.append(self._reader.recv_bytes())
            for message in messages:
                self.on_message(json.loads(message))
            yield from done

    def restart(self) -> None:
        self._executor.shutdown()
        self._start()

    def stop(self, signum: int, waiting: Iterable[Future]) -> None:
        # Jobs that have not begun end at once too. To cancel their futures would break the thread
        # of Python 3.11's executor if a worker died meanwhile, and nothing would be done any more.
        self._stop_signal.value = signum
        for _ in self.as_completed(waiting):
            pass

    def close(self) -> None:
        # Jobs that still run belong to a command that ended with an error, or warm up for nothing.
        # What they have saved is whole at any moment.
        self._stop_signal.value = signal.SIGTERM
        self._executor.shutdown(wait=False, cancel_futures=True)
        end = time.monotonic() + CLOSE_SECONDS
        for process in self._processes:
            process.join(max(0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


class _PipeChannel:
    """The channel of the jobs in a worker process."""

    lock_timeout: float = 0

    def __init__(self, writer: Connection, stop_signal: Any):
        self._writer, self._stop_signal = writer, stop_signal

    def send(self, message: dict) -> None:
        self._writer.send_bytes(json.dumps(message).encode())

    def stop_signal(self) -> int:
        return self._stop_signal.value


_channel: _PipeChannel  # of this worker process


def _start_worker(writer: Connection, stop_signal: Any, gpu_numbers: SimpleQueue | None) -> None:
    """The first thing that a worker process runs."""
    global _channel
    drop_unwritable()
    silence_libraries()
    _channel = _PipeChannel(writer, stop_signal)
    # They reach all processes of a terminal. The parent decides what they mean.
    for signum in OF_TERMINALS:
        signal.signal(signum, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _import_numba()
    if gpu_numbers is not None:
        from deepbig_runtime import gpu  # imports numba

        gpu.select(gpu_numbers.get())


def _import_numba() -> None:
    """Import what compiled code needs, but not scipy.linalg, which takes a quarter of a second.

    Numba would import it only to know whether it can compile np.cov. Whatever needs it later, such
    as np.dot in compiled code, imports it then.
    """
    name = "scipy.linalg.cython_blas"
    sys.modules[name] = None  # type: ignore[assignment]  # to import it fails at once
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        del sys.modules[name]


def _end_with_parent() -> None:
    """End this process when its parent has ended. Files are whole at any moment."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _do_nothing(_channel: "_PipeChannel") -> None:
    """A job that changes nothing."""


def _run_job(function: Callable, *arguments: Any) -> Any:
    if _channel.stop_signal():
        return None
    try:
        return function(_channel, *arguments)
    except Interrupted:
        return None


@contextmanager
def _new_processes_have(variables: dict[str, str]) -> Iterator[None]:
    """Inside, processes are started with these variables, and with OF_TERMINALS blocked.

    They stay blocked in a new process until `_start_worker` has said that they are ignored.
    """
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        with signals.blocked():
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_until(command: Sequence[str], end: float) -> int | None:
    """The exit status of a command of the project; None if it was stopped at the end.

    command: as it is typed behind 'python -m'. end: as time.monotonic() gives it. A command that a
    signal killed has status 128 and the signal's number, as in a shell. On a signal to this
    process, when the command has ended too, raises SystemExit if it has told of the signal, else
    Interrupted.
    """
    try:
        with signals.held(), signals.blocked():
            process = subprocess.Popen([sys.executable, "-m", *command])
        status = process.wait(max(end - time.monotonic(), 0))
        return status if status >= 0 else 128 - status
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()
        return None
    except Interrupted as reason:
        if reason.signum in OF_TERMINALS:  # which reach both
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        process.send_signal(reason.signum)
        if process.wait() == 128 + reason.signum:
            raise SystemExit(128 + reason.signum) from None
        raise
