"""The drawings of threads and data: styles, shapes, and an array as a kernel's blocks take it.

At the end two drawings that are of no kernel of the GPU: a block of images, and the CPU's tiles.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from experiments.benchmarks import window
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
from mlp_gpu.network import Network
from mlp_gpu.vector_kernel import CHUNK, PANEL, ROWS, Registers, tile_widths

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


def plot_panel(axes: Axes, panel: Panel) -> None:
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
    plot_box(axes, 0, 0, all_columns, all_rows, IDLE)
    plot_box(axes, left, top, right - left, bottom - top, OUTLINE | {"facecolor": "white"})
    if panel.more:
        start = -(-right // tile[1]) * tile[1]
        plot_box(axes, start, 0, panel.more, bottom, READ)
    if panel.used:
        (rows, columns), (used_rows, used_columns) = trace.shape, panel.used
        plot_box(axes, used_columns, 0, columns - used_columns, rows, PADDING)
        plot_box(axes, 0, used_rows, used_columns, rows - used_rows, PADDING)
        plot_box(axes, 0, 0, columns, rows, OUTLINE | {"edgecolor": "black", "linewidth": 1})
        all_rows, all_columns = max(all_rows, rows), max(all_columns, columns)
    for x, y in np.ndindex(grid):
        style = BLOCK if (x, y) == block else OUTLINE
        plot_box(axes, x * tile[1], y * tile[0], tile[1], tile[0], style)
    if panel.reads:  # in an array with a margin, so they lie around the thread's own
        read = cells_of(read_traces()[panel.reads].own)
        above, before = (length // 2 for length in extent(read))
        plot_cells(axes, [(row - above, column - before) for row, column in read], READ)
    if step:
        plot_cells(axes, own, THIN_THREAD)
        height, width = extent(step)
        plot_box(axes, step[0][1], step[0][0], width, height, WARP_STEP | {"linewidth": 1})
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


def plot_box(axes: Axes, left: float, top: float, width: float, height: float, style: dict) -> None:
    axes.add_patch(Rectangle((left, top), width, height, **style))


def plot_cells(axes: Axes, cells: Collection, style: dict) -> None:
    """Cells (row, column), each a square."""
    squares = [Rectangle((column, row), 1, 1) for row, column in cells]
    axes.add_collection(PatchCollection(squares, **style))


def plot_lines(axes: Axes, left: int, columns: int, rows: int) -> None:
    """The thin lines between cells, from row 0 on."""
    lines = [[(x, 0), (x, rows)] for x in range(left, left + columns + 1)]
    lines += [[(left, y), (left + columns, y)] for y in range(rows + 1)]
    axes.add_collection(LineCollection(lines, colors="0.75", linewidths=0.5, zorder=0))


def plot_arrow(axes: Axes, start: tuple, end: tuple, color: str) -> None:
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


# --- a block of images: whose deltas correct whose, by the chain and by the window

N_IMAGES, IN_WINDOW = 16, 6  # of the drawn block
SWEEP = 4  # the drawn one of those that the window needs, from 0
SIZES, ETA = (40, 30, 10), 0.02  # of a small net, whose sweeps are drawn

Sweeps = list[tuple[int, int]]  # of each, its first image and the one after its last

# Of the images before, and of the image itself.
KNOWN, CHANGING, NOT_YET = READ, SHARED, IDLE
BLOCK_STYLES = {
    "deltas that are final": KNOWN,
    "deltas of the sweep before": CHANGING,
    "not begun": NOT_YET,
    "done by this step": THREAD,
    "to be done again": CHANGING | {"hatch": "////"},
    "at work together": WARP_STEP,
}


def example_sweeps() -> Sweeps:
    """Those that a block of random images needs, of a small net with random weights."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (N_IMAGES, SIZES[0])).astype(np.float32)
    weights = [W.astype(np.float64) for W in Network.initial(SIZES, seed=0).unpadded()]
    labels = rng.integers(0, SIZES[-1], N_IMAGES)
    return window.train_in_windows(weights, images, labels, ETA, IN_WINDOW, N_IMAGES)


def plot_block() -> Figure:
    """The triangle of corrections at one step of both ways, and below it all their steps."""
    sweeps = example_sweeps()
    first, _ = sweeps[SWEEP]
    chain = [(t, t + 1) for t in range(N_IMAGES)]
    title = f"A block of {N_IMAGES} images: deltas of which images correct which image\n"
    title += "(row t: corrections of image t; none above the diagonal, as images come in order)"
    figure = new_figure(title, 7.6)
    (left, right), (steps_left, steps_right) = figure.subplots(2, 2)
    plot_corrections(left, chain, first, "chain: one image at a time,\nall corrections are final")
    text = f"window of {IN_WINDOW}: some corrections\nare of the sweep before"
    plot_corrections(right, sweeps, SWEEP, text)
    plot_steps(steps_left, chain, f"chain: {len(chain)} steps, one after another")
    plot_steps(steps_right, sweeps, f"window: {len(sweeps)} sweeps, one after another")
    add_legend(figure, BLOCK_STYLES)
    return figure


