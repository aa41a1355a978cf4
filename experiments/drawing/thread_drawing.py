"""The drawer of threads and data: a panel is an array, and the cells that a kernel's trace has.

And the shapes that other drawings use as well.
"""

import textwrap
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from experiments.drawing.figures import (
    BLUE,
    FIGURE_WIDTH,
    LABEL_SIZE,
    ORANGE,
    SKY,
    TITLE_SIZE,
    VERMILION,
    frame,
)
from experiments.drawing.traces import Box, Pair, Trace, cells_of, read_traces
from experiments.training.formatting import plural

THREAD = {"facecolor": BLUE, "edgecolor": "0.2", "linewidth": 0.4}
READ = {"facecolor": SKY, "edgecolor": "0.2", "linewidth": 0.4}
SHARED = {"facecolor": ORANGE, "edgecolor": "0.2", "linewidth": 0.4}
WARP_STEP = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.2, "zorder": 4}
BOUNDS = {"facecolor": "none", "edgecolor": VERMILION, "linewidth": 1.5, "zorder": 3}
OUTLINE = {"facecolor": "none", "edgecolor": "0.4", "linewidth": 0.6}
IDLE: dict[str, object] = {"facecolor": "0.85", "edgecolor": "none"}

# Cells of an array by what touches them: nothing, other blocks, the drawn block, and its warp's
# step, which moves whole sectors.
UNTOUCHED, OTHERS, BLOCK, SECTORS = range(4)
COLOURS = ("0.85", "white", "#FDE3B3", "#7CCBAE")
ORDER = colormaps["Blues"](np.linspace(0.5, 1, 16))  # of a thread's cells, first to last
STYLES = {
    "one block": BOUNDS | {"facecolor": COLOURS[BLOCK]},
    "one thread, faint to strong": THREAD,
    "its warp at one step": WARP_STEP,
    "sectors of that step": OUTLINE | {"facecolor": COLOURS[SECTORS]},
    "other blocks": OUTLINE | {"facecolor": COLOURS[OTHERS]},
    "no block": IDLE,
}
MIN_RATIO, MAX_RATIO = 0.35, 1.3  # of a panel, height to width
MAX_CELLS = 80  # in a row or column that has lines between cells
OF_SHARED = {name: style for name, style in STYLES.items() if "sectors" not in name}
PANEL_WIDTH = FIGURE_WIDTH / 2


@dataclass(frozen=True)
class View:
    """A thread of a kernel, and an array that it touches: a panel.

    name: kernel, argument, and "read" or "write"; "shared0" is the first array in shared memory.
    block, thread: in x and y. rows, columns: labels of the axes. step: the drawn step of the warp
    is the one in which the thread touches its cell of that number first. width: cells in a row; 0:
    as many as the array's last dimension has. region: what is drawn, by default all.
    """

    name: str
    block: Pair
    thread: Pair
    rows: str
    columns: str
    step: int = 0
    width: int = 0
    region: Box | None = None


def plot_threads(title: str, views: list[View]) -> Figure:
    """A kernel on the arrays of its views, a panel each."""
    n, found = len(views), [read_traces()[view.name] for view in views]
    ratios = [_ratio(trace) for trace in found]
    lines = textwrap.wrap(title, 50 * n)
    styles = STYLES if any(trace.moved for trace in found) else OF_SHARED
    height = 1.4 + 0.15 * len(lines) + 0.36 / n + 2.9 * max(ratios)
    figure = frame(height, n * PANEL_WIDTH)
    figure.suptitle("\n".join(lines), fontsize=TITLE_SIZE)
    panels = figure.subplots(1, n, squeeze=False)[0]
    for axes, view, trace, ratio in zip(panels, views, found, ratios, strict=True):
        plot_panel(axes, view, trace)
        axes.set_box_aspect(ratio)
        axes.set_anchor("N")
    add_legend(figure, styles, 2 if n == 1 else 3)
    return figure


def _ratio(trace: Trace) -> float:
    """Height to width of a panel: cells are squares where it is neither too flat nor too high."""
    top, left, bottom, right = trace.region
    return min(max((bottom - top) / (right - left), MIN_RATIO), MAX_RATIO)


