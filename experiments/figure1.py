"""Figure 1 of the 2010 paper: the digits that a net gets wrong.

Each digit stands with its label at the top right and the two most likely predictions below. Prints
how many there are and how often the second guess is right.
"""

import argparse
import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments import cli, data
from experiments.cli import Problem
from experiments.plots import save_figure
from experiments.store import Run, read_run

HEAD = 0.6  # inches above the digits, for the title
ABOVE = {"ha": "right", "va": "top", "fontsize": 9}

CHOICES = {"MNIST": "mnist", "load_digits": "digits"}


def find_best(folder: Path) -> Path:
    """The run file below `folder` with the lowest TEfBV, MNIST before any other data.

    Raises Problem if there is none.
    """
    runs = {
        path: read_run(path)
        for path in sorted(folder.rglob("*.h5"))
        if not path.name.endswith(".weights.h5")
    }
    if not runs:
        raise Problem(f"there is no run in {folder}: train one with 'make table1', or name a file")

    def rank(path: Path) -> tuple[bool, float]:
        run = runs[path]
        return run.config["data"]["name"] != "MNIST", run.chosen_errors / len(run.labels)

    return min(runs, key=rank)


def misclassified(run: Run) -> np.ndarray:
    """Indices of the test images that the chosen epoch's net gets wrong, in their order."""
    return np.flatnonzero(run.outputs.argmax(axis=1) != run.labels)


def guesses(run: Run) -> np.ndarray:
    """The two most likely classes of every test image, the likelier first, int64 (n_test, 2)."""
    return np.argsort(-run.outputs, axis=1, kind="stable")[:, :2]


def draw(run: Run, images: np.ndarray) -> Figure:
    """The wrong digits of a run among its test images, float32 (n_test, 29, 29)."""
    wrong, two_guesses = misclassified(run), guesses(run)
    columns = max(7, math.ceil(math.sqrt(1.4 * len(wrong))))  # the paper's 35 stand in 5 x 7
    rows = max(1, math.ceil(len(wrong) / columns))
    width, height = 0.75 * columns, 1.0 * rows + HEAD
    figure = Figure(figsize=(width, height))
    figure.text(0.1 / width, 1 - 0.1 / height, title(run), fontsize=9, va="top")
    for place, image in enumerate(wrong):
        row, column = divmod(place, columns)
        left, top = 0.75 * column + 0.06, HEAD + 1.0 * row
        axes = figure.add_axes(
            (left / width, 1 - (top + 0.63) / height, 0.63 / width, 0.63 / height)
        )
        axes.imshow(images[image], cmap="gray_r", vmin=-1, vmax=1)
        axes.set(xticks=[], yticks=[])
        label = axes.text(0.97, 0.97, run.labels[image], transform=axes.transAxes, **ABOVE)
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})
        for guess, x in zip(two_guesses[image], (0.03, 0.97), strict=True):
            align = "left" if x < 0.5 else "right"
            axes.text(x, -0.05, guess, transform=axes.transAxes, ha=align, va="top", fontsize=9)
    return figure


def title(run: Run) -> str:
    """How many digits are wrong and how often the second guess is right, in two lines."""
    wrong = misclassified(run)
    second = np.count_nonzero(guesses(run)[wrong, 1] == run.labels[wrong])
    name = run.config["data"]["name"]
    return (
        f"{'-'.join(map(str, run.config['sizes']))} on {name}, seed {run.config['seed']}:\n"
        f"{len(wrong)} of {len(run.labels):,} wrong; second guess right for {second}"
    )


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
    expected = run.config["data"]
    dataset = data.load(CHOICES[expected["name"]], arguments.data_dir)
    if dataset.sha256 != expected["sha256"]:
        raise Problem(
            f"{path} was trained on other data than {dataset.source} holds: expected SHA-256 "
            f"{expected['sha256']}, found {dataset.sha256}"
        )
    out = arguments.out or path.with_suffix(".figure1.png")
    save_figure(draw(run, dataset.test_images), out)
    print(f"{title(run)}\nwritten to {out}")


if __name__ == "__main__":
    cli.run(main)
