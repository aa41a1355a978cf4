"""The workers of a Dask cluster. To import this module, Dask must be installed."""

import asyncio
import logging
import signal
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import distributed
import msgspec

from deepbig_runtime.errors import Problem
from experiments.training import provenance
from experiments.training.workers import (
    POLL_SECONDS,
    AnyMessage,
    Channel,
    Message,
    RemotePool,
    run_job,
)

CONNECT_TIMEOUT = 10  # seconds until a scheduler that does not answer is given up
LOCK_TIMEOUT = 60  # seconds that a worker may need to stop after the scheduler gave its job away

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(AnyMessage).decode


class Cluster(RemotePool):
    """The workers of a Dask cluster.

    The cluster's scheduler distributes the jobs, and replaces workers that die.

    address: of the scheduler, as Dask writes it: tcp://host:port.
    Raises Problem if the cluster cannot be used or has no workers, and later if its scheduler is
    lost. A cluster that has lost all its workers since is waited for.
    """

    WorkerDied: type[Exception] = distributed.KilledWorker

    def __init__(self, address: str):
        super().__init__()
        # Its warnings of a lost scheduler would stand beside our own sentence.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
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
        try:
            self._require_usable_workers()
        except Problem:
            self._client.close()
            raise
        self._name = f"deepbig-{uuid.uuid4().hex}"
        self._messages: deque[bytes] = deque()  # filled by the client's thread
        self._client.subscribe_topic(self._name, lambda event: self._messages.append(event[1]))
        self._stop_signal = distributed.Variable(self._name, client=self._client)
        self._stop_signal.set(0)
        self._executor = self._client.get_executor(pure=False)

    def _require_usable_workers(self) -> None:
        """Raise Problem unless workers of one thread, and the scheduler, run our sources."""
        threads = self._client.nthreads().values()
        self.workers = len(threads)
        if set(threads) != {1}:
            found = "workers of several threads" if threads else "no workers"
            raise Problem(
                f"--scheduler {self._address} has {found}; start some with 'dask worker "
                f"{self._address} --nthreads 1'"
            )
        try:
            sources = [
                self._client.run_on_scheduler(provenance.commit),
                *self.call_on_workers(provenance.commit),
            ]
        except ImportError as error:
            raise Problem(
                f"the scheduler or a worker lacks what it needs ({error}); install deepbig there, "
                "in the same version as here"
            ) from None
        here = provenance.commit()["commit"]
        if others := {source["commit"] for source in sources} - {here}:
            raise Problem(
                f"the scheduler or a worker runs another source tree: expected commit {here}, "
                f"found {', '.join(sorted(others))}; install the same one everywhere, then start "
                "the scheduler and its workers again"
            )

    def call_on_workers(self, function: Callable, *arguments: Any) -> list:
        return list(self._client.run(function, *arguments).values())

    def submit(self, function: Callable, *arguments: Any) -> Future:
        return self._executor.submit(_run_on_worker, self._name, function, *arguments)

    def _receive(self, waiting: set[Future]) -> tuple[set[Future], list[Message]]:
        done, _ = futures.wait(waiting, POLL_SECONDS, futures.FIRST_COMPLETED)
        messages = [_decode(self._messages.popleft()) for _ in range(len(self._messages))]
        with _scheduler_lost_is_problem():
            self._client.nthreads()
        return done, messages

    def stop(self, signum: int, waiting: Collection[Future]) -> None:
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
        with suppress(RuntimeError):  # Dask's, if a connection's timeout expires at that moment
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
            f"the scheduler is lost ({type(error).__name__}); all saved epochs are safe: the "
            "same command goes on from there"
        ) from None


def _run_on_worker(name: str, function: Callable, *arguments: Any) -> Any:
    """Run a job on a Dask worker. name: of the topic of messages, and of the stop signal."""
    worker = distributed.get_worker()
    key = worker.get_current_task()
    signal_of_pool = distributed.Variable(name, client=distributed.get_client())

    def stop_signal() -> int:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            return signal.SIGTERM  # the client has ended, or another worker has got the job
        return signal_of_pool.get()

    def send(message: Message) -> None:
        worker.log_event(name, _encode(message))

    return run_job(Channel(send, stop_signal, LOCK_TIMEOUT), function, *arguments)
