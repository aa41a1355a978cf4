"""Many independent trainings: each a job that a pool's worker takes, wherever that is.

While a worker trains it sends messages, dictionaries that JSON can hold:

    {"run": label, "event": "begin"}
    {"run": label, "event": "start", "done": epochs done by earlier processes}
    {"run": label, "event": "tick", "images": trained since the last message}
    {"run": label, "event": "epoch", "epoch": ..., and what METRICS name}
    {"run": label, "event": "end"}

A worker that dies loses at most the epoch it was in: its job is given out again and goes on from
the run file, if that is in a folder that both workers see. The lock beside it keeps two workers
from training one run.
"""

import argparse
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.running import configs, data, pools, runs, store
from experiments.running.errors import Interrupted, Problem
from experiments.running.formatting import duration
from experiments.running.messages import tell
from experiments.running.pools import Channel, Pool
from experiments.running.progress import Track, View
from experiments.running.store import METRICS, Run
from mlp_gpu import files, training
from mlp_gpu.engines import make_engine
from mlp_gpu.faults import Fault

SCHEDULE = "graph"  # if none is asked for
TICK = 0.5  # seconds between two messages of a training
DEATHS = 3  # of workers in a row, without an epoch done by any: then suspects are tried alone


@dataclass(frozen=True, eq=False)
class Job:
    """A training: its run file, its name for people, its configuration, and how it is done.

    data_dir: where MNIST is looked for first, None for the usual places. schedule: how a GPU's
    kernels are launched.
    """

    path: Path
    label: str
    config: dict
    data_dir: Path | None = None
    schedule: str = SCHEDULE


@dataclass(frozen=True)
class Outcome:
    """What came of a job: a finished run, or the reason why not; neither if it was stopped."""

    run: Run | None = None
    failure: str | None = None


_loaded: dict[tuple, data.Dataset] = {}


def load(choice: str, data_dir: Path | None) -> data.Dataset:
    """As data.load, but once a process."""
    if (choice, data_dir) not in _loaded:
        dataset = data.load(choice, data_dir)
        _loaded[data.CHOICES[dataset.name], data_dir] = dataset
        return dataset
    return _loaded[choice, data_dir]


def load_known(config: dict, data_dir: Path | None) -> data.Dataset:
    """All images of the data that a run was trained on, not normalised.

    config: the run's. data_dir: as data.load takes it. Raises Problem if what is found is other.
    """
    expected = config["data"]
    dataset = load(data.CHOICES[expected["name"]], data_dir)
    if dataset.sha256 != expected["sha256"]:
        raise Problem(
            f"the run was trained on other data than {dataset.source} holds: expected SHA-256 "
            f"{expected['sha256']}, found {dataset.sha256}"
        )
    return dataset


def load_for(job: Job) -> data.Dataset:
    """The data that a job asks for, as it is loaded on this machine."""
    return load(data.CHOICES[job.config["data"]["name"]], job.data_dir)


class Reporter(runs.Watch):
    """Sends messages about a job, and ends it when the pool is to stop."""

    def __init__(self, job: Job, channel: Channel):
        self._label, self._channel = job.label, channel
        self._images, self._sent = 0, time.perf_counter()

    def send(self, event: str, **content: Any) -> None:
        self._channel.send({"run": self._label, "event": event, **content})

    def start(self, done: int) -> None:
        self.send("start", done=done)

    def tick(self, n_images: int) -> None:
        self._images += n_images
        if time.perf_counter() - self._sent < TICK:
            return
        if signum := self._channel.stopped():
            raise Interrupted(signum)
        self.send("tick", images=self._images)
        self._images, self._sent = 0, time.perf_counter()

    def epoch(self, row: training.Epoch) -> None:
        self._images = 0
        self.send("epoch", **{name: getattr(row, name) for name in METRICS})


def work(channel: Channel, job: Job) -> Outcome:
    """Do a job: what a worker runs. Raises Interrupted if this process or the pool is to stop."""
    if signum := channel.stopped():
        raise Interrupted(signum)
    reporter = Reporter(job, channel)
    reporter.send("begin")
    try:
        dataset = configs.prepare(load_for(job), job.config)
        engine = make_engine(job.config["engine"], job.schedule)
        runs.warm_up(engine, job.config, dataset)
        patience = channel.patience
        run = runs.train_run(job.path, job.config, dataset, engine, reporter, patience)
        return Outcome(run)
    except Fault as problem:
        return Outcome(failure=str(problem))
    finally:
        reporter.send("end")


