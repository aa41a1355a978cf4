"""Many independent trainings: each is a job for a worker of a pool.

A worker process that dies loses the epoch it was in, and those that are not saved yet: one at most,
on a GPU those of up to 5 seconds more. Its job is submitted again, and another worker goes on from
the run file, if both see the same folder. A lock beside that file keeps others out.
"""

import argparse
import math
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deepbig_runtime import compiled_cache, files
from deepbig_runtime.errors import Interrupted, Problem, explained, tell
from deepbig_runtime.faults import GpuFault
from experiments.datasets import data
from experiments.training import cli, configs, gpu_trial, nets, plans, provenance, runs, store
from experiments.training.configs import Config
from experiments.training.formatting import duration
from experiments.training.progress import Track, View
from experiments.training.store import Run
from experiments.training.workers import (
    Channel,
    EpochSaved,
    InProcess,
    LocalProcesses,
    Message,
    Pool,
    Started,
    Threads,
    Trained,
)
from mlp_gpu.engine import SCHEDULES, WINDOW, Engine
from mlp_gpu.engines import choose_engine
from mlp_gpu.training import Epoch

MESSAGE_SECONDS = 0.5  # between two messages of a training

FIRST_COMPILED = "19 s on AMD EPYC, 2 cores"  # the slowest in results/*/startup.csv
MAX_WORKER_DEATHS = 3  # of the workers of a job in a row, without an epoch done

FAILED, GPU_FAILED = 1, 2  # exit statuses

# Held by one thread of this process at a time: to read data, which all share, and to compile; and
# to train on the CPU, whose engine takes all cores.
_preparing, _on_cpu = threading.Lock(), threading.Lock()


