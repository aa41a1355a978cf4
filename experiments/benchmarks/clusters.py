"""How long one waits: for starts, for the tests, for several workers.

A first training step is that of table1 with its five nets, so that it estimates the time of each,
with compiled code that was cached and with an empty cache folder. On several workers the same few
nets are trained as on one, in turn. Workers share the cores: on a CPU one worker trains each net on
all of them.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deepbig_runtime import gpu
from deepbig_runtime.errors import Problem
from deform_gpu import COMMITTEE, TABLE1
from experiments.benchmarks.columns import percentiles
from experiments.datasets import data
from experiments.datasets.dataset import is_mnist
from experiments.results.rows import ScalingRow, StartupRow
from experiments.training import jobs, provenance, store
from experiments.training.configs import make_config
from experiments.training.messages import tell
from experiments.training.provenance import SourceColumns
from experiments.training.workers import LocalProcesses, Message, Started
from mlp_gpu.engine import WINDOW
from mlp_gpu.network import NETS
from mlp_gpu.training import Schedule

SIZES = (841, 800, 10)  # the committee's nets
EPOCHS, MAX_IMAGES = 2, 10_000
RUNS_PER_WORKER = 2
START_IMAGES = 250  # of an epoch: few, because only its beginning counts
CLONE = "git clone to the first net of make table1, packages in pip's cache"
# The rows of startup.csv.
STARTUP = (
    "make test",
    "make test-all",
    "first training step of make table1, code compiled before",
    "first training step of make table1 with one net, code compiled before",
    "first training step of make table1, nothing compiled",
    "start of a worker",
    CLONE,
)
*TESTS, FIRST_STEP, FIRST_STEP_OF_ONE, FIRST_STEP_COMPILING, WORKER, _ = STARTUP


# --- starts and tests


def first_step(dataset: data.Dataset, cache: Path | None = None, nets: str = "1,2,3,4,5") -> float:
    """Seconds from the start of table1, on the CPU, to the first step of its first training.

    cache: the user's cache folder; None: as it is. Raises Problem if a training fails.
    """
    options = ["--nets", nets, "--engine", "cpu", "--epochs", "1", "--limit", str(START_IMAGES)]
    options += ["--data", dataset.kind.choice]
    if is_mnist(dataset.name):
        options += ["--data-dir", dataset.source]
    variables = {"XDG_CACHE_HOME": str(cache)} if cache else {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "experiments.table1", *options, "--out", folder]
        started = time.time()
        done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
        if done.returncode:
            raise Problem(f"a training failed: {done.stderr.strip().splitlines()[-1]}")
        # A run file is written when its only epoch is done, whose seconds the file has.
        begun = [
            path.stat().st_mtime - store.read_run(path).seconds
            for path in store.run_files(Path(folder))
        ]
    return min(begun) - started


def worker_start(dataset: data.Dataset, data_dir: Path | None) -> float:
    """Seconds from asking for a worker process to the first step of its first training."""
    begun = []

    def note(message: Message) -> None:
        if isinstance(message, Started):
            begun.append(time.perf_counter())

    config = make_config(data.limit(dataset, START_IMAGES), NETS[1], Schedule(1), 0, TABLE1, "cpu")
    with tempfile.TemporaryDirectory() as folder, closing(LocalProcesses(1)) as pool:
        pool.on_message = note
        started = time.perf_counter()
        job = jobs.Job(Path(folder) / "run.h5", "run", config, data_dir)
        future = pool.submit(jobs.train_job, job)
        for done in pool.as_completed([future]):
            if reason := done.result().failure:
                raise Problem(f"a training failed: {reason}")
    return begun[0] - started


def clone_and_train() -> float:
    """Seconds from 'git clone' of this repository to a trained net, as for a new user.

    The commit that is checked out is installed into a folder of its own, with packages in pip's
    cache and nothing compiled. Raises Problem if that fails.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    own = {name: value for name, value in os.environ.items() if name != "RUNS_DIR"}
    own.setdefault("PIP_CACHE_DIR", str(cache / "pip"))
    with tempfile.TemporaryDirectory() as folder:
        own["XDG_CACHE_HOME"] = f"{folder}/cache"
        train = ["make", "-C", f"{folder}/clone", "table1", f"PYTHON={sys.executable}"]
        train.append("ARGS=--data digits --nets 1 --epochs 1 --engine cpu")
        started = time.perf_counter()
        clone = ["git", "clone", "--quiet", str(provenance.REPOSITORY), f"{folder}/clone"]
        for command in (clone, train):
            done = subprocess.run(command, env=own, capture_output=True, text=True)
            if done.returncode:
                last = done.stderr.strip().splitlines()[-1]
                raise Problem(f"'{' '.join(command)}' failed: {last}")
        return time.perf_counter() - started


def time_tests(command: str) -> float:
    """Seconds that the tests take by this command. Raises Problem if they fail."""
    started = time.perf_counter()
    on_this_interpreter = [*command.split(), f"PYTHON={sys.executable}", "VENV=", "ARGS="]
    done = subprocess.run(on_this_interpreter, cwd=provenance.REPOSITORY, stdout=sys.stderr)
    if done.returncode:
        raise Problem(f"'{command}' failed; see above, mend it, then start again")
    return time.perf_counter() - started


