"""How a GPU's kernels are launched for a perceptron, where the command line does not say it."""

import argparse
from pathlib import Path

from experiments.results.rows import BenchRow, read_rows
from experiments.training import provenance
from experiments.training.store import read_run
from mlp_gpu.engine import WINDOW
from mlp_gpu.network import count_weights


def takes_windows(arguments: argparse.Namespace, sizes: tuple[int, ...], path: Path) -> bool:
    """Whether a GPU trains the run at `path` by the schedule `window`.

    A run that has begun keeps its own; else a record of the GPU decides, if there is one, by the
    times of the net. Raises files.FileFault if one of them is damaged.
    """
    if arguments.schedule:
        return arguments.schedule == WINDOW
    if path.exists():
        return read_run(path).config.images_per_block is not None
    record = provenance.device_folder(arguments.device) / "bench.csv"
    if not record.exists():
        return False
    us = {
        row.name: row.us
        for row in read_rows(record, BenchRow)
        if row.group == "net" and row.weights == count_weights(sizes)
    }
    window, graph = us.get(f"engine cuda {WINDOW}"), us.get("engine cuda graph")
    return window is not None and graph is not None and window < graph