def estimate(_channel: Channel, job: Job) -> float:
    """About how many seconds an epoch of the job takes: what a worker runs."""
    engine = make_engine(job.config["engine"], job.schedule)
    return runs.estimate_seconds(engine, job.config, load_for(job))


def kind(job: Job) -> tuple:
    """What the time of a job's epoch depends on."""
    config = job.config
    return (
        tuple(config["sizes"]),
        config["data"]["n_train"],
        configs.count_validation(config),
        config["deformed_on"],
    )


@contextmanager
def session(
    arguments: argparse.Namespace, n_jobs: int, needed_bytes: Callable[[data.Dataset], int]
) -> Iterator[tuple[data.Dataset, Pool, str]]:
    """The data, the pool and the engine's name that a command line asks for; says what they are.

    arguments: those that running.cli adds, and --out, a folder, which is made. n_jobs: how many
    trainings there are. needed_bytes: memory that a GPU must have for one of them.
    Raises Problem, files.FileFault or gpu.GpuFault if any of it cannot be had.
    """
    files.make_folder(arguments.out)
    dataset = load(arguments.data, arguments.data_dir)
    with pools.opened(arguments, n_jobs, needed_bytes(dataset)) as (pool, engine, devices):
        tell(
            f"{dataset.name}: {len(dataset.train_labels):,} training and "
            f"{len(dataset.test_labels):,} test images, from {dataset.source}"
        )
        if arguments.schedule and engine == "cpu":
            tell("--schedule is for a GPU and changes nothing here")
        schedule = f", schedule {arguments.schedule or SCHEDULE}" if engine == "cuda" else ""
        workers = f", {pool.workers} workers" if pool.workers > 1 else ""
        tell(f"engine {engine}{schedule}: {devices}{workers}")
        yield dataset, pool, engine


def make_job(arguments: argparse.Namespace, path: Path, label: str, config: dict) -> Job:
    """The job of a run, in the way that the command line asks for."""
    data_dir = arguments.data_dir
    if arguments.scheduler:  # workers stand elsewhere
        path, data_dir = path.absolute(), data_dir and data_dir.absolute()
    return Job(path, label, config, data_dir, arguments.schedule or SCHEDULE)


def train_all(jobs: Sequence[Job], pool: Pool) -> tuple[list[Run | None], list[str]]:
    """Train all jobs to their ends, from wherever their run files are.

    Returns their runs, in the order of the jobs, None for those that failed, and a sentence for
    each of these. Says beforehand how long it will take.

    Raises Problem or files.FileFault if a run file is damaged or holds another run, before anything
    is trained, and Interrupted on a signal; the files then hold what was done.
    """
    done = {job: runs.epochs_done(job.path, job.config) for job in jobs}
    left = [job for job in jobs if done[job] < job.config["epochs"]]
    seconds = _estimate(left, pool)
    _announce(jobs, done, seconds, pool)
    tracks = [
        Track(
            label=job.label,
            epochs=job.config["epochs"],
            n_train=job.config["data"]["n_train"],
            n_validation=configs.count_validation(job.config),
            n_test=job.config["data"]["n_test"],
            seconds=seconds[kind(job)],
            done=done[job],
        )
        for job in left
    ]
    with View(tracks, len(jobs) - len(left)) as view:
        outcomes = _work_all(left, pool, view)
    outcomes |= {job: Outcome(store.read_run(job.path)) for job in jobs if job not in outcomes}
    failures = [f"{job.label}: {o.failure}" for job, o in outcomes.items() if o.failure]
    if failures:
        tell(f"{len(failures)} of {len(jobs)} runs failed, see above")
    return [outcomes[job].run for job in jobs], failures