def plot_panel(axes: Axes, view: View, trace: Trace) -> None:
    """An array: the blocks that touch it, one of them, its thread's cells, its warp's step."""
    top, left, bottom, right = trace.region
    kinds = np.full((bottom - top, right - left), UNTOUCHED)
    for first_row, first, end_row, end in trace.blocks:
        plot_box(axes, first, first_row, end - first, end_row - first_row, OUTLINE)
    painted = {OTHERS: trace.of_all, BLOCK: trace.of_block, SECTORS: trace.moved}
    for kind, runs in painted.items():
        for row, first, last in runs:
            kinds[row - top, first - left : last + 1 - left] = kind
    axes.imshow(
        kinds,
        ListedColormap(COLOURS),
        aspect="auto",
        interpolation="nearest",
        vmin=0,
        vmax=len(COLOURS) - 1,
        extent=(left, right, bottom, top),
    )
    rows, starts, ends = zip(*trace.of_block, strict=True)
    width, height = max(ends) + 1 - min(starts), max(rows) + 1 - min(rows)
    plot_box(axes, min(starts), min(rows), width, height, BOUNDS)
    large = max(kinds.shape) > MAX_CELLS
    if not large:
        plot_lines(axes, left, right - left, bottom - top, top)
    own = cells_of(trace.own)
    shades = (
        ORDER[np.linspace(0, len(ORDER) - 1, len(own)).astype(int)] if len(own) > 1 else ORDER[-1:]
    )
    plot_cells(axes, own, {"facecolor": shades, "edgecolor": shades, "linewidth": 0.8})
    for row, first, last in trace.step:
        style = WARP_STEP | {"linewidth": 0.7 if large else 1.2}
        plot_box(axes, first, row, last + 1 - first, 1, style)
    set_axes(axes, trace.region, view.columns, view.rows, caption(view, trace))


def caption(view: View, trace: Trace) -> str:
    """What a panel shows, in numbers of its trace."""
    _, array, kind = view.name.split()
    shared, two = array.startswith("shared"), trace.threads[1] > 1
    array = "shared" if shared else array
    threads = "{} x {}".format(*trace.threads) if two else f"{trace.threads[0]}"
    thread = f"({view.thread[0]}, {view.thread[1]})" if two else f"{view.thread[0]}"
    turns = plural(trace.n_turns, "turn" if shared else "sector")
    return (
        f"{array}, {trace.shape[0]} x {trace.shape[1]}: grid {trace.grid}, blocks of {threads}\n"
        f"thread {thread} of block {view.block} {kind}s {plural(trace.n_own, 'number')}\n"
        f"its warp at one step: {plural(trace.n_step, 'number')} in {turns}"
    )


def plot_box(axes: Axes, left: float, top: float, width: float, height: float, style: dict) -> None:
    axes.add_patch(Rectangle((left, top), width, height, **style))


def plot_cells(axes: Axes, cells: Collection, style: dict) -> None:
    """Cells (row, column), each a square."""
    squares = [Rectangle((column, row), 1, 1) for row, column in cells]
    axes.add_collection(PatchCollection(squares, **style))


def plot_lines(axes: Axes, left: int, columns: int, rows: int, top: int = 0) -> None:
    """The thin lines between cells."""
    right, bottom = left + columns, top + rows
    lines = [[(x, top), (x, bottom)] for x in range(left, right + 1)]
    lines += [[(left, y), (right, y)] for y in range(top, bottom + 1)]
    axes.add_collection(LineCollection(lines, colors="0.75", linewidths=0.5, zorder=0.5))


def set_axes(axes: Axes, region: Iterable[int], across: str, down: str, title: str) -> None:
    """Axes that count columns to the right and rows down: from the first row and column on."""
    top, left, bottom, right = region
    x, y = 0.01 * (right - left), 0.02 * (bottom - top)
    axes.set(xlim=(left - x, right + x), ylim=(bottom + y, top - y))
    axes.set_xlabel(across, fontsize=LABEL_SIZE)
    axes.set_ylabel(down, fontsize=LABEL_SIZE)
    axes.set_title(title, fontsize=LABEL_SIZE)
    axes.tick_params(labelsize=LABEL_SIZE)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))


def add_legend(figure: Figure, styles: dict[str, dict], columns: int = 3) -> None:
    """A legend below the figure: labels and their styles."""
    handles = [Patch(**style, label=label) for label, style in styles.items()]
    place: dict = {"loc": "outside lower center", "ncols": columns, "frameon": False}
    place |= {"handlelength": 1.5, "columnspacing": 1.2} if columns == 2 else {}
    figure.legend(handles=handles, fontsize=LABEL_SIZE, **place)
