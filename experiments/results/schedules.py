"""How a GPU's kernels are launched for a perceptron, where the command line does not say it."""

import argparse
import math
from pathlib import Path

from experiments.results.rows import BenchRow, read_rows
from experiments.training import provenance
from experiments.training.store import STUDY_SUFFIX, read_run
from mlp_gpu.engine import WINDOW
from mlp_gpu.network import count_weights


def takes_windows(arguments: argparse.Namespace, sizes: tuple[int, ...], path: Path) -> bool:
    """Whether a GPU trains the run at `path` by the schedule `window`.

    A run that has begun keeps its own; else a record of the GPU decides, if there is one, by the
    times of the measured net whose number of weights is nearest. Raises files.FileFault if one of
    them is damaged.
    """
    if arguments.schedule:
        return arguments.schedule == WINDOW
    if path.exists():
        return read_run(path, path.name.endswith(STUDY_SUFFIX)).config.images_per_block is not None
    record = provenance.device_folder(arguments.device) / "bench.csv"
    if not record.exists():
        return False
    rows = [row for row in read_rows(record, BenchRow) if row.group == "net"]
    times = {
        schedule: {
            row.weights: row.us
            for row in rows
            if row.weights and row.name == f"engine cuda {schedule}"
        }
        for schedule in (WINDOW, "graph")
    }
    measured = times[WINDOW].keys() & times["graph"].keys()
    n = min(measured, key=lambda n: abs(math.log(n / count_weights(sizes))), default=None)
    return n is not None and times[WINDOW][n] < times["graph"][n]