def _estimate(jobs: Sequence[Job], pool: Pool) -> dict[tuple, float]:
    """Seconds an epoch of each kind of job, tried out on the pool's workers."""
    one_of = {kind(job): job for job in reversed(jobs)}
    futures = {pool.submit(estimate, job): key for key, job in one_of.items()}
    try:
        return {futures[future]: future.result() for future in pool.as_completed(futures)}
    except pool.died:
        raise Problem(
            "a worker process died while it tried out a training; if memory is short, take fewer "
            "workers"
        ) from None


def _announce(
    jobs: Sequence[Job], done: dict[Job, int], seconds: dict[tuple, float], pool: Pool
) -> None:
    """Say how long what is still to be done will take, a line for each group of equal jobs."""
    groups: dict[tuple, list[Job]] = {}
    for job in jobs:
        groups.setdefault((done[job], job.config["epochs"], kind(job)), []).append(job)
    total = longest = 0.0
    for (epochs_done, epochs, own_kind), group in groups.items():
        first = group[0]
        name = first.label + (f" and {len(group) - 1} like it" if len(group) > 1 else "")
        if epochs_done == epochs:
            tell(f"{name}: finished, in {first.path if len(group) == 1 else first.path.parent}")
            continue
        left = seconds[own_kind] * (epochs - epochs_done)
        total += left * len(group)
        longest = max(longest, left)
        tell(
            f"{name}: epochs x images {epochs} x {first.config['data']['n_train']:,}"
            + (f", {epochs_done} epochs done" if epochs_done else "")
            + f", about {duration(left)}"
            + (" each" if len(group) > 1 else "")
        )
    workers = f", on {pool.workers} workers" if pool.workers > 1 else ""
    tell(f"about {duration(max(longest, total / pool.workers))} in all{workers}")


def _work_all(jobs: Sequence[Job], pool: Pool, view: View) -> dict[Job, Outcome]:
    """Have all jobs done; those whose workers died again. Raises Interrupted on a signal."""
    outcomes: dict[Job, Outcome] = {}
    futures: dict[Future, Job] = {}
    begun: set[str] = set()  # labels of the jobs that workers have now
    deaths = 0

    def take(message: dict) -> None:
        nonlocal deaths
        if message["event"] == "begin":
            begun.add(message["run"])
        elif message["event"] == "epoch":
            deaths = 0
        elif message["event"] == "end":
            begun.discard(message["run"])
        view.take(message)

    def end(job: Job, outcome: Outcome) -> None:
        outcomes[job] = outcome
        if outcome.run:
            _bring_home(job, outcome.run)
        if outcome.failure:
            view.say(f"failed: {job.label}: {outcome.failure}")

    pool.take = take
    left = list(jobs)
    try:
        while left:
            suspects = [job for job in left if job.label in begun] or left
            alone = deaths >= DEATHS
            given = suspects[:1] if alone else left
            begun.clear()
            for job in given:
                futures[pool.submit(work, job)] = job
            for future in pool.as_completed(futures):
                job = futures.pop(future)  # a cluster has results done again that somebody holds
                try:
                    end(job, future.result())
                except pool.died:
                    pass  # it is left
                except Exception as error:  # a fault of ours: the others go on all the same
                    traceback.print_exception(error)
                    end(job, Outcome(failure=f"{type(error).__name__}: {error}"))
            left = [job for job in left if job not in outcomes]
            if any(job not in outcomes for job in given):
                deaths += 1
                if alone:
                    reason = "the worker process that trained it died, again and again"
                    end(given[0], Outcome(failure=reason))
                    left.remove(given[0])
                    deaths = 0
                if left:
                    view.say(f"a worker process died; new ones go on with {len(left)} runs")
                    pool.restart()
    except Interrupted as reason:
        if reason.consequence:  # it came while this process itself was training
            raise
        pool.stop(reason.signum, futures)
        raise Interrupted(
            reason.signum,
            "all finished epochs of all runs are safe; the same command goes on from there",
        ) from None
    return outcomes


def _bring_home(job: Job, run: Run) -> None:
    """Write a finished run, if it was trained where job.path is another folder than here."""
    if runs.epochs_done(job.path, job.config) == run.epochs:
        return
    files.make_folder(job.path.parent)
    if job.path.exists():  # it was begun here
        store.weights_path(job.path).unlink(missing_ok=True)
    store.write_run(job.path, run)
