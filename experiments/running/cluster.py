"""A pool of the workers of a Dask cluster. To import this module, Dask must be installed."""

import asyncio
import json
import logging
import signal
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import distributed

from experiments.running import provenance
from experiments.running.errors import Interrupted, Problem, signals
from experiments.running.formatting import duration

POLL_SECONDS = 0.2  # between two looks for messages
CONNECT_TIMEOUT = 10  # seconds until a scheduler that does not answer is given up
NO_WORKER_TIMEOUT = 600  # seconds until a cluster that has lost all its workers is given up


class Cluster:
    """The workers of a Dask cluster. See `pools.Pool` for the methods.

    The cluster's scheduler distributes the jobs, and replaces workers that die.

    address: of the scheduler, as Dask writes it: tcp://host:port.
    Raises Problem if the cluster cannot be used.
    """

    WorkerDied: type[Exception] = distributed.KilledWorker

    def __init__(self, address: str):
        # Its warnings of a lost scheduler would stand beside our own sentence.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        self.on_message: Callable[[dict], None] = lambda message: None
        self._address = address
        try:
            asyncio.run(_require_scheduler(address))
            self._client = distributed.Client(
                address, timeout=CONNECT_TIMEOUT, set_as_default=False
            )
        except (OSError, ValueError, TypeError) as error:  # TypeError: TLS is not configured
            raise Problem(
                f"--scheduler {address}: expected the address of a Dask scheduler, "
                f"tcp://host:port, found none that answers within {CONNECT_TIMEOUT} s "
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
        self._require_same_sources()
        self._name = f"deepbig-{uuid.uuid4().hex}"
        self._messages = distributed.Queue(self._name, client=self._client)
        self._stop_signal = distributed.Variable(self._name, client=self._client)
        self._stop_signal.set(0)
        self._executor = self._client.get_executor(pure=False)

    def _require_same_sources(self) -> None:
        """Raise Problem unless the scheduler and all workers run the sources of this process."""
        here = provenance.commit()["commit"]
        try:
            found = [
                self._client.run_on_scheduler(provenance.commit),
                *self.call_on_workers(provenance.commit),
            ]
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

    def call_on_workers(self, function: Callable, *arguments: Any) -> list:
        """What function(*arguments) returns on each worker."""
        return list(self._client.run(function, *arguments).values())

    def submit(self, function: Callable, *arguments: Any) -> Future:
        return self._executor.submit(_run_job, self._name, function, *arguments)

    def as_completed(self, waiting: Iterable[Future]) -> Iterator[Future]:
        """As `pools.Pool` says. Raises Problem if the scheduler or all workers are lost."""
        waiting = set(waiting)
        heard = time.monotonic()
        while waiting:
            with signals.held():  # a signal that came between would leave a lock held
                done, waiting = futures.wait(waiting, POLL_SECONDS, futures.FIRST_COMPLETED)
            with _scheduler_lost_is_problem():
                messages = self._messages.get(batch=True) if self._messages.qsize() else ()
                if done or messages:
                    heard = time.monotonic()
                silence = time.monotonic() - heard
                is_lost = silence > NO_WORKER_TIMEOUT and not self._client.nthreads()
            if is_lost:
                raise Problem(
                    "the cluster has lost all its workers, and none came within "
                    f"{duration(silence)}; all finished epochs are safe: start workers with "
                    f"'dask worker {self._address} --nthreads 1', then the same command goes on "
                    "from there"
                )
            for message in messages:
                self.on_message(json.loads(message))
            yield from done

    def restart(self) -> None:
        pass  # the scheduler replaces workers

    def stop(self, signum: int, waiting: Iterable[Future]) -> None:
        with _scheduler_lost_is_problem():
            self._stop_signal.set(signum)
            if not self._client.nthreads():
                return  # no job is running
        for _ in self.as_completed(waiting):
            pass

    def close(self) -> None:
        if self._client.status == "running":  # and the scheduler is not lost
            with suppress(OSError):
                # Jobs that still run belong to a command that ended with an error.
                self._stop_signal.set(signal.SIGTERM)
                self._executor.shutdown(wait=bool(self._client.nthreads()))
        self._client.close()


async def _require_scheduler(address: str) -> None:
    """Raise OSError, ValueError or TypeError unless a scheduler answers at the address.

    A Client would wait for ever for a server that never answers, and long if there is none.
    """
    security = distributed.Security().get_connection_args("client")
    connection = distributed.rpc(address, timeout=CONNECT_TIMEOUT, connection_args=security)
    async with connection as server:
        identity = await asyncio.wait_for(server.identity(), CONNECT_TIMEOUT)
    if identity["type"] != "Scheduler":
        raise ValueError(f"this is a {identity['type'].lower()}'s")


@contextmanager
def _scheduler_lost_is_problem() -> Iterator[None]:
    """Inside, what is raised because the scheduler is lost becomes a Problem."""
    try:
        yield
    except (OSError, KeyError) as error:  # KeyError: another scheduler answers in its place
        raise Problem(
            f"the scheduler is lost ({type(error).__name__}); all finished epochs are safe: the "
            "same command goes on from there"
        ) from None


class _DaskChannel:
    """The channel of a job on a Dask worker.

    name: of the pool's queue of messages, and of its stop signal.
    """

    lock_timeout: float = 60

    def __init__(self, name: str):
        worker, client = distributed.get_worker(), distributed.get_client()
        self._tasks, self._key = worker.state.tasks, worker.get_current_task()
        self._messages = distributed.Queue(name, client=client)
        self._stop_signal = distributed.Variable(name, client=client)

    def send(self, message: dict) -> None:
        self._messages.put(json.dumps(message))

    def stop_signal(self) -> int:
        task = self._tasks.get(self._key)
        if task is None or task.state == "cancelled":
            return signal.SIGTERM  # the client has ended, or another worker has got the job
        return self._stop_signal.get()


def _run_job(name: str, function: Callable, *arguments: Any) -> Any:
    try:
        return function(_DaskChannel(name), *arguments)
    except Interrupted:
        return None
