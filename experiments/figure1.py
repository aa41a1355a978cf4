"""Figure 1 of the 2010 paper: the digits that a net gets wrong.

Each digit stands with its label at the top right and the two most likely predictions below. Prints
how many there are and how often the second guess is right.
"""

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
from matplotlib.figure import Figure

from experiments import cli, jobs
from experiments.cli import Problem
from experiments.configs import title
from experiments.plots import draw_mosaic, save_figure
from experiments.store import Run, read_run, run_files
from experiments.voting import count_second_guesses, find_wrong, guesses

Name = TypeVar("Name")


def find_best(folder: Path) -> Path:
    """The run file below `folder` with the lowest TEfBV, MNIST before any other data.

    Raises Problem if there is none.
    """
    runs = {path: read_run(path) for path in run_files(folder)}
    if not runs:
        raise Problem(f"there is no run in {folder}: train one with 'make table1', or name a file")
    return best_of(runs)


def best_of(runs: Mapping[Name, Run]) -> Name:
    """Which of the runs has the lowest TEfBV, of equal ones the first; MNIST before other data."""

    def rank(name: Name) -> tuple[bool, float]:
        run = runs[name]
        return run.config["data"]["name"] != "MNIST", run.chosen_errors / len(run.labels)

    return min(runs, key=rank)


def draw(outputs: np.ndarray, labels: np.ndarray, images: np.ndarray, title: str) -> Figure:
    """The digits that a net or a committee gets wrong.

    outputs: class probabilities (n_test, 10). labels: (n_test,). images: float32 (n_test, 29, 29).
    title: its first line; the second says how many are wrong.
    """
    wrong = np.flatnonzero(find_wrong(outputs, labels))
    columns = max(7, math.ceil(math.sqrt(1.4 * len(wrong))))  # the paper's 35 stand in 5 x 7
    heading = f"{title}:\n{count(outputs, labels)}"
    return draw_mosaic(images[wrong], labels[wrong], guesses(outputs)[wrong], heading, columns)


def count(outputs: np.ndarray, labels: np.ndarray) -> str:
    """How many digits are wrong and how often the second guess is right."""
    wrong = np.count_nonzero(find_wrong(outputs, labels))
    second = count_second_guesses(outputs, labels)
    return f"{wrong} of {len(labels):,} wrong; second guess right for {second}"


def load_test_images(run: Run, data_dir: Path | None) -> np.ndarray:
    """The images that a run was tested on, float32 (n_test, 29, 29), as jobs.load_known does."""
    return jobs.load_known(run.config, data_dir).test_images


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.figure1",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "run",
        nargs="?",
        type=Path,
        metavar="RUN.h5",
        help="run file (default: the one below runs/ with the lowest error, MNIST first)",
    )
    cli.add_data_dir_argument(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="NAME",
        help="pictures to write, NAME.png and NAME.pdf (default: RUN.figure1 beside the run file)",
    )
    arguments = parser.parse_args(argv)
    path = arguments.run or find_best(Path("runs"))
    run = read_run(path)
    images = load_test_images(run, arguments.data_dir)
    out = arguments.out or path.with_suffix(".figure1")
    written = save_figure(draw(run.outputs, run.labels, images, title(run.config)), out)
    print(f"{title(run.config)}:\n{count(run.outputs, run.labels)}")
    print(f"written to {' and '.join(map(str, written))}")


if __name__ == "__main__":
    cli.run(main)
