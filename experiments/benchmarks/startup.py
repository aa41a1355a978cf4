"""Time waits: for the first training step of a command, for a worker process, for the tests.

The first step is that of table1 with its five nets, so that it estimates the time of each, with
compiled code that was cached and with an empty cache folder.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np

from deepbig_runtime.errors import Problem
from deform_gpu import TABLE1
from experiments.benchmarks.findings import STARTUP
from experiments.datasets import data
from experiments.datasets.dataset import is_mnist
from experiments.results.rows import StartupRow
from experiments.training import jobs, provenance, store
from experiments.training.configs import make_config
from experiments.training.messages import tell
from experiments.training.provenance import SourceColumns
from experiments.training.workers import LocalProcesses, Message, Started
from mlp_gpu.network import NETS
from mlp_gpu.training import Schedule

N_IMAGES = 250  # of an epoch: few, because only its beginning counts
*TESTS, FIRST_STEP, FIRST_STEP_OF_ONE, FIRST_STEP_COMPILING, WORKER = STARTUP


def first_step(dataset: data.Dataset, cache: Path | None = None, nets: str = "1,2,3,4,5") -> float:
    """Seconds from the start of table1, on the CPU, to the first step of its first training.

    cache: the user's cache folder; None: as it is. Raises Problem if a training fails.
    """
    options = ["--nets", nets, "--engine", "cpu", "--epochs", "1", "--limit", str(N_IMAGES)]
    options += ["--data", data.CHOICES[dataset.name]]
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

    config = make_config(data.limit(dataset, N_IMAGES), NETS[1], Schedule(1), 0, TABLE1, "cpu")
    with tempfile.TemporaryDirectory() as folder, closing(LocalProcesses(1)) as pool:
        pool.on_message = note
        started = time.perf_counter()
        job = jobs.Job(Path(folder) / "run.h5", "run", config, data_dir)
        future = pool.submit(jobs.train_job, job)
        for done in pool.as_completed([future]):
            if reason := done.result().failure:
                raise Problem(f"a training failed: {reason}")
    return begun[0] - started


def time_tests(command: str) -> float:
    """Seconds that the tests take by this command. Raises Problem if they fail."""
    started = time.perf_counter()
    on_this_interpreter = [*command.split(), f"PYTHON={sys.executable}", "VENV=", "ARGS="]
    done = subprocess.run(on_this_interpreter, cwd=provenance.REPOSITORY, stdout=sys.stderr)
    if done.returncode:
        raise Problem(f"'{command}' failed; see above, mend it, then start again")
    return time.perf_counter() - started


def measure(
    dataset: data.Dataset, data_dir: Path | None, repeats: int, source: SourceColumns
) -> list[StartupRow]:
    """Rows of the first steps and of the start of a worker."""

    def compiling() -> float:
        with tempfile.TemporaryDirectory() as cache:
            return first_step(dataset, Path(cache))

    first_step(dataset)  # so that all code is cached
    times: dict[str, Callable[[], float]] = {
        FIRST_STEP: lambda: first_step(dataset),
        FIRST_STEP_OF_ONE: lambda: first_step(dataset, nets="1"),
        FIRST_STEP_COMPILING: compiling,
        WORKER: lambda: worker_start(dataset, data_dir),
    }
    return [row(what, timed, repeats, source) for what, timed in times.items()]


def measure_tests(source: SourceColumns) -> list[StartupRow]:
    """Rows of the tests, which are run once each."""
    return [row(command, partial(time_tests, command), 1, source) for command in TESTS]


def row(what: str, timed: Callable[[], float], repeats: int, source: SourceColumns) -> StartupRow:
    """The median and the 20th and 80th percentile of the repeats."""
    seconds = []
    for repeat in range(1, repeats + 1):
        tell(f"{what}: {repeat} of {repeats} ...")
        seconds.append(timed())
    low, median, high = map(float, np.percentile(seconds, [20, 50, 80]))
    return StartupRow(
        what=what,
        repeats=repeats,
        seconds=median,
        seconds_p20=low,
        seconds_p80=high,
        source=source,
    )


def table(rows: Iterable[StartupRow]) -> list[dict[str, str]]:
    """Rows of startup.csv as lines of a table."""
    return [
        {
            "what": row.what,
            "seconds (p20-p80)": f"{row.seconds:.1f} ({row.seconds_p20:.1f}-{row.seconds_p80:.1f})",
            "repeats": str(row.repeats),
        }
        for row in rows
    ]
