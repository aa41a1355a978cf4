"""Figures of errors: confusions, the images that are wrong, the errors that nets share.

`runs` are runs by the names to draw them with, at least one. `images` are the test images, float32
(n_test, 29, 29), -1 white to 1 black; or (n_test, side, side, maps), -1 black to 1 white. `config`
is the configuration of a run on the data, which names the classes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from deform_gpu.parameters import SIDE
from experiments.drawing.figures import (
    BLACK,
    BLUE,
    SMALL_SIZE,
    TITLE_SIZE,
    finish,
    fold,
    frame,
    literal,
    shorten,
    text_width,
)
from experiments.results import voting
from experiments.results.rows import CommitteeRow
from experiments.training.configs import Config
from experiments.training.formatting import plural
from experiments.training.store import Run

COUNT_COLOURS = colormaps["Blues"]  # the darker the more, in grey too
MAX_CLASSES = 30  # that are named on an axis, or have numbers in a table of confusions
MAX_CLASS_LETTERS = 16  # of the name of a class
MAX_AXIS_LETTERS = 70  # of the names on a horizontal axis, side by side

# Images in rows, as in the 2010 paper's Figure 1; pixels are those of a digit of 29x29.
MAX_WRONG = 100  # images that are drawn
CELL_HEIGHT, CELL_WIDTH = 46, 35  # pixels of an image and of the text below it, at least
PIXELS_PER_INCH = 46
MAX_WIDTH = 9.5  # inches of a row
HEADING_LINE, HEADING_MARGIN = 0.17, 0.26  # inches


def plot_confusion(outputs: np.ndarray, labels: np.ndarray, title: str, config: Config) -> Figure:
    """Which classes are taken for which: counts, and totals of the errors.

    Without numbers if there are more than MAX_CLASSES. outputs: class probabilities (n_test,
    n_classes). labels: (n_test,).
    """
    size, names = outputs.shape[1], short_names(config)
    counts = np.zeros((size, size), int)
    np.add.at(counts, (labels, outputs.argmax(axis=1)), 1)
    errors = counts - np.diag(np.diag(counts))
    cells = np.argsort(-errors, axis=None, kind="stable")[:3]
    worst = [(*divmod(int(cell), size), errors.flat[cell]) for cell in cells if errors.flat[cell]]
    most = ", ".join(f"{names[label]} as {names[guess]} ({n})" for label, guess, n in worst)
    heading = f"{title}:\n{errors.sum()} of {len(labels):,} wrong" + (most and f"; most: {most}")

    shares = errors / max(1, errors.max())
    shades = np.where(errors, shares, np.nan)
    figure = frame(6.2, width=6)
    axes = figure.add_subplot()
    if size <= MAX_CLASSES:
        names = [*names, "errors"]
        shades = np.pad(shades, (0, 1), constant_values=np.nan)
        table = np.pad(errors, (0, 1))
        table[-1, :-1], table[:-1, -1], table[-1, -1] = errors.sum(0), errors.sum(1), errors.sum()
        for (row, column), n in np.ndenumerate(table):
            if row == column < size:
                _write_number(axes, row, column, int(counts[row, row]), color="0.45")
            elif size in (row, column):
                _write_number(axes, row, column, n, weight="bold")
            elif n:
                _write_number(axes, row, column, n, float(shares[row, column]))
        axes.axhline(size - 0.5, color=BLACK, linewidth=0.8)
        axes.axvline(size - 0.5, color=BLACK, linewidth=0.8)
    axes.imshow(shades, cmap=COUNT_COLOURS, vmin=0, vmax=1)
    for axis in axes.xaxis, axes.yaxis:
        _tick_classes(axis, names)
    axes.set(xlabel="guess", ylabel="label")
    return finish(figure, heading)


def plot_hardest(runs: Mapping[str, Run], images: np.ndarray, n: int = 35) -> Figure:
    """The n images that the most runs get wrong, however few those are; the hardest first.

    Ties: the image whose label has the lower mean probability is harder. Below each: its label, the
    most frequent wrong guess, and how many of the runs get it wrong. Images that all get right are
    left out. Raises ValueError if the runs' labels differ.
    """
    labels, config = _common_labels(runs), next(iter(runs.values())).config
    names = short_names(config)
    guesses = np.array([run.outputs.argmax(axis=1) for run in runs.values()])
    n_wrong = np.count_nonzero(guesses != labels, axis=0)
    mean = voting.average([run.outputs for run in runs.values()])
    likely = mean[np.arange(len(labels)), labels]
    order = np.lexsort((likely, -n_wrong))
    hardest = order[n_wrong[order] > 0][:n]
    captions = []
    for index in hardest:
        wrong = guesses[:, index][guesses[:, index] != labels[index]]
        guess = np.bincount(wrong).argmax()  # of equally frequent ones the smallest
        said = f"{names[labels[index]]}, said {names[guess]}"
        captions.append(f"label {said}\n{n_wrong[index]} of {plural(len(runs), 'run')}")
    found = plural(len(hardest), f"hardest {config.noun}")
    heading = f"The {found} for {plural(len(runs), 'run')};\n"
    heading += "below: the label, the most frequent wrong guess, how many runs are wrong"
    return plot_images(images[hardest], captions, heading)


def plot_wrong(
    outputs: np.ndarray, labels: np.ndarray, images: np.ndarray, title: str, config: Config
) -> Figure:
    """The images that a net or a committee gets wrong, of many the first MAX_WRONG.

    outputs: class probabilities (n_test, n_classes). labels: (n_test,). images: the test images.
    title: its first line; the second says how many are wrong, and if only some are drawn, how many.
    """
    names = short_names(config)
    wrong = np.flatnonzero(voting.find_wrong(outputs, labels))
    shown = wrong[:MAX_WRONG]
    columns = max(7, math.ceil(math.sqrt(1.4 * len(shown))))  # the paper's 35 stand in 5 x 7
    heading = f"{title}:\n{voting.count_sentence(outputs, labels)}"
    if len(shown) < len(wrong):
        heading += f"\nhere: the first {len(shown)} of {len(wrong)} wrong {config.noun}s"
    corners = [names[label] for label in labels[shown]]
    captions = [f"{names[a]}, {names[b]}" for a, b in voting.guesses(outputs)[shown]]
    if max(map(len, names)) > 2:  # too long for a corner
        both = zip(corners, captions, strict=True)
        corners, captions = [], [f"label {label}\nsaid {said}" for label, said in both]
    return plot_images(images[shown], captions, heading, columns, corners)


def plot_images(
    images: np.ndarray,
    captions: Sequence[str],
    heading: str,
    columns: int = 7,
    corners: Sequence[str] = (),
) -> Figure:
    """Images in rows, each with a caption below of at most two lines.

    images: float32 (n, side, side) or (n, side, side, maps). columns: at most. corners: the texts
    at the top right of the images, if they have any.
    """
    # One picture of all images: axes of their own for hundreds of them would take a minute.
    pictures, white = to_show(images)
    side = images.shape[1]
    pixel = side / SIDE
    size = TITLE_SIZE if corners else SMALL_SIZE
    lines = [line for caption in captions for line in caption.split("\n")]
    widest = max((text_width(line, size) for line in lines), default=0)
    across = max(CELL_WIDTH, math.ceil(PIXELS_PER_INCH * widest) + 8)
    columns = max(1, min(columns, int(MAX_WIDTH * PIXELS_PER_INCH / across)))
    rows = max(1, math.ceil(len(images) / columns))
    cell_height, cell_width = round(CELL_HEIGHT * pixel), round(across * pixel)
    shape = rows * cell_height, columns * cell_width, *pictures.shape[3:]
    mosaic = np.full(shape, white, np.float32)
    width = columns * across / PIXELS_PER_INCH
    heading = fold(literal(heading), width - 0.2)
    above = HEADING_MARGIN + HEADING_LINE * len(heading.splitlines())
    height = rows * CELL_HEIGHT / PIXELS_PER_INCH + above
    figure = Figure(figsize=(width, height))
    figure.text(0.1 / width, 1 - 0.1 / height, heading, fontsize=TITLE_SIZE, va="top")
    axes = figure.add_axes((0, 0, 1, 1 - above / height))
    frames = []
    for place, (image, caption) in enumerate(zip(pictures, captions, strict=True)):
        row, column = divmod(place, columns)
        top, left = row * cell_height + round(pixel), column * cell_width + round(3 * pixel)
        bottom, right = top + side, left + side
        mosaic[top:bottom, left:right] = image
        frames.append(Rectangle((left - 0.5, top - 0.5), side, side))
        axes.text(left, bottom + pixel, caption, va="top", fontsize=size)
        if corners:
            at = right - 1.5 * pixel, top + 0.5 * pixel
            corner = axes.text(*at, corners[place], ha="right", va="top", fontsize=size)
            corner.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})
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


def plot_probabilities(axes: Axes, chances: np.ndarray, label: int, config: Config) -> None:
    """A bar for each class, of the label in a colour and hatched. chances: (n_classes,)."""
    n = len(chances)
    others = np.delete(np.arange(n), label)
    axes.bar(label, chances[label], color=BLUE, hatch="///", ec=BLACK, label="the label")
    axes.bar(others, chances[others], color="0.8", ec=BLACK, label="other classes")
    axes.set(xlim=(-0.6, n - 0.4), ylim=(0, 1), yticks=(0, 0.5, 1))
    _tick_classes(axes.xaxis, short_names(config))


def plot_shared(rows: Sequence[CommitteeRow], title: str) -> Figure:
    """How many errors any two have in common, members and last the committee.

    Shaded as shares of the row's own errors.
    """
    own = np.array([row.errors for row in rows])
    with_committee = [*rows[-1].shared, rows[-1].errors]
    counts = np.column_stack([[row.shared for row in rows], with_committee])
    shares = counts / np.maximum(own, 1)[:, None]
    figure = frame(1.8 + 0.28 * len(own))
    axes = figure.add_subplot()
    picture = axes.imshow(shares, cmap=COUNT_COLOURS, vmin=0, vmax=1, aspect="auto")
    for (row, column), n in np.ndenumerate(counts):
        _write_number(axes, row, column, n, float(shares[row, column]))
    places = np.arange(len(own))
    short = [*map(str, places[1:]), "C"]
    names = [f"{k}: {shorten(row.member)}" for k, row in zip(short, rows, strict=True)]
    axes.set_xticks(places, short)
    axes.set_yticks(places, names)
    bar = figure.colorbar(picture, location="bottom", shrink=0.5, aspect=30, format="{x:.0%}")
    bar.set_label("share of the row's own errors")
    return finish(figure, f"{title}:\nerrors in common, own errors on the diagonal")


def short_names(config: Config) -> list[str]:
    """The names of the classes; of a long one the beginning."""
    return [
        literal(name if len(name) <= MAX_CLASS_LETTERS else f"{name[: MAX_CLASS_LETTERS - 1]}…")
        for name in config.class_names
    ]


def _tick_classes(axis: XAxis | YAxis, names: Sequence[str]) -> None:
    """Name the classes at the ticks of an axis, of many some; upright where they need the room."""
    step = math.ceil(len(names) / (MAX_CLASSES + 1))
    shown = names[::step]
    axis.set_ticks(range(0, len(names), step), shown)
    if isinstance(axis, XAxis) and len(shown) * max(map(len, shown)) > MAX_AXIS_LETTERS:
        axis.set_tick_params(rotation=90)


def _common_labels(runs: Mapping[str, Run]) -> np.ndarray:
    first, *others = (run.labels for run in runs.values())
    if not all(np.array_equal(labels, first) for labels in others):
        raise ValueError("the runs were tested on different images; draw those on the same ones")
    return first


def _write_number(
    axes: Axes, row: int, column: int, n: int, shade: float = 0, **style: Any
) -> None:
    """A number in a cell of COUNT_COLOURS, 0 to 1, in a colour that can be read on it."""
    style = {"color": "white" if shade > 0.7 else BLACK, "fontsize": SMALL_SIZE, **style}
    axes.text(column, row, str(n), ha="center", va="center", **style)
