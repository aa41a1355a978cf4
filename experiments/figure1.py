"""Figure 1 of the 2010 paper: the digits that a net gets wrong.

Each digit stands with its label at the top right and the two most likely predictions below. Prints
how many there are and how often the second guess is right.
"""

import argparse
import math
from pathlib import Path

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments import cli, data, jobs
from experiments.cli import Problem
from experiments.configs import title
from experiments.plots import save_figure
from experiments.store import Run, read_run, run_files
from experiments.voting import count_second_guesses, find_wrong, guesses

CELL = 46, 35  # pixels from one digit to the next, down and across: room for the guesses below
PIXELS = 46  # of a digit, an inch
HEAD = 0.6  # inches above the digits, for the title


def find_best(folder: Path) -> Path:
    """The run file below `folder` with the lowest TEfBV, MNIST before any other data.

    Raises Problem if there is none.
    """
    runs = {path: read_run(path) for path in run_files(folder)}
    if not runs:
        raise Problem(f"there is no run in {folder}: train one with 'make table1', or name a file")

    def rank(path: Path) -> tuple[bool, float]:
        run = runs[path]
        return run.config["data"]["name"] != "MNIST", run.chosen_errors / len(run.labels)

    return min(runs, key=rank)


def draw(outputs: np.ndarray, labels: np.ndarray, images: np.ndarray, title: str) -> Figure:
    """The digits that a net or a committee gets wrong.

    outputs: class probabilities (n_test, 10). labels: (n_test,). images: float32 (n_test, 29, 29).
    title: its first line; the second says how many are wrong.
    """
    wrong = np.flatnonzero(find_wrong(outputs, labels))
    columns = max(7, math.ceil(math.sqrt(1.4 * len(wrong))))  # the paper's 35 stand in 5 x 7
    rows = max(1, math.ceil(len(wrong) / columns))

    # One picture of all digits: axes of their own for hundreds of them would take a minute.
    mosaic = np.full((rows * CELL[0], columns * CELL[1]), -1, np.float32)
    width, height = mosaic.shape[1] / PIXELS, mosaic.shape[0] / PIXELS + HEAD  # inches
    figure = Figure(figsize=(width, height))
    heading = f"{title}:\n{count(outputs, labels)}"
    figure.text(0.1 / width, 1 - 0.1 / height, heading, fontsize=9, va="top")
    axes = figure.add_axes((0, 0, 1, 1 - HEAD / height))
    side, frames = images.shape[1], []
    for place, (image, two) in enumerate(zip(wrong, guesses(outputs)[wrong], strict=True)):
        row, column = divmod(place, columns)
        top, left = row * CELL[0] + 1, column * CELL[1] + 3
        bottom, right = top + side, left + side
        mosaic[top:bottom, left:right] = images[image]
        frames.append(Rectangle((left - 0.5, top - 0.5), side, side))
        label = axes.text(right - 1.5, top + 0.5, labels[image], ha="right", va="top")
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})
        axes.text(left, bottom + 1, two[0], ha="left", va="top")
        axes.text(right - 1, bottom + 1, two[1], ha="right", va="top")
    for text in axes.texts:
        text.set_fontsize(9)
    axes.imshow(mosaic, cmap="gray_r", vmin=-1, vmax=1)
    axes.add_collection(PatchCollection(frames, facecolor="none", edgecolor="black", linewidth=0.8))
    axes.set_axis_off()
    return figure


def count(outputs: np.ndarray, labels: np.ndarray) -> str:
    """How many digits are wrong and how often the second guess is right."""
    wrong = np.count_nonzero(find_wrong(outputs, labels))
    second = count_second_guesses(outputs, labels)
    return f"{wrong} of {len(labels):,} wrong; second guess right for {second}"


def load_test_images(run: Run, data_dir: Path | None) -> np.ndarray:
    """The images that a run was tested on, float32 (n_test, 29, 29), not normalised.

    data_dir: as data.load takes it. Raises Problem if they are not the same.
    """
    expected = run.config["data"]
    dataset = jobs.load(data.CHOICES[expected["name"]], data_dir)
    if dataset.sha256 != expected["sha256"]:
        raise Problem(
            f"the run was trained on other data than {dataset.source} holds: expected SHA-256 "
            f"{expected['sha256']}, found {dataset.sha256}"
        )
    return dataset.test_images


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
        metavar="FILE",
        help="picture to write, .png or .pdf (default: RUN.figure1.png beside the run file)",
    )
    arguments = parser.parse_args(argv)
    path = arguments.run or find_best(Path("runs"))
    run = read_run(path)
    images = load_test_images(run, arguments.data_dir)
    out = arguments.out or path.with_suffix(".figure1.png")
    save_figure(draw(run.outputs, run.labels, images, title(run.config)), out)
    print(f"{title(run.config)}:\n{count(run.outputs, run.labels)}\nwritten to {out}")


if __name__ == "__main__":
    cli.run(main)
