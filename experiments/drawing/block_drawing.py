"""A drawing of a block of images: whose deltas correct whose, by the chain and by the window."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.benchmarks import window
from experiments.drawing.thread_drawing import (
    IDLE,
    OUTLINE,
    READ,
    SHARED,
    THREAD,
    WARP_STEP,
    add_legend,
    draw_box,
    draw_cells,
    draw_lines,
    new_figure,
    set_scaled,
)
from mlp_gpu.network import Network

N_IMAGES, IN_WINDOW = 16, 6  # of the drawn block
SWEEP = 4  # the drawn one of those that the window needs, from 0
SIZES, ETA = (40, 30, 10), 0.02  # of a small net, whose sweeps are drawn

Sweeps = list[tuple[int, int]]  # of each, its first image and the one after its last

# Of the images before, and of the image itself.
KNOWN, CHANGING, NOT_YET = READ, SHARED, IDLE
STYLES = {
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


def draw_block() -> Figure:
    """The triangle of corrections at one step of both ways, and below it all their steps."""
    sweeps = example_sweeps()
    first, _ = sweeps[SWEEP]
    chain = [(t, t + 1) for t in range(N_IMAGES)]
    title = f"A block of {N_IMAGES} images: deltas of which images correct which image\n"
    title += "(row t: corrections of image t; none above the diagonal, as images come in order)"
    figure = new_figure(title, 7.6)
    (left, right), (steps_left, steps_right) = figure.subplots(2, 2)
    draw_corrections(left, chain, first, "chain: one image at a time,\nall corrections are final")
    text = f"window of {IN_WINDOW}: some corrections\nare of the sweep before"
    draw_corrections(right, sweeps, SWEEP, text)
    draw_steps(steps_left, chain, f"chain: {len(chain)} steps, one after another")
    draw_steps(steps_right, sweeps, f"window: {len(sweeps)} sweeps, one after another")
    add_legend(figure, STYLES)
    return figure


def draw_corrections(axes: Axes, sweeps: Sweeps, step: int, title: str) -> None:
    """A cell (t, s) for each image s whose delta corrects image t, at a step."""
    first, end = sweeps[step]
    below = [(t, s) for t in range(N_IMAGES) for s in range(t)]
    known = [(t, s) for t, s in below if t < end and s < first]
    changing = [(t, s) for t, s in below if t < end and s >= first]
    draw_cells(axes, [(t, s) for t, s in below if t >= end], NOT_YET, "not begun")
    draw_cells(axes, known, KNOWN, "known")
    draw_cells(axes, changing, CHANGING, "changing")
    draw_lines(axes, 0, N_IMAGES, N_IMAGES)
    draw_box(axes, 0, first, max(end - 1, 1), end - first, WARP_STEP, "window")
    across = "image s, before it"
    set_scaled(axes, N_IMAGES, N_IMAGES, across, "image t, to be corrected", title)


def draw_steps(axes: Axes, sweeps: Sweeps, title: str) -> None:
    """A row for each step: the images that go forward and backward, and which are done by it."""
    ends = [first for first, _ in sweeps[1:]] + [N_IMAGES]
    rows = list(enumerate(zip(sweeps, ends, strict=True)))
    done = [(row, t) for row, ((first, _), end) in rows for t in range(first, end)]
    again = [(row, t) for row, ((_, last), end) in rows for t in range(end, last)]
    draw_box(axes, 0, 0, N_IMAGES, N_IMAGES, OUTLINE | {"edgecolor": "none"})
    draw_cells(axes, done, THREAD, "done")
    draw_cells(axes, again, STYLES["to be done again"], "again")
    draw_lines(axes, 0, N_IMAGES, len(sweeps))
    set_scaled(axes, N_IMAGES, N_IMAGES, "image of the block", "step", title)
