"""Where trainings run: in this process, in processes of this machine, on workers of a Dask cluster.

All three pools work like executors of concurrent.futures. Beside that, a job sends messages while
it runs, and a pool can ask all its jobs to stop. A job is a function whose first argument is a
`Channel`. The pools of processes are in `processes.py` and `cluster.py`.
"""

import argparse
import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import closing, contextmanager
from typing import Any, Protocol

from experiments.running import gpu_trial, provenance
from experiments.running.errors import Problem
from experiments.running.messages import tell
from experiments.running.processes import LocalProcesses
from mlp_gpu.engines import choose_engine


class Channel(Protocol):
    """A job's connection to its pool.

    lock_timeout: seconds to wait for the lock of a run. Above 0 where the worker that had the run
    before may need that long to stop.
    """

    lock_timeout: float

    def send(self, message: dict) -> None:
        """Send a message that JSON can hold."""

    def stop_signal(self) -> int:
        """The number of the signal for which the job should stop; 0 if it should go on."""


class Pool(Protocol):
    """Workers that run jobs.

    workers: how many jobs run at once. on_message: called in this process with each message of a
    job. WorkerDied: the exception that a future raises if the worker died that ran its job.
    """

    workers: int
    on_message: Callable[[dict], None]
    WorkerDied: type[Exception]

    def submit(self, function: Callable, *arguments: Any) -> Future:
        """Have a worker run function(channel, *arguments)."""

    def as_completed(self, waiting: Iterable[Future]) -> Iterator[Future]:
        """Yield each of the futures once it is done. Messages are handled meanwhile."""

    def restart(self) -> None:
        """Replace the workers after one of them died."""

    def stop(self, signum: int, waiting: Iterable[Future]) -> None:
        """Give up the futures, but wait until the jobs that have begun have saved their work."""

    def close(self) -> None:
        """End the workers."""


class InProcess:
    """A pool that runs each job in this process, when `as_completed` comes to its future."""

    workers = 1
    WorkerDied: type[Exception] = BrokenExecutor
    lock_timeout: float = 0

    def __init__(self) -> None:
        self.on_message: Callable[[dict], None] = lambda message: None
        self._waiting: dict[Future, Callable] = {}

    def send(self, message: dict) -> None:
        self.on_message(message)

    def stop_signal(self) -> int:
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


@contextmanager
def opened(
    arguments: argparse.Namespace, n_jobs: int, needed_bytes: Callable[[], int]
) -> Iterator[tuple[Pool, str, str]]:
    """The pool that the command line asks for, the name of its engine and that of its devices.

    arguments: those of cli.add_engine_arguments and cli.add_worker_arguments. n_jobs: a pool has
    no more workers than that. needed_bytes: memory that a GPU must have; called if there is a GPU.
    Says why no GPU is used, if none is, and whether the processor lacks what makes the CPU fast.

    Raises Problem or gpu.GpuFault if the pool or its engine cannot be had.
    """
    if arguments.scheduler:
        from deepbig_runtime import gpu  # imports numba

        try:
            from experiments.running.cluster import Cluster
        except ImportError:
            raise Problem(
                "--scheduler needs Dask, which is not installed; install it with "
                "pip install -e '.[distributed]', here and where the workers are"
            ) from None
        with closing(Cluster(arguments.scheduler)) as cluster:

            def missing() -> str | None:
                trials = cluster.call_on_workers(gpu_trial.try_gpu)
                if reasons := [trial.reason for trial in trials if trial.reason]:
                    return reasons[0]
                needed = needed_bytes()
                return next(filter(None, cluster.call_on_workers(gpu.missing, needed)), None)

            engine = choose_engine(arguments.engine, missing, tell)
            devices = set(cluster.call_on_workers(provenance.device, engine))
            yield cluster, engine, " and ".join(sorted(devices))
        return
    engine = choose_engine(arguments.engine, lambda: _missing_here(needed_bytes), tell)
    if engine == "cpu" and provenance.lacks_multiply_add():
        tell(
            "this processor has no fused multiply-add, so the C library computes each one: results "
            "are the same, and training is slow"
        )
    device, n_gpus = provenance.device(engine), 0
    if engine == "cuda":
        from deepbig_runtime import gpu  # imports numba

        n_gpus = gpu.count()
    usual = n_gpus or max(1, provenance.cores() // arguments.cores_of_worker)
    workers = min(arguments.workers or usual, n_jobs)
    with closing(LocalProcesses(workers, n_gpus) if workers > 1 else InProcess()) as pool:
        yield pool, engine, device


def _missing_here(needed_bytes: Callable[[], int]) -> str | None:
    """Why no GPU of this machine can be used, in a sentence; None if one can."""
    if reason := gpu_trial.try_gpu().reason:
        return reason
    from deepbig_runtime import gpu  # imports numba

    return gpu.missing(needed_bytes())
