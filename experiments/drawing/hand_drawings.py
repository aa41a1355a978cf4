"""Drawings without a trace: which images of a block correct which, and the CPU's tiles."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.benchmarks import window
from experiments.drawing.figures import LABEL_SIZE, TITLE_SIZE, frame
from experiments.drawing.thread_drawing import (
    IDLE,
    OUTLINE,
    READ,
    SHARED,
    THREAD,
    WARP_STEP,
    add_legend,
    plot_box,
    plot_cells,
    plot_lines,
    set_axes,
)
from mlp_gpu.network import Network
from mlp_gpu.vector_kernel import CHUNK, PANEL, ROWS, Registers, tile_widths

# --- a block of images: whose deltas correct whose, by the chain and by the window

N_IMAGES, IN_WINDOW = 16, 6  # of the drawn block
SWEEP = 4  # the drawn one of those that the window needs, from 0
SIZES, ETA = (40, 30, 10), 0.02  # of a small net, whose sweeps are drawn
REGION = (0, 0, N_IMAGES, N_IMAGES)

Sweeps = list[tuple[int, int]]  # of each, its first image and the one after its last

AGAIN = SHARED | {"hatch": "////"}
BLOCK_STYLES = {
    "deltas that are final": READ,
    "deltas of the sweep before": SHARED,
    "not begun": IDLE,
    "done by this step": THREAD,
    "to be done again": AGAIN,
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
    figure = frame(7.6)
    figure.suptitle(title, fontsize=TITLE_SIZE)
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
    plot_cells(axes, [(t, s) for t, s in below if t >= end], IDLE)
    plot_cells(axes, [(t, s) for t, s in below if t < end and s < first], READ)
    plot_cells(axes, [(t, s) for t, s in below if t < end and s >= first], SHARED)
    plot_lines(axes, 0, N_IMAGES, N_IMAGES)
    plot_box(axes, 0, first, max(end - 1, 1), end - first, WARP_STEP)
    set_axes(axes, REGION, "image s, before it", "image t, to be corrected", title)


def plot_steps(axes: Axes, sweeps: Sweeps, title: str) -> None:
    """A row for each step: the images that go forward and backward, and which are done by it."""
    ends = [first for first, _ in sweeps[1:]] + [N_IMAGES]
    rows = list(enumerate(zip(sweeps, ends, strict=True)))
    plot_cells(axes, [(row, t) for row, ((t0, _), end) in rows for t in range(t0, end)], THREAD)
    plot_cells(axes, [(row, t) for row, ((_, last), end) in rows for t in range(end, last)], AGAIN)
    plot_lines(axes, 0, N_IMAGES, len(sweeps))
    set_axes(axes, REGION, "image of the block", "step", title)


# --- the CPU's kernel: which numbers a tile multiplies at a step, and where it adds

STEPS, STEP = 10, 4  # of a chunk that are drawn, and the one that is at work
CORNER = STEPS + 2.5  # where C begins
TILE_STYLES = {
    "vectors of a row of B, each loaded once": READ,
    "numbers of A, each in all lanes of a vector": SHARED,
    "accumulators": THREAD,
    "a vector register": WARP_STEP,
}


def plot_vector_tiles() -> Figure:
    """The tiles of vectors of 16 and of 8 numbers at one step."""
    figure = frame(6)
    title = "The CPU's kernel: a tile of C = S + A B at one step of k"
    figure.suptitle(title, fontsize=TITLE_SIZE)
    for axes, sizes in zip(figure.subplots(2, 1), ((16, 32), (8, 16)), strict=True):
        _plot_vector_tile(axes, Registers(*sizes))
    add_legend(figure, TILE_STYLES)
    return figure


def _plot_vector_tile(axes: Axes, registers: Registers) -> None:
    """B above, A on the left, and the accumulators of C where a row and a column meet."""
    lanes, vectors = registers.lanes, tile_widths(registers)[ROWS]
    columns = vectors * lanes
    plot_box(axes, CORNER, 0, columns, STEPS, OUTLINE)
    plot_box(axes, 0, CORNER, STEPS, ROWS, OUTLINE)
    plot_box(axes, CORNER, STEP, columns, 1, READ)
    plot_box(axes, STEP, CORNER, 1, ROWS, SHARED)
    plot_box(axes, CORNER, CORNER, columns, ROWS, THREAD)
    for left in range(0, columns, lanes):
        for top in (STEP, *(CORNER + row for row in range(ROWS))):
            plot_box(axes, CORNER + left, top, lanes, 1, WARP_STEP)
    for x, y, text, ha in (
        (CORNER - 1, STEPS / 2, f"k, {CHUNK} steps\na chunk", "right"),
        (CORNER + columns + 1, STEPS / 2, "B", "left"),
        (CORNER + columns + 1, CORNER + ROWS / 2, "C", "left"),
        (-1, CORNER + ROWS / 2, "A", "right"),
    ):
        axes.text(x, y, text, ha=ha, va="center", fontsize=LABEL_SIZE)
    title = f"vectors of {lanes} numbers, {registers.number} registers: "
    title += f"{ROWS} rows of {vectors} vectors, {ROWS * vectors} multiply-adds "
    title += f"for {vectors} loads of B and {ROWS} of A"
    axes.set(xlim=(-3, CORNER + PANEL + 4), ylim=(CORNER + ROWS + 0.5, -0.5))
    axes.set_title(title, fontsize=LABEL_SIZE)
    axes.set_axis_off()
