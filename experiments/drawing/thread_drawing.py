"""The drawings of threads and data: styles, shapes, and an array as a kernel's blocks take it."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from experiments.drawing.figures import (
    BLUE,
    FIGURE_WIDTH,
    GREY,
    LABEL_SIZE,
    ORANGE,
    SKY,
    TITLE_SIZE,
    VERMILION,
)
from experiments.drawing.traces import Pair, Trace, cells_of, read_traces

# How cells are drawn: those of one thread, those that it reads for them, those in shared memory,
# those of a warp at one step, blocks, outlines, and cells that no thread uses.
THREAD = {"facecolor": BLUE, "edgecolor": "0.2", "linewidth": 0.4}
READ = {"facecolor": SKY, "edgecolor": "0.2", "linewidth": 0.4}
SHARED = {"facecolor": ORANGE, "edgecolor": "0.2", "linewidth": 0.4}
WARP_STEP = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.6, "zorder": 4}
BLOCK = {"facecolor": "none", "edgecolor": VERMILION, "linewidth": 2.2, "zorder": 3}
OUTLINE = {"facecolor": "none", "edgecolor": "0.4", "linewidth": 0.6}
PADDING = {"facecolor": "none", "edgecolor": GREY, "linewidth": 0, "hatch": "/////"}
IDLE: dict[str, object] = {"facecolor": "0.88", "edgecolor": "none"}
WARP_AND_IDLE: dict[str, dict] = {"one warp at one step": WARP_STEP, "idle threads": IDLE}
# Where a cell may be less than a point wide.
THIN_THREAD = THREAD | {"edgecolor": BLUE, "linewidth": 1.5}


@dataclass(frozen=True)
class Panel:
    """An array as the thread blocks of a kernel take it.

    trace: its name. rows, columns: the labels of its axes. title: with `facts` in braces. reads:
    the trace of an array that the thread reads for its own cells. used: rows and columns that are
    not padding. more: columns of another matrix that blocks take beside this one.
    """

    trace: str
    rows: str
    columns: str
    title: str
    reads: str = ""
    used: Pair | None = None
    more: int = 0


def draw_panel(axes: Axes, panel: Panel) -> None:
    """All blocks of a kernel over an array, the drawn one outlined, and its thread and warp."""
    trace = read_traces()[panel.trace]
    own, step = cells_of(trace.own), cells_of(trace.step)
    top, left, bottom, right = trace.reached
    threads, grid, block = trace.threads, trace.grid, trace.block
    if goes_down(trace):
        threads, grid, block = threads[::-1], grid[::-1], block[::-1]
    height, width = extent(own)
    tile = height * threads[1], width * threads[0]
    if len(own) < height * width:  # cells of other threads lie between
        tile = extent(cells_of(trace.of_block))
    all_rows, all_columns = grid[1] * tile[0], grid[0] * tile[1]
    draw_box(axes, 0, 0, all_columns, all_rows, IDLE)
    draw_box(axes, left, top, right - left, bottom - top, OUTLINE | {"facecolor": "white"})
    if panel.more:
        start = -(-right // tile[1]) * tile[1]
        draw_box(axes, start, 0, panel.more, bottom, READ, "images")
    if panel.used:
        (rows, columns), (used_rows, used_columns) = trace.shape, panel.used
        draw_box(axes, used_columns, 0, columns - used_columns, rows, PADDING)
        draw_box(axes, 0, used_rows, used_columns, rows - used_rows, PADDING)
        draw_box(axes, 0, 0, columns, rows, OUTLINE | {"edgecolor": "black", "linewidth": 1})
        all_rows, all_columns = max(all_rows, rows), max(all_columns, columns)
    draw_blocks(axes, grid, tile[::-1], block)
    if panel.reads:  # in an array with a margin, so they lie around the thread's own
        read = cells_of(read_traces()[panel.reads].own)
        above, before = (length // 2 for length in extent(read))
        draw_cells(axes, [(row - above, column - before) for row, column in read], READ, "read")
    if step:
        draw_cells(axes, own, THIN_THREAD, "own")
        height, width = extent(step)
        draw_box(axes, step[0][1], step[0][0], width, height, WARP_STEP | {"linewidth": 1}, "step")
    title = panel.title.format(**facts(panel.trace, panel.used))
    set_scaled(axes, all_columns, all_rows, panel.columns, panel.rows, title)


def goes_down(trace: Trace) -> bool:
    """Whether consecutive threads take cells below each other, and not side by side."""
    step = cells_of(trace.step)
    return len(step) > 1 and extent(step)[1] == 1


def facts(name: str, used: Pair | None = None) -> dict[str, str]:
    """Facts about a trace that titles name in braces."""
    trace = read_traces()[name]
    top, left, bottom, right = trace.reached
    across, down = trace.threads
    n, kind = len(cells_of(trace.step)), name.split()[-1]
    apart = f"{trace.shape[1]} words apart" if goes_down(trace) else "side by side: coalesced"
    return {
        "kernel": name.split()[0],
        "shape": "{} x {}".format(*trace.shape),
        "used": "{} x {}".format(*(used or trace.shape)),
        "reached": f"{bottom - top} x {right - left}",
        "grid": "grid of {} x {} blocks".format(*trace.grid),
        "threads": f"{across} x {down} threads" if down > 1 else f"{across} threads",
        "step": f"{n} threads {kind} {n} numbers, {apart}",
    }


def extent(cells: list[Pair]) -> Pair:
    """Rows and columns from the first to the last that cells have."""
    rows, columns = zip(*cells, strict=True)
    return max(rows) - min(rows) + 1, max(columns) - min(columns) + 1


def new_figure(title: str, height: float) -> Figure:
    figure = Figure(figsize=(FIGURE_WIDTH, height), layout="constrained")
    figure.suptitle(title, fontsize=TITLE_SIZE)
    return figure


def draw_box(
    axes: Axes, left: float, top: float, width: float, height: float, style: dict, label: str = ""
) -> None:
    axes.add_patch(Rectangle((left, top), width, height, label=label, **style))


def draw_cells(axes: Axes, cells: Collection, style: dict, label: str) -> None:
    """Cells (row, column), each a square."""
    squares = [Rectangle((column, row), 1, 1) for row, column in cells]
    axes.add_collection(PatchCollection(squares, **style, label=label))


def draw_lines(axes: Axes, left: int, columns: int, rows: int) -> None:
    """The thin lines between cells, from row 0 on."""
    lines = [[(x, 0), (x, rows)] for x in range(left, left + columns + 1)]
    lines += [[(left, y), (left + columns, y)] for y in range(rows + 1)]
    axes.add_collection(LineCollection(lines, colors="0.75", linewidths=0.5, zorder=0))


def draw_arrow(axes: Axes, start: tuple, end: tuple, color: str) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": color, "lw": 1.5})


def add_text(
    axes: Axes, x: float, y: float, text: str, ha: str = "center", va: str = "center"
) -> None:
    axes.text(x, y, text, ha=ha, va=va, fontsize=LABEL_SIZE)


def set_scaled(axes: Axes, right: int, bottom: int, across: str, down: str, title: str) -> None:
    """Axes that count columns to the right and rows down, from 0."""
    x, y = 0.01 * right, 0.02 * bottom
    axes.set(xlim=(-x, right + x), ylim=(bottom + y, -y))
    axes.set_xlabel(across, fontsize=LABEL_SIZE)
    axes.set_ylabel(down, fontsize=LABEL_SIZE)
    axes.set_title(title, fontsize=LABEL_SIZE)
    axes.tick_params(labelsize=LABEL_SIZE)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))


def set_bare(axes: Axes, across: tuple, down: tuple, title: str = "") -> None:
    """Axes of a drawing that has no scale: its first and last x, its first and last y."""
    axes.set(xlim=across, ylim=(down[1] + 0.5, down[0] - 0.5))
    axes.set_title(title, fontsize=LABEL_SIZE)
    axes.set_axis_off()


def add_legend(figure: Figure, styles: dict[str, dict]) -> None:
    """A legend below the figure: labels and their styles."""
    handles = [Patch(**style, label=label) for label, style in styles.items()]
    place: dict = {"loc": "outside lower center", "ncols": 3, "frameon": False}
    figure.legend(handles=handles, fontsize=LABEL_SIZE, **place)


def draw_blocks(axes: Axes, grid: tuple, size: tuple[int, int], chosen: tuple) -> None:
    """The outlines of a grid of blocks. size: how wide and high they are."""
    for x, y in np.ndindex(grid):
        style = BLOCK if (x, y) == chosen else OUTLINE
        draw_box(axes, x * size[0], y * size[1], *size, style, f"block {x}, {y}")
