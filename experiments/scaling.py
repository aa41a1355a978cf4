"""How much faster several workers train several nets than one worker does, on this machine.

Trains the same few nets with one worker and with more, in turn, several times. Workers share the
cores: on a CPU one worker trains each net on all of them. Also measures how long workers take to
start, and how many bytes a run writes to the run folder, which workers share. Prints a table and
writes scaling.csv to results/<device>.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from deepbig_runtime import files, gpu
from deform_gpu import COMMITTEE
from experiments.running import cli, data, gpu_trial, jobs, provenance, store
from experiments.running.configs import make_config
from experiments.running.errors import Problem
from experiments.running.formatting import markdown_table
from experiments.running.messages import tell
from experiments.running.workers import LocalProcesses
from experiments.scoring.rows import ScalingRow, SourceColumns, rows_text, source_columns
from experiments.timing import clusters
from mlp_gpu.engine import PERCEPTRON_SCHEDULES, WINDOW
from mlp_gpu.engines import choose_engine
from mlp_gpu.training import Schedule

SIZES = (841, 800, 10)  # the committee's nets
EPOCHS, MAX_IMAGES = 2, 10_000
RUNS_PER_WORKER = 2


def make_jobs(
    folder: Path, n: int, dataset: data.Dataset, engine: str, arguments: argparse.Namespace
) -> list[jobs.Job]:
    """n trainings that differ only in their seeds."""
    images = data.limit(dataset, min(MAX_IMAGES, len(dataset.train_labels)))
    return [
        jobs.Job(
            folder / f"{seed}.h5",
            f"run {seed}",
            make_config(
                images,
                SIZES,
                Schedule(EPOCHS),
                seed,
                COMMITTEE,
                engine,
                windows=cli.schedule(arguments) == WINDOW,
            ),
            arguments.data_dir,
            cli.schedule(arguments),
        )
        for seed in range(n)
    ]


def measure_once(workers: int, gpus: int, trainings: Sequence[jobs.Job]) -> dict[str, float]:
    """Seconds to start the workers and for all trainings; bytes that a run writes per epoch.

    Raises Problem if a training fails.
    """
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
    return {"start": started - began, "train": ended - started, "bytes": n_bytes}


def measure(
    counts: Sequence[int],
    dataset: data.Dataset,
    engine: str,
    arguments: argparse.Namespace,
    source: SourceColumns,
) -> list[ScalingRow]:
    """A row for each number of workers: medians; the speedup is within the same repeat."""
    gpus = gpu.count() if engine == "cuda" else 0
    n_runs = RUNS_PER_WORKER * max(counts)
    measured: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
    repeats = arguments.repeats
    for repeat in range(1, repeats + 1):
        tell(f"repeat {repeat} of {repeats} ...")
        for count in counts:
            with tempfile.TemporaryDirectory() as folder:
                trainings = make_jobs(Path(folder), n_runs, dataset, engine, arguments)
                measured[count].append(measure_once(count, gpus, trainings))
    rows = []
    for count, own in measured.items():
        seconds = [one["train"] for one in own]
        alone = [one["train"] for one in measured[counts[0]]]
        low, median, high = map(float, np.percentile(seconds, [20, 50, 80]))
        row = ScalingRow(
            workers=count,
            runs=n_runs,
            data=dataset.name,
            layers="-".join(map(str, SIZES)),
            epochs=EPOCHS,
            images_an_epoch=trainings[0].config.data.n_train,
            engine=engine,
            repeats=repeats,
            seconds_p20=low,
            seconds=median,
            seconds_p80=high,
            speedup=float(np.median(np.divide(alone, seconds))),
            start_seconds=float(np.median([one["start"] for one in own])),
            bytes_an_epoch=own[0]["bytes"],
            source=source,
        )
        rows.append(row)
    return rows


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("scaling", __doc__)
    parser.add_argument(
        "--repeats",
        type=cli.integer(3, 1000),
        default=7,
        metavar="N",
        help="repeats of each measurement, at least 3 (default: %(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=cli.integers(1, 4096),
        metavar="N,N",
        help="numbers of workers to compare with one (default: all GPUs, or all cores)",
    )
    cli.add_engine_arguments(parser, PERCEPTRON_SCHEDULES)
    cli.add_data_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for scaling.csv (default: results/<this device>)",
    )
    arguments = parser.parse_args(argv)
    dataset = jobs.load(arguments.data, arguments.data_dir)
    engine = choose_engine(arguments.engine, lambda: gpu_trial.try_gpu().reason, tell)
    max_workers = gpu.count() if engine == "cuda" else provenance.cores()
    counts = sorted({1, *(arguments.workers or [max_workers])})
    source = provenance.collect(engine)
    folder = arguments.out or provenance.device_folder(source.device)
    files.make_folder(folder)
    rows = measure(counts, dataset, engine, arguments, source_columns(source))
    files.replace(folder / "scaling.csv", rows_text(rows).encode())
    print(markdown_table(clusters.scaling_table(rows)))
    tell(f"written to {folder}: scaling.csv")


if __name__ == "__main__":
    cli.run(main)
