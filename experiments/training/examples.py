"""Runs for notebooks: those that are there, or small ones that are trained within a minute."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cnn_gpu.network import ConvNetwork
from deepbig_runtime.errors import Problem
from deepbig_runtime.files import FileFault
from experiments.datasets.dataset import MNIST, Dataset
from experiments.training import jobs, runs, store
from experiments.training.formatting import printable
from experiments.training.store import Run

# Seven small perceptrons on scikit-learn's embedded digits are enough for most notebooks.
COMMITTEE_OPTIONS = (
    *("--experiment", "6", "--data", "digits", "--engine", "cpu", "--workers", "1"),
    *("--epochs", "6", "--eta", "5e-3", "--eta-decay", "0.7"),
)
N_EXAMPLES = 7
EXAMPLE = "example"  # the folder of small runs


def load_runs(folder: Path | None = None) -> dict[str, Run]:
    """The runs below a folder by their names, all on the same data: on MNIST if any are.

    folder: None for $RUNS_DIR or runs/, which may be missing. The name of a run is its path in that
    folder, without .h5. Prints how many runs were found. If there is none, small ones are trained
    in the folder's subfolder example, on load_digits. Files that cannot be read are named and left
    out. Raises Problem if a folder is given that does not exist, or if there is no run that can be
    read and no small ones can be trained.
    """
    if folder is not None and not folder.is_dir():
        raise Problem(f"there is no folder {folder}: name one that has run files")
    folder = store.find_folder(folder)
    own = folder / EXAMPLE
    paths = store.run_files(folder)
    if all(own in path.parents for path in paths) and not _is_made(paths):
        _make(own)
    read = store.read_runs(folder, lambda fault: print(f"left out: {fault}"))
    found = {
        printable(str(path.relative_to(folder).with_suffix(""))): run for path, run in read.items()
    }
    names = {run.config.data.name for run in found.values()}
    if not names:
        raise Problem(f"no run below {folder} can be read; move them away, or train others")
    name = MNIST if MNIST in names else min(names)
    chosen = {key: run for key, run in found.items() if run.config.data.name == name}
    left_out = len(found) - len(chosen)
    others = f"; on other data, left out: {left_out}" if left_out else ""
    print(f"runs on {name} below {folder}: {len(chosen)}{others}")
    return chosen


def load_data(runs: Mapping[str, Run]) -> Dataset:
    """The images that the runs of `load_runs` were trained and tested on, not normalised."""
    return jobs.load_known(next(iter(runs.values())).config, None)


def load_convolutional(path: Path) -> ConvNetwork:
    """The net of a run file at its chosen epoch, from the weights file beside it.

    Raises files.FileFault if one of them is missing or damaged, Problem if they do not belong
    together or the net is none of this kind.
    """
    net = runs.load_weights(path, store.read_run(path))[0]["chosen"]
    if not isinstance(net, ConvNetwork):
        raise Problem(f"{path} is of a perceptron; name the run of a convolutional net")
    return net


def _is_made(paths: list[Path]) -> bool:
    """Whether all small runs are there, trained to their ends; a convolutional net's is beside."""
    try:
        runs = map(store.read_run, paths)
        own = [run for run in runs if not run.config.is_convolutional]
        return len(own) == N_EXAMPLES and all(run.finished for run in own)
    except FileFault:
        return False


def _make(folder: Path) -> None:
    command = [sys.executable, "-m", "experiments.committee", *COMMITTEE_OPTIONS]
    print(
        f"There are no runs below {folder.parent}. Some small ones are being made in {folder}, on "
        "scikit-learn's load_digits, which are NOT MNIST."
    )
    done = subprocess.run([*command, "--out", str(folder)], capture_output=True, text=True)
    if done.returncode:
        raise Problem(f"cannot make runs to look at: {done.stderr.strip().splitlines()[-1]}")
