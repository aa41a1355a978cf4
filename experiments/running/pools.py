"""Where trainings run: in this process, in processes of this machine, on workers of a Dask cluster.

All three are executors of concurrent.futures with two things beside them: messages come back while
a job is done, and all jobs can be told to stop. A job is a function that takes a `Channel` first.
"""

import argparse
import asyncio
import ctypes
import functools
import json
import logging
import multiprocessing
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from typing import Any, Protocol

from experiments.running import provenance
from experiments.running.errors import Interrupted, Problem, signals
from experiments.running.messages import tell
from mlp_gpu.engines import choose_engine

TURN = 0.2  # seconds between two looks for messages
PATIENCE = 10  # seconds until a scheduler that does not answer is given up

# How many threads the libraries of a worker process may take.
THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Channel(Protocol):
    """What a job has of its pool.

    patience: seconds to wait for the lock of a run, where its last worker may take as long to stop.
    """

    patience: float

    def send(self, message: dict) -> None:
        """Send what JSON can hold."""

    def stopped(self) -> int:
        """The number of the signal for which the job should stop; 0: it should not."""


class Pool(Protocol):
    """Workers that do jobs. `take` is called, in this process, with each message of a job."""

    workers: int
    take: Callable[[dict], None]
    died: type[Exception]  # what a future raises whose worker died

    def submit(self, function: Callable, *arguments: Any) -> Future:
        """Have function(channel, *arguments) done by a worker."""

    def as_completed(self, waiting: Iterable[Future]) -> Iterator[Future]:
        """Hand out each of the futures once it is done; takes messages meanwhile."""

    def restart(self) -> None:
        """Replace the workers, when one of them died."""

    def stop(self, signum: int, waiting: Iterable[Future]) -> None:
        """Give up the futures: wait until jobs that have begun have saved what they did."""

    def close(self) -> None:
        """End the workers."""


class Here:
    """This process: a job is done when its turn to be handed out comes."""

    workers = 1
    died: type[Exception] = BrokenExecutor
    patience: float = 0

    def __init__(self) -> None:
        self.take: Callable[[dict], None] = lambda message: None
        self._waiting: dict[Future, Callable] = {}

    def send(self, message: dict) -> None:
        self.take(message)

    def stopped(self) -> int:
        return 0

    def submit(self, function: Callable, *arguments: Any) -> Future:
        future: Future = Future()
        self._waiting[future] = functools.partial(function, self, *arguments)
        return future

    def as_completed(self, waiting: Iterable[Future]) -> Iterator[Future]:
        for future in list(waiting):
            try:
                future.set_result(self._waiting.pop(future)())
            except Exception as error:
                future.set_exception(error)
            yield future

    def restart(self) -> None:
        pass

    def stop(self, signum: int, waiting: Iterable[Future]) -> None:
        pass

    def close(self) -> None:
        pass