@dataclass(frozen=True, eq=False)
class Job:
    """A training.

    path: its run file. label: its name in messages, unique among the jobs of a command. config:
    what defines the run. data_dir: folder of the data, None for the usual places. schedule: how a
    GPU's kernels are launched. deadline: when it must have stopped, seconds since 1970.
    """

    path: Path
    label: str
    config: Config
    data_dir: Path | None = None
    schedule: str = SCHEDULES[0]
    deadline: float = math.inf


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with a finished run, or with a failure, a sentence that says why.

    stopped: how many epochs are saved of a run whose time is over, a sentence. status: what the
    command's exit status becomes: 0, or FAILED, or GPU_FAILED.
    """

    run: Run | None = None
    failure: str | None = None
    status: int = 0
    stopped: str | None = None


class Reporter(runs.Callbacks):
    """Sends messages about a job, and ends it when the pool asks it to stop or its time is over.

    deadline: see Job. An epoch does not begin if it would end later, by the time of the last one.
    """

    def __init__(self, label: str, channel: Channel, deadline: float):
        self._label, self._channel, self._deadline = label, channel, deadline
        self._images, self._sent = 0, time.perf_counter()

    def start(self, epochs_done: int) -> None:
        self._channel.send(Started(self._label, epochs_done))

    def tick(self, n_images: int) -> None:
        self._images += n_images
        self._stop_if_late(0)
        if time.perf_counter() - self._sent < MESSAGE_SECONDS:
            return
        if signum := self._channel.stop_signal():
            raise Interrupted(signum)
        self._channel.send(Trained(self._label, self._images))
        self._images, self._sent = 0, time.perf_counter()

    def epoch_ended(self, seconds: float) -> None:
        self._stop_if_late(seconds)

    def _stop_if_late(self, seconds: float) -> None:
        """Raise TimeIsUp if the deadline is less than `seconds` away."""
        if time.monotonic() + seconds > self._deadline:
            raise runs.TimeIsUp

    def epoch(self, row: Epoch) -> None:
        self._channel.send(Trained(self._label, self._images))
        self._images = 0
        values = {name: getattr(row, name) for name in EpochSaved.__struct_fields__[1:]}
        self._channel.send(EpochSaved(self._label, **values))


def train_job(channel: Channel, job: Job) -> Outcome:
    """Train the run of a job to its end. This runs in a worker.

    Raises Interrupted on a signal to this process, and when the pool asks its jobs to stop.
    """
    provenance.commit()  # of the code just imported, not of what is there when the run begins
    if time.monotonic() > job.deadline:
        return Outcome(stopped="it was not begun before the time was over")
    try:
        with _ready(job) as (engine, whole):
            dataset = configs.prepare(whole, job.config)
            reporter, timeout = Reporter(job.label, channel, job.deadline), channel.lock_timeout
            return Outcome(runs.train_run(job.path, job.config, dataset, engine, reporter, timeout))
    except runs.TimeIsUp as reason:
        return Outcome(stopped=str(reason))
    except Exception as error:
        if sentence := explained(error):  # its causes are lost on the way to the command
            return Outcome(None, sentence, GPU_FAILED if isinstance(error, GpuFault) else FAILED)
        raise


def estimate_job(_channel: Channel, job: Job) -> float:
    """About how many seconds an epoch of the job takes. This runs in a worker."""
    with _ready(job) as (engine, dataset):
        return runs.estimate_epoch_seconds(engine, job.config, dataset)


@contextmanager
def _ready(job: Job) -> Iterator[tuple[Engine, data.Dataset]]:
    """The engine of a job with its code compiled, and all images of its data."""
    with _on_cpu if job.config.engine == "cpu" else nullcontext():
        with _preparing:
            dataset = configs.load(job.config, job.data_dir)
            engine = nets.make_engine(job.config, job.schedule)
            runs.warm_up(engine, job.config, dataset)
        yield engine, dataset


def workload(job: Job) -> tuple:
    """What the time of an epoch depends on: equal for jobs whose epochs take equally long."""
    config = job.config
    return (
        config.net_name,
        config.data.n_train,
        config.n_validation,
        config.deformed_on,
        config.study,
        job.schedule,
    )


@contextmanager
def opened(
    arguments: argparse.Namespace, n_jobs: int, needed_bytes: Callable[[], int]
) -> Iterator[tuple[Pool, str, str]]:
    """The pool that the command line asks for, the name of its engine and that of its devices.

    arguments: those of cli.add_engine_arguments and cli.add_worker_arguments; gets `windows`:
    whether new runs of perceptrons have the schedule `window`. n_jobs: a pool has no more workers
    than that. needed_bytes: memory that a training needs of a GPU; called if there is a GPU.
    Says why --engine auto takes no GPU, unless there is neither a driver nor a GPU.

    Raises Problem or gpu.GpuFault if the pool or its engine cannot be had.
    """
    with closing(_cluster(arguments.scheduler) if arguments.scheduler else InProcess()) as pool:
        engine = choose_engine(arguments.engine, partial(_no_gpu, pool, needed_bytes), tell)
        device = " and ".join(sorted(set(pool.call_on_workers(provenance.device, engine))))
        n_gpus = 0
        if engine == "cuda":  # before worker processes take the GPUs from this one
            from deepbig_runtime import gpu  # imports numba
            from mlp_gpu.tensor_cores import LOWEST_CC

            arguments.windows = min(pool.call_on_workers(gpu.compute_capability)) >= LOWEST_CC
            n_gpus = 0 if arguments.scheduler else gpu.count()
        usual = n_gpus or max(1, provenance.cores() // arguments.cores_of_worker)
        workers = min(arguments.workers or usual, n_jobs)
        if workers <= 1 or arguments.scheduler:
            yield pool, engine, device
            return
        if n_gpus == 1 and (reason := gpu.missing(workers * needed_bytes())):
            raise Problem(f"{reason}, or take fewer --workers")
        with closing(Threads(workers) if n_gpus == 1 else LocalProcesses(workers, n_gpus)) as local:
            yield local, engine, device


def _no_gpu(pool: Pool, needed_bytes: Callable[[], int]) -> str | None:
    """Why the GPUs of a pool cannot be used, in a sentence; None if they can."""
    reasons = [trial.reason for trial in pool.call_on_workers(gpu_trial.try_gpu)]
    if not any(reasons):
        from deepbig_runtime import gpu  # imports numba

        reasons = pool.call_on_workers(gpu.missing, needed_bytes())
    return next(filter(None, reasons), None)


def _cluster(address: str) -> Pool:
    try:
        from experiments.training.cluster import Cluster
    except ImportError:
        raise Problem(
            "--scheduler needs Dask, which is not installed; install it with "
            "pip install -e '.[distributed]', here and where the workers are"
        ) from None
    return Cluster(address)


@contextmanager
def session(
    arguments: argparse.Namespace, n_jobs: int, some_nets: Sequence[tuple[int, ...] | str]
) -> Iterator[tuple[data.Dataset, Pool, str]]:
    """The data, the pool and the engine's name that a command line asks for; says what they are.

    The images are as data.load_pixels gives them.

    arguments: those of plans.add_trainer_arguments, but those of the learning rate may be missing;
    completed as by `opened`. The folder --out is made. n_jobs: the number of trainings.
    some_nets: the different nets, as configs.make_config takes them.
    Raises Problem, files.FileFault or gpu.GpuFault if any of it cannot be had.
    """
    size = getattr(arguments, "size", None)
    if cli.is_folder(arguments.data):
        if arguments.data_dir not in (None, Path(arguments.data)):
            raise Problem(
                f"--data names the folder of the data, {arguments.data}; leave --data-dir out"
            )
        arguments.data_dir = Path(arguments.data)
    files.make_folder(arguments.out)
    load = partial(data.cached_pixels, arguments.data, arguments.data_dir, size)
    needed = partial(nets.needed_bytes, some_nets, load)
    with opened(arguments, n_jobs, needed) as (pool, engine, device):
        dataset = load()
        tell(
            f"{dataset.name}: {len(dataset.train_labels):,} training and "
            f"{len(dataset.test_labels):,} test images, from {dataset.source}"
        )
        if arguments.schedule and engine == "cpu":
            tell("--schedule is for a GPU and changes nothing here")
        on_workers = f", {pool.workers} workers" if pool.workers > 1 else ""
        tell(f"engine {engine}: {device}{on_workers}")
        if "profile" in arguments:
            tell(plans.announce(arguments, engine))
        sources = provenance.commit()
        if sources["commit"] == provenance.UNKNOWN:
            tell(provenance.NO_COMMIT)
        elif sources["dirty"]:
            tell(provenance.CHANGED)
        if engine == "cpu" and compiled_cache.lacks("train_"):
            tell(f"code is compiled for the first time, which took {FIRST_COMPILED}")
        if reason := compiled_cache.NOT_KEPT:
            tell(f"compiled code is not kept, so each process compiles anew: {reason}")
        yield dataset, pool, engine


def takes_windows(arguments: argparse.Namespace, path: Path) -> bool:
    """Whether a GPU trains the run at `path` by the schedule `window`.

    A run that has begun keeps its own. Raises files.FileFault if its file is damaged.
    """
    if arguments.schedule:
        return arguments.schedule == WINDOW
    if not path.exists():
        return arguments.windows
    begun = store.read_run(path, path.name.endswith(store.STUDY_SUFFIX))
    return begun.config.images_per_block is not None


def make_job(arguments: argparse.Namespace, path: Path, label: str, config: Config) -> Job:
    """The job of a run, with the folders and the schedule that the command line asks for."""
    data_dir = arguments.data_dir
    if arguments.scheduler:  # workers have other current folders
        path, data_dir = path.absolute(), data_dir and data_dir.absolute()
    schedule = WINDOW if config.images_per_block else cli.schedule(arguments)
    return Job(path, label, config, data_dir, schedule, getattr(arguments, "deadline", math.inf))


def train_all(jobs: Sequence[Job], pool: Pool) -> list[Outcome]:
    """Train all jobs to their ends. Each goes on from the last epoch in its run file.

    Returns the outcomes in the order of the jobs. Reports the expected duration first, then each
    job that fails.

    Raises Problem or files.FileFault if a run file is damaged or holds another run, before anything
    is trained. Raises Interrupted on a signal; all finished epochs are then in the run files.
    """
    epochs_done = {job: runs.epochs_done(job.path, job.config) for job in jobs}
    unfinished = [job for job in jobs if epochs_done[job] < job.config.epochs]
    epoch_seconds = _estimate_all(unfinished, pool)
    _announce(jobs, epochs_done, epoch_seconds, pool)
    for job in unfinished:
        if time.monotonic() + epoch_seconds[workload(job)] > job.deadline:
            tell(f"{job.label}: its first epoch is unlikely to end within --minutes")
    tracks = [
        Track(job.label, job.config, epoch_seconds[workload(job)], epochs_done[job])
        for job in unfinished
    ]
    with View(tracks, len(jobs) - len(unfinished)) as view:
        outcomes = _train_unfinished(unfinished, pool, view)
    outcomes |= {
        job: Outcome(store.read_run(job.path, job.config.study is not None))
        for job in jobs
        if job not in outcomes
    }
    if n_failed := sum(outcome.failure is not None for outcome in outcomes.values()):
        tell(f"{n_failed} of {len(jobs)} runs failed, see above")
    return [outcomes[job] for job in jobs]


def _estimate_all(jobs: Sequence[Job], pool: Pool) -> dict[tuple, float]:
    """Seconds per epoch for each workload, tried out by all workers that will train it at once."""
    futures: dict[Future, tuple] = {}
    seconds: dict[tuple, float] = {}
    examples = {workload(job): job for job in reversed(jobs)}
    n_alike = Counter(map(workload, jobs))
    for key, job in examples.items():
        for _ in range(min(n_alike[key], pool.workers)):
            futures[pool.submit(estimate_job, job)] = key
    try:
        for future in pool.as_completed(futures):
            key = futures[future]
            seconds[key] = max(seconds.get(key, 0), future.result())
    except pool.WorkerDied:
        raise Problem(
            "a worker process died while it tried out a training; if memory is short, take fewer "
            "workers"
        ) from None
    return seconds


def _announce(
    jobs: Sequence[Job],
    epochs_done: dict[Job, int],
    epoch_seconds: dict[tuple, float],
    pool: Pool,
) -> None:
    """Say how long the training will take, a line for each group of equal jobs."""
    groups: dict[tuple, list[Job]] = {}
    for job in jobs:
        groups.setdefault((epochs_done[job], job.config.epochs, workload(job)), []).append(job)
    total = longest = 0.0
    for (done, epochs, load), group in groups.items():
        first = group[0]
        name = first.label + (f" and {len(group) - 1} like it" if len(group) > 1 else "")
        if done == epochs:
            tell(f"{name}: finished, in {first.path if len(group) == 1 else first.path.parent}")
            continue
        seconds = epoch_seconds[load] * (epochs - done)
        total += seconds * len(group)
        longest = max(longest, seconds)
        tell(
            f"{name}: epochs x images {epochs} x {first.config.data.n_train:,}"
            + (f", {done} epochs done" if done else "")
            + (f", schedule {first.schedule}" if first.config.engine == "cuda" else "")
            + f", about {duration(seconds)}"
            + (" each" if len(group) > 1 else "")
        )
    workers = f", on {pool.workers} workers" if pool.workers > 1 else ""
    tell(f"about {duration(max(longest, total / pool.workers))} in all{workers}")


def _train_unfinished(jobs: Sequence[Job], pool: Pool, view: View) -> dict[Job, Outcome]:
    """Have the pool train all jobs. A job whose worker died is submitted again.

    Returns the outcome of each job. Raises Interrupted on a signal.
    """
    outcomes: dict[Job, Outcome] = {}
    deaths: Counter[str] = Counter()  # of the workers of each job, since its last epoch

    def on_message(message: Message) -> None:
        if isinstance(message, EpochSaved):
            deaths[message.run] = 0
        view.show(message)

    pool.on_message = on_message
    futures: dict[Future, Job] = {}
    try:
        for job in jobs:
            futures[pool.submit(train_job, job)] = job
        while futures:
            future = next(pool.as_completed(futures))
            job = futures.pop(future)
            view.close(job.label)
            try:
                outcome = future.result()
            except pool.WorkerDied:
                deaths[job.label] += 1
                if deaths[job.label] < MAX_WORKER_DEATHS:
                    view.tell(f"a worker process died; another one goes on with {job.label}")
                    futures[pool.submit(train_job, job)] = job
                    continue
                reason = "the worker process that trained it died, again and again"
                outcome = Outcome(None, reason, FAILED)
            except Exception as error:  # the other jobs still go on
                if not (sentence := explained(error)):
                    traceback.print_exception(error)
                    sentence = f"{type(error).__name__}: {error}"
                outcome = Outcome(None, sentence, FAILED)
            finally:
                del future  # a cluster computes lost results again while a future exists
            outcomes[job] = outcome
            if run := outcome.run:
                _save_here(job, run)
                n, wrong = len(run.labels), run.chosen_errors
                errors = f"{wrong} of {n:,} {job.config.tested_on} images wrong, {wrong / n:.2%}"
                view.tell(f"finished: {job.label}: {errors}")
            if outcome.stopped:
                view.tell(f"stopped: {job.label}: {outcome.stopped}")
            if outcome.failure:
                view.tell(f"failed: {job.label}: {outcome.failure}")
    except Interrupted as reason:
        if reason.consequence:  # this process itself was training
            raise
        pool.stop(reason.signum, futures)
        raise Interrupted(
            reason.signum,
            "all finished epochs of all runs are safe; the same command goes on from there",
        ) from None
    return outcomes


def _save_here(job: Job, run: Run) -> None:
    """Write the run file of a finished run, unless its worker wrote it in this same folder."""
    if runs.epochs_done(job.path, job.config) == run.epochs:
        return
    files.make_folder(job.path.parent)
    is_begun = job.path.exists()
    store.write_run(job.path, run)
    if is_begun:  # its weights are older than the finished run
        store.weights_path(job.path).unlink(missing_ok=True)