def plot_corrections(axes: Axes, sweeps: Sweeps, step: int, title: str) -> None:
    """A cell (t, s) for each image s whose delta corrects image t, at a step."""
    first, end = sweeps[step]
    below = [(t, s) for t in range(N_IMAGES) for s in range(t)]
    known = [(t, s) for t, s in below if t < end and s < first]
    changing = [(t, s) for t, s in below if t < end and s >= first]
    plot_cells(axes, [(t, s) for t, s in below if t >= end], NOT_YET)
    plot_cells(axes, known, KNOWN)
    plot_cells(axes, changing, CHANGING)
    plot_lines(axes, 0, N_IMAGES, N_IMAGES)
    plot_box(axes, 0, first, max(end - 1, 1), end - first, WARP_STEP)
    across = "image s, before it"
    set_scaled(axes, N_IMAGES, N_IMAGES, across, "image t, to be corrected", title)


def plot_steps(axes: Axes, sweeps: Sweeps, title: str) -> None:
    """A row for each step: the images that go forward and backward, and which are done by it."""
    ends = [first for first, _ in sweeps[1:]] + [N_IMAGES]
    rows = list(enumerate(zip(sweeps, ends, strict=True)))
    done = [(row, t) for row, ((first, _), end) in rows for t in range(first, end)]
    again = [(row, t) for row, ((_, last), end) in rows for t in range(end, last)]
    plot_box(axes, 0, 0, N_IMAGES, N_IMAGES, OUTLINE | {"edgecolor": "none"})
    plot_cells(axes, done, THREAD)
    plot_cells(axes, again, BLOCK_STYLES["to be done again"])
    plot_lines(axes, 0, N_IMAGES, len(sweeps))
    set_scaled(axes, N_IMAGES, N_IMAGES, "image of the block", "step", title)


# --- the CPU's kernel: which numbers a tile multiplies at a step, and where it adds

STEPS, STEP = 10, 4  # of a chunk that are drawn, and the one that is at work
GAP = 2.5  # between matrices


def plot_vector_tiles() -> Figure:
    """The tiles of vectors of 16 and of 8 numbers at one step."""
    figure = new_figure("The CPU's kernel: a tile of C = S + A B at one step of k", 6)
    for axes, sizes in zip(figure.subplots(2, 1), ((16, 32), (8, 16)), strict=True):
        _plot_vector_tile(axes, Registers(*sizes))
    styles = {
        "vectors of a row of B, each loaded once": READ,
        "numbers of A, each in all lanes of a vector": SHARED,
        "accumulators": THREAD,
        "a vector register": WARP_STEP,
    }
    add_legend(figure, styles)
    return figure


def _plot_vector_tile(axes: Axes, registers: Registers) -> None:
    """B above, A on the left, and the accumulators of C where a row and a column meet."""
    rows, lanes, vectors = ROWS, registers.lanes, tile_widths(registers)[ROWS]
    columns, corner = vectors * lanes, STEPS + GAP
    plot_box(axes, corner, 0, columns, STEPS, OUTLINE)
    plot_box(axes, 0, corner, STEPS, rows, OUTLINE)
    plot_box(axes, corner, STEP, columns, 1, READ)
    plot_box(axes, STEP, corner, 1, rows, SHARED)
    plot_box(axes, corner, corner, columns, rows, THREAD)
    for left in range(0, columns, lanes):
        for top in (STEP, *(corner + row for row in range(rows))):
            plot_box(axes, corner + left, top, lanes, 1, WARP_STEP)
    plot_arrow(axes, (corner - 1, 0), (corner - 1, STEPS), "black")
    plot_arrow(axes, (0, corner - 1), (STEPS, corner - 1), "black")
    add_text(axes, corner - 2, STEPS / 2, f"k, {CHUNK} steps\na chunk", ha="right")
    right = corner + columns + 1
    add_text(axes, right, STEPS / 2, "B", ha="left")
    add_text(axes, right, corner + rows / 2, "C", ha="left")
    add_text(axes, -1, corner + rows / 2, "A", ha="right")
    title = f"vectors of {lanes} numbers, {registers.number} registers: "
    title += f"{rows} rows of {vectors} vectors, {rows * vectors} multiply-adds "
    title += f"for {vectors} loads of B and {rows} of A"
    set_bare(axes, (-3, corner + PANEL + 4), (0, corner + rows), title)