class Local:
    """Processes of this machine, which divide its cores among them.

    gpus: how many GPUs they take in turn.
    """

    died: type[Exception] = BrokenExecutor

    def __init__(self, workers: int, gpus: int = 0):
        self.workers, self._gpus = workers, gpus
        self.take: Callable[[dict], None] = lambda message: None
        # A new interpreter each: CUDA and threads do not survive a fork.
        self._context = multiprocessing.get_context("spawn")
        # Without a lock, which a killed worker could hold for ever: what is written into a pipe in
        # less than 4096 bytes comes out in one piece.
        self._reader, self._writer = self._context.Pipe(duplex=False)
        self._stop = self._context.RawValue(ctypes.c_int, 0)
        self._start()

    def _start(self) -> None:
        self._processes: set[BaseProcess] = set()
        numbers = None
        if self._gpus:
            numbers = self._context.SimpleQueue()
            for number in range(self.workers):
                numbers.put(number % self._gpus)
        self._executor = ProcessPoolExecutor(
            self.workers,
            mp_context=self._context,
            initializer=_begin,
            initargs=(self._writer, self._stop, numbers),
        )

    def submit(self, function: Callable, *arguments: Any) -> Future:
        threads = max(1, provenance.cores() // self.workers)
        others = set(multiprocessing.active_children())
        try:
            with signals.held(), _starting(dict.fromkeys(THREADS, str(threads))):
                return self._executor.submit(_in_process, function, *arguments)
        except BrokenExecutor as error:  # a worker died before
            future: Future = Future()
            future.set_exception(error)
            return future
        finally:
            self._processes |= set(multiprocessing.active_children()) - others

    def as_completed(self, waiting: Iterable[Future]) -> Iterator[Future]:
        waiting = set(waiting)
        while waiting:
            self._reader.poll(TURN)
            if not all(process.is_alive() for process in self._processes):
                self.submit(_nothing)  # the executor may not know yet of one that it started last
            messages = []
            with signals.held():  # half a message read, or a lock kept, would be the end
                done, waiting = futures.wait(waiting, timeout=0)
                while self._reader.poll():
                    messages.append(self._reader.recv_bytes())
            for message in messages:
                self.take(json.loads(message))
            yield from done

    def restart(self) -> None:
        self._executor.shutdown()
        self._start()

    def stop(self, signum: int, waiting: Iterable[Future]) -> None:
        self._stop.value = signum
        begun = [future for future in waiting if not future.cancel()]
        for _ in self.as_completed(begun):
            pass

    def close(self) -> None:
        self._stop.value = signal.SIGTERM  # if anything still runs, an error ended the command
        self._executor.shutdown(cancel_futures=True)


class _Pipe:
    """A worker process' end of its pool."""

    patience: float = 0

    def __init__(self, writer: Connection, stop: Any):
        self._writer, self._stop = writer, stop

    def send(self, message: dict) -> None:
        self._writer.send_bytes(json.dumps(message).encode())

    def stopped(self) -> int:
        return self._stop.value


_channel: _Pipe  # of this worker process


def _begin(writer: Connection, stop: Any, numbers: SimpleQueue | None) -> None:
    """The first thing a worker process does."""
    global _channel
    _channel = _Pipe(writer, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if numbers is not None:
        from mlp_gpu import gpu  # imports numba

        gpu.select(numbers.get())


def _end_with_parent() -> None:
    """Nobody waits for this process any more: what it saved last is whole."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _nothing(_channel: Channel) -> None:
    """A job that changes nothing."""


def _in_process(function: Callable, *arguments: Any) -> Any:
    try:
        return function(_channel, *arguments)
    except Interrupted:
        return None


@contextmanager
def _starting(variables: dict[str, str]) -> Iterator[None]:
    """Inside, new processes have these variables, and wait with SIGINT until they can take it."""
    before = dict(os.environ)
    os.environ.update(variables)
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.environ.clear()
        os.environ.update(before)


class Cluster:
    """The workers of a Dask cluster, which its scheduler keeps busy and replaces when they die.

    address: of the scheduler, as Dask writes it: tcp://host:port.
    Raises Problem if it cannot be used.
    """

    def __init__(self, address: str):
        try:
            import distributed
        except ImportError:
            raise Problem(
                "--scheduler needs Dask, which is not installed; install it with "
                "pip install -e '.[distributed]', here and where the workers are"
            ) from None
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # we say it ourselves
        self.take: Callable[[dict], None] = lambda message: None
        self.died: type[Exception] = distributed.KilledWorker
        try:
            asyncio.run(_knock(address))
            self._client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:  # TypeError: TLS is not configured
            raise Problem(
                f"--scheduler {address}: expected the address of a Dask scheduler, "
                f"tcp://host:port, found none that answers within {PATIENCE} s "
                f"({str(error) or type(error).__name__}); start one with 'dask scheduler' and "
                "workers with 'dask worker ADDRESS --nthreads 1'"
            ) from None
        threads = self._client.nthreads().values()
        self.workers = len(threads)
        if set(threads) != {1}:
            self._client.close()
            found = "workers of several threads" if threads else "no workers"
            raise Problem(
                f"--scheduler {address} has {found}; start some with 'dask worker {address} "
                "--nthreads 1'"
            )
        self._check_sources()
        name = f"deepbig-{uuid.uuid4().hex}"
        self._name = name
        self._messages = distributed.Queue(name, client=self._client)
        self._stop = distributed.Variable(name, client=self._client)
        self._stop.set(0)
        self._executor = self._client.get_executor(pure=False)

    def _check_sources(self) -> None:
        """Raise Problem unless everybody runs what this process runs."""
        here = provenance.commit()["commit"]
        try:
            found = self._client.run_on_scheduler(provenance.commit), *self.ask(provenance.commit)
        except ImportError as error:
            self._client.close()
            raise Problem(
                f"the scheduler or a worker lacks what it needs ({error}); install deepbig there, "
                "in the same version as here"
            ) from None
        others = {source["commit"] for source in found} - {here}
        if others:
            self._client.close()
            raise Problem(
                f"the scheduler or a worker runs another source tree: expected commit {here}, "
                f"found {', '.join(sorted(others))}; install the same one everywhere"
            )

    def ask(self, function: Callable, *arguments: Any) -> list:
        """What function(*arguments) returns on each worker."""
        return list(self._client.run(function, *arguments).values())

    def submit(self, function: Callable, *arguments: Any) -> Future:
        return self._executor.submit(_on_cluster, self._name, function, *arguments)

    def as_completed(self, waiting: Iterable[Future]) -> Iterator[Future]:
        waiting = set(waiting)
        while waiting:
            with signals.held():  # a lock kept would be the end
                done, waiting = futures.wait(waiting, TURN, futures.FIRST_COMPLETED)
            with _asking():
                messages = self._messages.get(batch=True) if self._messages.qsize() else ()
            for message in messages:
                self.take(json.loads(message))
            yield from done

    def restart(self) -> None:
        pass  # the scheduler does

    def stop(self, signum: int, waiting: Iterable[Future]) -> None:
        with _asking():
            self._stop.set(signum)
        for _ in self.as_completed(waiting):
            pass

    def close(self) -> None:
        if self._client.status == "running":  # and the scheduler is not lost
            with suppress(OSError):
                self._stop.set(signal.SIGTERM)  # if anything still runs, an error ended the command
                self._executor.shutdown()
        self._client.close()


async def _knock(address: str) -> None:
    """Raise OSError, ValueError or TypeError unless a scheduler answers.

    A Client would wait for ever for somebody who says nothing, and long for one of no such address.
    """
    from distributed import Security, rpc

    security = Security().get_connection_args("client")
    async with rpc(address, timeout=PATIENCE, connection_args=security) as server:
        identity = await asyncio.wait_for(server.identity(), PATIENCE)
    if identity["type"] != "Scheduler":
        raise ValueError(f"this is a {identity['type'].lower()}'s")


@contextmanager
def _asking() -> Iterator[None]:
    """Inside, a scheduler that is lost is a Problem."""
    try:
        yield
    except (OSError, KeyError) as error:  # KeyError: another one has taken its place
        raise Problem(
            f"the scheduler is lost ({type(error).__name__}); all finished epochs are safe: the "
            "same command goes on from there"
        ) from None


class _Dask:
    """A Dask worker's end of the pool of that name."""

    patience: float = 60

    def __init__(self, name: str):
        import distributed

        worker, client = distributed.get_worker(), distributed.get_client()
        self._tasks, self._key = worker.state.tasks, worker.get_current_task()
        self._messages = distributed.Queue(name, client=client)
        self._stop = distributed.Variable(name, client=client)

    def send(self, message: dict) -> None:
        self._messages.put(json.dumps(message))

    def stopped(self) -> int:
        task = self._tasks.get(self._key)
        if (
            task is None or task.state == "cancelled"
        ):  # the client is gone, or another worker has it
            return signal.SIGTERM
        return self._stop.get()


def _on_cluster(name: str, function: Callable, *arguments: Any) -> Any:
    try:
        return function(_Dask(name), *arguments)
    except Interrupted:
        return None


@contextmanager
def opened(
    arguments: argparse.Namespace, n_jobs: int, n_bytes: int
) -> Iterator[tuple[Pool, str, str]]:
    """The pool that the command line asks for, the name of its engine and that of its devices.

    arguments: those of cli.add_engine_arguments and cli.add_worker_arguments. n_jobs: for more jobs
    there is no need. n_bytes: memory that a GPU must have. Says which engine is taken, and why.
    Raises Problem or gpu.GpuFault if it cannot be had.
    """
    from mlp_gpu import gpu  # imports numba

    if arguments.scheduler:
        with closing(Cluster(arguments.scheduler)) as cluster:

            def missing() -> str | None:
                return next(filter(None, cluster.ask(gpu.missing, n_bytes)), None)

            engine = choose_engine(arguments.engine, missing, tell)
            yield cluster, engine, " and ".join(sorted(set(cluster.ask(provenance.device, engine))))
        return
    engine = choose_engine(arguments.engine, lambda: gpu.missing(n_bytes), tell)
    gpus = gpu.count() if engine == "cuda" else 0
    workers = min(arguments.workers or gpus or provenance.cores(), n_jobs)
    with closing(Local(workers, gpus) if workers > 1 else Here()) as pool:
        yield pool, engine, provenance.device(engine)
