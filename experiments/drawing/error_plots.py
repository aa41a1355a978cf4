"""Figures of errors: confusions, ranks, the digits that are wrong, the errors that nets share.

`runs` are runs by the names to draw them with, at least one. `images` are the test images, float32
(n_test, 29, 29), -1 white to 1 black; or (n_test, side, side, maps), -1 black to 1 white.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from deform_gpu.parameters import SIDE
from experiments.drawing.figures import (
    BLACK,
    BLUE,
    ORANGE,
    SKY,
    SMALL_SIZE,
    TITLE_SIZE,
    finish,
    fold,
    frame,
    shorten,
)
from experiments.results import voting
from experiments.results.committee_report import COMMITTEE, Committee
from experiments.training.formatting import plural
from experiments.training.store import Run

COUNT_COLOURS = colormaps["Blues"]  # the darker the more, in grey too
MAX_NUMBERED_ROWS = 16  # of a matrix of shared errors; in a larger one there is no room for numbers
MAX_PANELS = 8  # runs whose outputs for a digit are drawn

# Digits in rows, as in the 2010 paper's Figure 1; pixels are those of a digit of 29x29.
CELL_HEIGHT, CELL_WIDTH = 46, 35  # pixels of a digit and of the text below it
PIXELS_PER_INCH = 46
HEADING_LINE, HEADING_MARGIN = 0.17, 0.26  # inches

# Where the label is among the classes, the likeliest first: name, colour and hatch of its bar.
LABEL_RANKS = (
    ("second guess", SKY, ""),
    ("third", ORANGE, "///"),
    ("fourth or later", "white", "xxx"),
)


def plot_confusion(outputs: np.ndarray, labels: np.ndarray, title: str) -> Figure:
    """Which classes are taken for which: counts, and totals of the errors.

    outputs: class probabilities (n_test, n_classes). labels: (n_test,).
    """
    size = outputs.shape[1]
    counts = np.zeros((size, size), int)
    np.add.at(counts, (labels, outputs.argmax(axis=1)), 1)
    errors = counts - np.diag(np.diag(counts))
    cells = np.argsort(-errors, axis=None, kind="stable")[:3]
    worst = [(*divmod(int(cell), size), errors.flat[cell]) for cell in cells if errors.flat[cell]]
    most = ", ".join(f"{label} as {guess} ({n})" for label, guess, n in worst)
    heading = f"{title}:\n{errors.sum()} of {len(labels):,} wrong" + (most and f"; most: {most}")

    table = np.pad(errors, (0, 1))
    table[-1, :-1], table[:-1, -1], table[-1, -1] = errors.sum(0), errors.sum(1), errors.sum()
    shares = errors / max(1, errors.max())
    shades = np.pad(np.where(errors, shares, np.nan), (0, 1), constant_values=np.nan)
    figure = frame(6.2, width=6)
    axes = figure.add_subplot()
    axes.imshow(shades, cmap=COUNT_COLOURS, vmin=0, vmax=1)
    for (row, column), n in np.ndenumerate(table):
        if row == column < size:
            _write_number(axes, row, column, int(counts[row, row]), color="0.45")
        elif size in (row, column):
            _write_number(axes, row, column, n, weight="bold")
        elif n:
            _write_number(axes, row, column, n, float(shares[row, column]))
    axes.axhline(size - 0.5, color=BLACK, linewidth=0.8)
    axes.axvline(size - 0.5, color=BLACK, linewidth=0.8)
    names = [*map(str, range(size)), "errors"]
    axes.set_xticks(range(size + 1), names)
    axes.set_yticks(range(size + 1), names)
    axes.set(xlabel="guess", ylabel="label")
    return finish(figure, heading)


def plot_ranks(runs: Mapping[str, Run]) -> Figure:
    """For every run a bar of its wrong digits: where their label is among its guesses.

    The numbers stand at the end of a bar, because some parts are too narrow for them.
    """
    figure = frame(1.5 + 0.2 * len(runs))
    axes = figure.add_subplot()
    counts = np.array([_count_ranks(run) for run in runs.values()])
    left = np.zeros(len(runs), int)
    places = np.arange(len(runs))
    for (name, colour, hatch), n in zip(LABEL_RANKS, counts.T, strict=True):
        style: dict = {"color": colour, "hatch": hatch, "edgecolor": BLACK, "linewidth": 0.5}
        axes.barh(places, n, left=left, height=0.7, label=name, **style)
        left += n
    for place, (parts, total) in enumerate(zip(counts, left, strict=True)):
        text = f" {' + '.join(map(str, parts))} = {total}"
        axes.text(total, place, text, va="center", fontsize=SMALL_SIZE)
    axes.set_xlim(0, 1.5 * max(1, left.max()))  # room for the numbers
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_yticks(places, [shorten(name) for name in runs])
    axes.set(ylim=(len(runs) - 0.4, -0.6), xlabel="wrong digits")
    return finish(figure, "Wrong digits by the rank of their label", axes, "the label is")


def plot_hardest(runs: Mapping[str, Run], images: np.ndarray, n: int = 35) -> Figure:
    """The n digits that the most runs get wrong, however few those are; the hardest first.

    Ties: the digit whose label has the lower mean probability is harder.
    Below each: the most frequent wrong guess, and how many of the runs get it wrong. Digits that
    all get right are left out. Raises ValueError if the runs' labels differ.
    """
    labels = _common_labels(runs)
    guesses = np.array([run.outputs.argmax(axis=1) for run in runs.values()])
    n_wrong = np.count_nonzero(guesses != labels, axis=0)
    mean = voting.average([run.outputs for run in runs.values()])
    likely = mean[np.arange(len(labels)), labels]
    order = np.lexsort((likely, -n_wrong))
    hardest = order[n_wrong[order] > 0][:n]
    below = []
    for index in hardest:
        wrong = guesses[:, index][guesses[:, index] != labels[index]]
        guess = np.bincount(wrong).argmax()  # of equally frequent ones the smallest
        below.append((str(guess), f"{n_wrong[index]}/{len(runs)}"))
    heading = f"The {plural(len(hardest), 'hardest digit')} for {plural(len(runs), 'run')};\n"
    heading += "below: the most frequent wrong guess, and how many runs are wrong"
    return plot_digits(images[hardest], labels[hardest], below, heading)


def plot_wrong(outputs: np.ndarray, labels: np.ndarray, images: np.ndarray, title: str) -> Figure:
    """The digits that a net or a committee gets wrong.

    outputs: class probabilities (n_test, n_classes). labels: (n_test,). images: the test images.
    title: its first line; the second says how many are wrong.
    """
    wrong = np.flatnonzero(voting.find_wrong(outputs, labels))
    columns = max(7, math.ceil(math.sqrt(1.4 * len(wrong))))  # the paper's 35 stand in 5 x 7
    heading = f"{title}:\n{voting.count_sentence(outputs, labels)}"
    return plot_digits(
        images[wrong], labels[wrong], voting.guesses(outputs)[wrong], heading, columns
    )


def plot_digits(
    images: np.ndarray,
    labels: np.ndarray,
    below: Iterable[Sequence],
    heading: str,
    columns: int = 7,
) -> Figure:
    """Digits in rows, each with its label at the top right and two things below, left and right.

    images: float32 (n, side, side) or (n, side, side, maps). labels: (n,). below: n pairs.
    """
    # One picture of all digits: axes of their own for hundreds of them would take a minute.
    pictures, white = to_show(images)
    rows, side = max(1, math.ceil(len(images) / columns)), images.shape[1]
    pixel = side / SIDE
    cell_height, cell_width = round(CELL_HEIGHT * pixel), round(CELL_WIDTH * pixel)
    shape = rows * cell_height, columns * cell_width, *pictures.shape[3:]
    mosaic = np.full(shape, white, np.float32)
    width = columns * CELL_WIDTH / PIXELS_PER_INCH
    heading = fold(heading, width - 0.2)
    above = HEADING_MARGIN + HEADING_LINE * len(heading.splitlines())
    height = rows * CELL_HEIGHT / PIXELS_PER_INCH + above
    figure = Figure(figsize=(width, height))
    figure.text(0.1 / width, 1 - 0.1 / height, heading, fontsize=TITLE_SIZE, va="top")
    axes = figure.add_axes((0, 0, 1, 1 - above / height))
    frames = []
    for place, (image, label, pair) in enumerate(zip(pictures, labels, below, strict=True)):
        row, column = divmod(place, columns)
        top, left = row * cell_height + round(pixel), column * cell_width + round(3 * pixel)
        bottom, right = top + side, left + side
        mosaic[top:bottom, left:right] = image
        frames.append(Rectangle((left - 0.5, top - 0.5), side, side))
        at = right - 1.5 * pixel, top + 0.5 * pixel
        corner = axes.text(*at, label, ha="right", va="top", fontsize=TITLE_SIZE)
        corner.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})
        low = bottom + pixel
        axes.text(left, low, pair[0], ha="left", va="top", fontsize=TITLE_SIZE)
        axes.text(right - pixel, low, pair[1], ha="right", va="top", fontsize=TITLE_SIZE)
    axes.imshow(mosaic, cmap="gray_r", vmin=-1, vmax=1)
    axes.add_collection(PatchCollection(frames, facecolor="none", edgecolor=BLACK, linewidth=0.8))
    axes.set_axis_off()
    return figure


def to_show(images: np.ndarray) -> tuple[np.ndarray, float]:
    """Images as `Axes.imshow` takes them, and the value of white.

    Images of one map stay unchanged, for a colour map. Three maps, red, green and blue, or the
    first of two become (n, side, side, 3), 0 black to 1 white.
    """
    if images.ndim == 3:
        return images, -1
    maps = (0, 1, 2) if images.shape[3] == 3 else (0, 0, 0)
    return (images[..., maps] + 1) / 2, 1


def plot_outputs(runs: Mapping[str, Run], index: int, images: np.ndarray) -> Figure:
    """A test digit, and the class probabilities that each run gives it; of many the first eight.

    Raises ValueError if the runs' labels differ.
    """
    label = _common_labels(runs)[index]
    shown = list(runs)[:MAX_PANELS]
    figure = frame(1.7 + 0.75 * len(shown))
    grid = figure.add_gridspec(len(shown), 2, width_ratios=(1, 2.6))
    digit = figure.add_subplot(grid[:, 0])
    digit.imshow(to_show(images[index : index + 1])[0][0], cmap="gray_r", vmin=-1, vmax=1)
    digit.set(xticks=[], yticks=[])
    panels = [figure.add_subplot(grid[k, 1]) for k in range(len(shown))]
    for axes, name in zip(panels, shown, strict=True):
        chances = runs[name].outputs[index]
        guess = chances.argmax()
        plot_probabilities(axes, chances, label)
        text = f"{shorten(name)}: says {guess} ({chances[guess]:.2f})"
        text += f", label {label} ({chances[label]:.2f})" if guess != label else ""
        axes.set_title(text, loc="left", fontsize=SMALL_SIZE)
        axes.tick_params(labelbottom=axes is panels[-1])
    panels[len(panels) // 2].set_ylabel("probability")
    panels[-1].set_xlabel("class")
    some = f"\nthe first {len(shown)} of {len(runs)} runs" if len(shown) < len(runs) else ""
    return finish(figure, f"Test digit {index}, label {label}{some}", panels[0])


def plot_probabilities(axes: Axes, chances: np.ndarray, label: int) -> None:
    """A bar for each class, of the label in a colour and hatched. chances: (n_classes,)."""
    n = len(chances)
    others = np.delete(np.arange(n), label)
    axes.bar(label, chances[label], color=BLUE, hatch="///", ec=BLACK, label="the label")
    axes.bar(others, chances[others], color="0.8", ec=BLACK, label="other classes")
    axes.set(xlim=(-0.6, n - 0.4), ylim=(0, 1), yticks=(0, 0.5, 1), xticks=range(n))


def plot_shared(committee: Committee) -> Figure:
    """How many errors any two have in common, members and last the committee.

    Shaded as shares of the row's own errors. Without numbers if there are too many for them.
    """
    counts = voting.count_shared(committee.wrong)
    own = np.diag(counts)
    shares = counts / np.maximum(own, 1)[:, None]
    many = len(own) > MAX_NUMBERED_ROWS
    height = 1.8 + len(own) * (0.17 if many else 0.28)
    figure = frame(height)
    axes = figure.add_subplot()
    picture = axes.imshow(shares, cmap=COUNT_COLOURS, vmin=0, vmax=1, aspect="auto")
    for (row, column), n in np.ndenumerate(counts):
        if not many:
            _write_number(axes, row, column, n, float(shares[row, column]))
    places = np.arange(len(own))
    short, everybody = [*map(str, places[1:]), "C"], (*committee.members, COMMITTEE)
    names = [f"{k}: {shorten(name)}" for k, name in zip(short, everybody, strict=True)]
    every = slice(None, None, math.ceil(len(own) / MAX_NUMBERED_ROWS))
    axes.set_xticks(places[every], short[every])
    axes.set_yticks(places, names)
    bar = figure.colorbar(picture, location="bottom", shrink=0.5, aspect=30, format="{x:.0%}")
    bar.set_label("share of the row's own errors")
    return finish(figure, f"{committee.title}:\nerrors in common, own errors on the diagonal")


def _common_labels(runs: Mapping[str, Run]) -> np.ndarray:
    first, *others = (run.labels for run in runs.values())
    if not all(np.array_equal(labels, first) for labels in others):
        raise ValueError("the runs were tested on different digits; draw those on the same ones")
    return first


def _count_ranks(run: Run) -> list[int]:
    """Wrong digits whose label is the second guess, the third, and a later one."""
    order = np.argsort(-run.outputs, axis=1, kind="stable")
    ranks = np.argmax(order == run.labels[:, None], axis=1)
    return [int(np.count_nonzero(which)) for which in (ranks == 1, ranks == 2, ranks > 2)]


def _write_number(
    axes: Axes, row: int, column: int, n: int, shade: float = 0, **style: Any
) -> None:
    """A number in a cell of COUNT_COLOURS, 0 to 1, in a colour that can be read on it."""
    style = {"color": "white" if shade > 0.7 else BLACK, "fontsize": SMALL_SIZE, **style}
    axes.text(column, row, str(n), ha="center", va="center", **style)
