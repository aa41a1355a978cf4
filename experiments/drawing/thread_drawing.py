"""What the drawings of threads and data have in common: styles, shapes, and one kind of launch."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from deepbig_runtime.gpu import WARP, Launch
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

# How cells are drawn: those of one thread, those that it reads for them, those in shared memory,
# those of a warp at one step, blocks, outlines, and what no thread uses.
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
class Mosaic:
    """A launch whose threads each compute a few cells of a matrix, side by side as the threads are.

    shape: of the matrix. each: rows and columns that a thread computes. reads: rows and columns of
    another matrix that it reads for one of them, from the same place on. down: whether threads
    with consecutive x compute cells below each other.
    """

    launch: Launch
    shape: tuple[int, ...]
    each: tuple[int, int] = (1, 1)
    reads: tuple[int, int] = (0, 0)
    down: bool = False

    @property
    def threads(self) -> tuple[int, int]:
        """Threads per block, in x and y."""
        threads = self.launch.threads
        return threads if isinstance(threads, tuple) else (threads, 1)

    def cells(self, block: tuple[int, int], thread: tuple[int, int]) -> np.ndarray:
        """The (row, column) that thread (x, y) of block (x, y) computes, int64 (n, 2)."""
        x, y = np.array(block) * self.threads + thread
        first = np.array((x, y) if self.down else (y, x)) * self.each
        cells = first + np.argwhere(np.ones(self.each))
        return cells[(cells < self.shape).all(axis=1)]

    def read(self, block: tuple[int, int], thread: tuple[int, int]) -> np.ndarray:
        """The (row, column) of the other matrix that it reads for its first cell, int64 (n, 2)."""
        first = self.cells(block, thread)[:1, None]
        return (first + np.argwhere(np.ones(self.reads))).reshape(-1, 2)

    def step(self, block: tuple[int, int], thread: tuple[int, int]) -> np.ndarray:
        """The (row, column) that a thread's warp computes at its first step, int64 (n, 2)."""
        across = self.threads[0]
        first = (thread[1] * across + thread[0]) // WARP * WARP
        warp = [divmod(i, across)[::-1] for i in range(first, first + WARP)]
        return np.vstack([self.cells(block, one)[:1] for one in warp])


@dataclass(frozen=True)
class Panel:
    """What the drawing of a mosaic says, and the block and the thread that it shows."""

    computes: str
    block: tuple[int, int]
    thread: tuple[int, int]
    row_label: str
    column_label: str


def draw_mosaic(axes: Axes, name: str, mosaic: Mosaic, panel: Panel) -> None:
    """A kernel: all its blocks, one outlined, and what a thread and a warp of that one compute."""

    def turned(pair: tuple) -> tuple:
        """From x and y to across and down."""
        return pair[::-1] if mosaic.down else pair

    grid, threads = mosaic.launch.grid[:2], mosaic.threads
    size = turned(threads)[0] * mosaic.each[1], turned(threads)[1] * mosaic.each[0]
    right, bottom = turned(grid)[0] * size[0], turned(grid)[1] * size[1]
    rows, columns = mosaic.shape
    draw_box(axes, 0, 0, right, bottom, IDLE)
    draw_box(axes, 0, 0, columns, rows, OUTLINE | {"facecolor": "white"})
    draw_blocks(axes, turned(grid), size, turned(panel.block))
    # The matrix that is read has a margin, so what is read lies around what is computed.
    read = mosaic.read(panel.block, panel.thread) - np.array(mosaic.reads) // 2
    draw_cells(axes, read, READ, "read")
    draw_cells(axes, mosaic.cells(panel.block, panel.thread), THIN_THREAD, "own")
    step = mosaic.step(panel.block, panel.thread)
    left, top = step[0, 1], step[0, 0]
    height, width = step[-1] - step[0] + 1
    draw_box(axes, left, top, width, height, WARP_STEP | {"linewidth": 1}, "step")
    block = " x ".join(map(str, np.atleast_1d(mosaic.launch.threads)))
    apart = f", {columns} words apart" if mosaic.down else " side by side: coalesced"
    title = f"{name}\n{rows} x {columns} numbers; a thread computes {panel.computes}\n"
    title += f"grid of {grid[0]} x {grid[1]} blocks of {block} threads\n"
    title += f"{len(step)} threads write {len(step)} numbers{apart}"
    set_scaled(axes, right, bottom, panel.column_label, panel.row_label, title)


def new_figure(title: str, height: float) -> Figure:
    figure = Figure(figsize=(FIGURE_WIDTH, height), layout="constrained")
    figure.suptitle(title, fontsize=TITLE_SIZE)
    return figure


def draw_box(
    axes: Axes,
    left: float,
    top: float,
    width: float,
    height: float,
    style: dict,
    label: str = "",
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
    """What each style of the figure means, below it."""
    handles = [Patch(**style, label=label) for label, style in styles.items()]
    place: dict = {"loc": "outside lower center", "ncols": 3, "frameon": False}
    figure.legend(handles=handles, fontsize=LABEL_SIZE, **place)


def draw_blocks(axes: Axes, grid: tuple, size: tuple[int, int], chosen: tuple) -> None:
    """The outlines of a grid of blocks. size: how wide and high they are."""
    for x, y in np.ndindex(grid):
        style = BLOCK if (x, y) == chosen else OUTLINE
        draw_box(axes, x * size[0], y * size[1], *size, style, f"block {x}, {y}")