def measure_starts(
    dataset: data.Dataset, data_dir: Path | None, repeats: int, source: SourceColumns
) -> list[StartupRow]:
    """Rows of the first steps, of the start of a worker, and of a new user's first net."""

    def compiling() -> float:
        with tempfile.TemporaryDirectory() as cache:
            return first_step(dataset, Path(cache))

    first_step(dataset)  # so that all code is cached
    times: dict[str, Callable[[], float]] = {
        FIRST_STEP: lambda: first_step(dataset),
        FIRST_STEP_OF_ONE: lambda: first_step(dataset, nets="1"),
        FIRST_STEP_COMPILING: compiling,
        WORKER: lambda: worker_start(dataset, data_dir),
        CLONE: clone_and_train,
    }
    return [startup_row(what, timed, repeats, source) for what, timed in times.items()]


def measure_tests(source: SourceColumns) -> list[StartupRow]:
    """Rows of the tests, which are run once each."""
    return [startup_row(command, partial(time_tests, command), 1, source) for command in TESTS]


def startup_row(
    what: str, timed: Callable[[], float], repeats: int, source: SourceColumns
) -> StartupRow:
    """The median and the 20th and 80th percentile of the repeats."""
    seconds = []
    for repeat in range(1, repeats + 1):
        tell(f"{what}: {repeat} of {repeats} ...")
        seconds.append(timed())
    low, median, high = percentiles(seconds)
    return StartupRow(
        what=what,
        repeats=repeats,
        seconds=median,
        seconds_p20=low,
        seconds_p80=high,
        source=source,
    )


# --- several workers


class Times(NamedTuple):
    """Seconds to start the workers and for all trainings; bytes that a run writes per epoch."""

    start: float
    train: float
    n_bytes: float


@dataclass(frozen=True)
class Trainings:
    """How the nets are trained. schedule: of launches."""

    dataset: data.Dataset
    data_dir: Path | None
    engine: str
    schedule: str

    def jobs(self, folder: Path, n: int) -> list[jobs.Job]:
        """n trainings that differ only in their seeds."""
        images = data.limit(self.dataset, min(MAX_IMAGES, len(self.dataset.train_labels)))
        windows = self.schedule == WINDOW
        return [
            jobs.Job(
                folder / f"{seed}.h5",
                f"run {seed}",
                make_config(
                    images, SIZES, Schedule(EPOCHS), seed, COMMITTEE, self.engine, windows=windows
                ),
                self.data_dir,
                self.schedule,
            )
            for seed in range(n)
        ]


def measure_once(workers: int, trainings: Sequence[jobs.Job]) -> Times:
    """The times of some workers and trainings. Raises Problem if a training fails."""
    gpus = gpu.count() if trainings[0].config.engine == "cuda" else 0
    with closing(LocalProcesses(workers, gpus)) as pool:
        began = time.perf_counter()
        ready = [pool.submit(jobs.estimate_job, trainings[0]) for _ in range(workers)]
        for future in pool.as_completed(ready):
            future.result()
        started = time.perf_counter()
        futures = [pool.submit(jobs.train_job, training) for training in trainings]
        for future in pool.as_completed(futures):
            if reason := future.result().failure:
                raise Problem(f"a training failed: {reason}")
        ended = time.perf_counter()
    path = trainings[0].path
    n_bytes = sum(p.stat().st_size for p in (path, store.weights_path(path)))
    return Times(started - began, ended - started, n_bytes)


def measure(
    counts: Sequence[int], trainings: Trainings, repeats: int, source: SourceColumns
) -> list[ScalingRow]:
    """A row for each number of workers: medians; the speedup is within the same repeat."""
    n_runs = RUNS_PER_WORKER * max(counts)
    measured: dict[int, list[Times]] = {count: [] for count in counts}
    for repeat in range(1, repeats + 1):
        tell(f"repeat {repeat} of {repeats} ...")
        for count in counts:
            with tempfile.TemporaryDirectory() as folder:
                measured[count].append(measure_once(count, trainings.jobs(Path(folder), n_runs)))
    rows = []
    alone = [times.train for times in measured[counts[0]]]
    for count, own in measured.items():
        seconds = [times.train for times in own]
        low, median, high = percentiles(seconds)
        row = ScalingRow(
            workers=count,
            runs=n_runs,
            data=trainings.dataset.name,
            layers="-".join(map(str, SIZES)),
            epochs=EPOCHS,
            images_an_epoch=min(MAX_IMAGES, len(trainings.dataset.train_labels)),
            engine=trainings.engine,
            repeats=repeats,
            seconds_p20=low,
            seconds=median,
            seconds_p80=high,
            speedup=float(np.median(np.divide(alone, seconds))),
            start_seconds=float(np.median([times.start for times in own])),
            bytes_an_epoch=own[0].n_bytes,
            source=source,
        )
        rows.append(row)
    return rows
