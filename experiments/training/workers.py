"""Workers that run jobs: in this process, in its threads, in processes; `cluster` has Dask's.

Pools work like executors of concurrent.futures. In addition a job sends messages while it runs, and
a pool can ask all its jobs to stop. A job is a function whose first argument is a `Channel`.
"""

import functools
import multiprocessing
import os
import signal
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any

import msgspec

from deepbig_runtime.errors import OF_TERMINALS, Interrupted, signals
from experiments.training import cli, provenance
from experiments.training.messages import open_streams, silence_libraries

POLL_SECONDS = 0.2  # for which one waits for messages
CLOSE_SECONDS = 5  # grace period after the stop signal; a job that is compiling does not poll it

# Environment variables by which libraries learn how many threads they may use; a user's numbers are
# the most of each worker.
THREAD_VARIABLES = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)


class Message(msgspec.Struct, frozen=True, tag=True):
    """Progress of a training. run: the label of its job."""

    run: str


class Started(Message, frozen=True):
    """The training begins. epochs_done: number of epochs by earlier processes."""

    epochs_done: int


class Trained(Message, frozen=True):
    """images: number of images trained since the last message."""

    images: int


class EpochSaved(Message, frozen=True):
    """An epoch is done and saved. The fields are those of `mlp_gpu.training.Epoch`."""

    epoch: int
    eta: float
    train_loss: float
    validation_errors: int
    test_errors: int
    train_seconds: float


AnyMessage = Started | Trained | EpochSaved


@dataclass(frozen=True)
class Channel:
    """A job's connection to its pool.

    send: sends a message to the command. stop_signal: returns the number of the signal for which
    the job should stop, 0 if it should go on. lock_timeout: seconds to wait for the lock of a run;
    above 0 where the worker that had the run before may need that long to stop.
    """

    send: Callable[[Message], None]
    stop_signal: Callable[[], int] = lambda: 0
    lock_timeout: float = 0


class WorkerDied(Exception):
    """The worker died that ran a job."""


def run_job(channel: Channel, function: Callable, *arguments: Any) -> Any:
    """Run a job in a worker. Returns the job's result; None if the pool asked it to stop."""
    if channel.stop_signal():
        return None
    try:
        return function(channel, *arguments)
    except Interrupted:
        return None


class Pool(ABC):
    """Workers that run jobs, one at a time each. Use its methods from one thread.

    workers: how many jobs run at once. on_message: called with each message of a job. WorkerDied:
    what a future raises if the worker died that ran its job; another worker takes its place.
    """

    workers = 1
    WorkerDied: type[Exception] = WorkerDied

    def __init__(self) -> None:
        self.on_message: Callable[[Message], None] = lambda message: None

    @abstractmethod
    def submit(self, function: Callable, *arguments: Any) -> Future:
        """Have a worker run function(channel, *arguments)."""

    def call_on_workers(self, function: Callable, *arguments: Any) -> list:
        """The result of function(*arguments) on each machine."""
        return [function(*arguments)]

    @abstractmethod
    def as_completed(self, waiting: Collection[Future]) -> Iterator[Future]:
        """Yield each of the futures once it is done, after the messages of its job."""

    def stop(self, signum: int, waiting: Collection[Future]) -> None:  # noqa: B027
        """Give up the futures, but wait until the jobs that have begun have saved their work."""

    def close(self) -> None:  # noqa: B027
        """End the workers."""


class InProcess(Pool):
    """A pool that runs each job in this process, when `as_completed` comes to its future."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[Future, Callable] = {}

    def submit(self, function: Callable, *arguments: Any) -> Future:
        channel = Channel(lambda message: self.on_message(message))
        future: Future = Future()
        self._waiting[future] = functools.partial(function, channel, *arguments)
        return future

    def as_completed(self, waiting: Collection[Future]) -> Iterator[Future]:
        for future in list(waiting):
            try:
                future.set_result(self._waiting.pop(future)())
            except Exception as error:
                future.set_exception(error)
            yield future


class RemotePool(Pool):
    """A pool whose workers are other threads or processes, which send results and messages."""

    def as_completed(self, waiting: Collection[Future]) -> Iterator[Future]:
        waiting = set(waiting)
        while waiting:
            # A signal that came between would lose half a message, or leave a lock held.
            with signals.held():
                done, messages = self._receive(waiting)
            for message in messages:
                self.on_message(message)
            waiting -= done
            yield from done

    @abstractmethod
    def _receive(self, waiting: set[Future]) -> tuple[set[Future], list[Message]]:
        """Wait for POLL_SECONDS at most. Returns futures that are done, and new messages."""


class Threads(RemotePool):
    """Threads of this process, which share its GPU: kernels of several nets run at once.

    An engine has streams of its own. Kernels of several processes would take turns.
    """

    def __init__(self, workers: int):
        super().__init__()
        self.workers, self._signum = workers, 0
        self._executor = futures.ThreadPoolExecutor(workers, cli.JOB_THREAD)
        self._submitted: list[Future] = []
        self._messages: SimpleQueue[Message] = SimpleQueue()

    def submit(self, function: Callable, *arguments: Any) -> Future:
        channel = Channel(self._messages.put, lambda: self._signum)
        future = self._executor.submit(run_job, channel, function, *arguments)
        self._submitted.append(future)
        return future

    def _receive(self, waiting: set[Future]) -> tuple[set[Future], list[Message]]:
        futures.wait(waiting, POLL_SECONDS, futures.FIRST_COMPLETED)
        done = {future for future in waiting if future.done()}  # `wait` leaves out cancelled ones
        return done, [self._messages.get() for _ in range(self._messages.qsize())]

    def stop(self, signum: int, waiting: Collection[Future]) -> None:
        self._signum = self._signum or signum
        self._executor.shutdown(wait=False, cancel_futures=True)
        for _ in self.as_completed(waiting):
            pass

    def close(self) -> None:
        self.stop(signal.SIGTERM, ())
        running = [future for future in self._submitted if not future.done()]
        if not futures.wait(running, CLOSE_SECONDS).not_done:  # else cli.run ends the process
            self._executor.shutdown()


@dataclass(eq=False)
class _Process:
    """A worker process. connection: gives it jobs, and gets their messages, results and exceptions.

    future: of the job that it runs.
    """

    process: BaseProcess
    connection: connection.Connection
    future: Future | None = None


class LocalProcesses(RemotePool):
    """Processes of this machine, which share its cores equally.

    n_gpus: how many GPUs there are; workers are assigned to them in turn, and this process gives
    them back. environment: all variables of the workers; None: as here, each with its threads.
    """

    def __init__(self, workers: int, n_gpus: int = 0, environment: Mapping[str, str] | None = None):
        super().__init__()
        self.workers, self._n_gpus, self._environment = workers, n_gpus, environment
        if n_gpus:
            from deepbig_runtime import gpu  # imports numba

            gpu.release()
        # A new interpreter each: CUDA and threads do not survive a fork.
        self._context = multiprocessing.get_context("spawn")
        with signals.blocked():
            resource_tracker.ensure_running()  # a process of Python's; its start unblocks SIGINT
        self._queue: deque[tuple[Future, Callable, tuple]] = deque()
        self._processes = {number: self._start(number) for number in range(workers)}

    def submit(self, function: Callable, *arguments: Any) -> Future:
        future: Future = Future()
        with signals.held():
            self._queue.append((future, function, arguments))
            self._give_out_jobs()
        return future

    def _give_out_jobs(self) -> None:
        for number in range(self.workers):
            if not self._queue:
                return
            if number not in self._processes:
                self._processes[number] = self._start(number)
            process = self._processes[number]
            if process.future is None:
                process.future, *job = self._queue.popleft()
                with suppress(OSError):  # it is dead, as its connection will tell
                    process.connection.send(job)

    def _start(self, number: int) -> _Process:
        before = dict(os.environ)
        share = max(1, provenance.cores() // self.workers)
        asked = {name: before.get(name, "") for name in THREAD_VARIABLES}
        threads = {
            name: str(min(share, int(n)) if n.isdecimal() else share) for name, n in asked.items()
        }
        gpu_number = number % self._n_gpus if self._n_gpus else None
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, gpu_number), daemon=True)
        environment = self._environment or before | threads
        try:
            os.environ.clear()
            os.environ.update(environment)
            with signals.blocked():  # in the worker until it has said that they are ignored
                process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        theirs.close()
        return _Process(process, ours)

    def _receive(self, waiting: set[Future]) -> tuple[set[Future], list[Message]]:
        messages = []
        timeout = 0 if any(future.done() for future in waiting) else POLL_SECONDS
        ready = connection.wait([p.connection for p in self._processes.values()], timeout)
        for number, process in list(self._processes.items()):
            if process.connection not in ready:
                continue
            try:
                received = process.connection.recv()
            except (EOFError, OSError):  # between two messages, or in the midst of one
                process.process.join(CLOSE_SECONDS)
                del self._processes[number]
                received = None, WorkerDied("a worker process died")
            except Exception as error:  # what the job raised cannot be unpickled
                received = None, error
            if isinstance(received, Message):
                messages.append(received)
            elif process.future is not None:
                result, exception = received
                if exception:
                    process.future.set_exception(exception)
                else:
                    process.future.set_result(result)
                process.future = None
        self._give_out_jobs()
        return {future for future in waiting if future.done()}, messages

    def stop(self, signum: int, waiting: Collection[Future]) -> None:
        self._send_signal(signum)
        for _ in self.as_completed(waiting):
            pass

    def _send_signal(self, signum: int) -> None:
        """Have workers end after their jobs, and begin no others."""
        while self._queue:
            self._queue.popleft()[0].cancel()
        for process in self._processes.values():
            with suppress(OSError):  # it is dead
                process.connection.send(signum)

    def close(self) -> None:
        # Jobs that still run belong to a command that ended with an error. What they have saved is
        # whole at any moment.
        self._send_signal(signal.SIGTERM)
        end = time.monotonic() + CLOSE_SECONDS
        for process in self._processes.values():
            process.process.join(max(0, end - time.monotonic()))
            process.process.kill()
            process.process.join()


def _work(pool: connection.Connection, gpu_number: int | None) -> None:
    """A worker process: run the jobs that come, one after another, until a signal comes."""
    open_streams()
    silence_libraries()
    # They reach all processes of a terminal. The parent decides what they mean.
    for signum in OF_TERMINALS:
        signal.signal(signum, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import numba  # noqa: F401 - while the command loads its data

    if gpu_number is not None:
        from deepbig_runtime import gpu  # imports numba

        gpu.select(gpu_number)
    received: list[int] = []  # the signal

    def stop_signal() -> int:
        if not received and pool.poll():
            received.append(pool.recv())
        return received[0] if received else 0

    channel = Channel(pool.send, stop_signal)
    answer: tuple[Any, Exception | None]
    with suppress(EOFError, ConnectionError):  # the command has ended
        while not received and not isinstance(job := pool.recv(), int):
            function, arguments = job
            try:
                answer = run_job(channel, function, *arguments), None
            except Exception as error:
                error.add_note(traceback.format_exc())  # its place, which is lost on the way
                answer = None, error
            pool.send(answer)


def _end_with_parent() -> None:
    """End this process when its parent has ended. Files are whole at any moment."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
