"""How the kernels of convolutional nets map their threads to data, drawn (see `thread_maps`)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cnn_gpu.layers import Maps
from deepbig_runtime.gpu import WARP
from experiments.drawing.figures import ORANGE
from experiments.drawing.launches import CONNECTIONS, CONVOLUTION, POOLING, PROCESSING
from experiments.drawing.thread_drawing import (
    BLOCK,
    IDLE,
    OUTLINE,
    PADDING,
    READ,
    THREAD,
    WARP_STEP,
    add_legend,
    add_text,
    draw_box,
    draw_cells,
    facts,
    new_figure,
    set_bare,
)
from experiments.drawing.traces import Pair, cells_of, read_traces

THIN_STEP = WARP_STEP | {"linewidth": 0.8}  # around a cell
STYLES = {
    "one block": BLOCK,
    "cells that a thread computes": THREAD,
    "cells that it reads for them": READ,
    "one warp at one step": WARP_STEP,
    f"padding to {WARP}": PADDING,
}
BIAS = THREAD | {"facecolor": ORANGE}
# Which map reads which, by the number of the connection.
PAIRS = [(m, i) for m, i in np.ndindex(CONNECTIONS.T.shape) if CONNECTIONS[i, m]]


@dataclass(frozen=True)
class Panel:
    """An array as a thread reads it, or as all blocks write it.

    maps: that the array has; None: it has the kernels of all connections, or rows of neurons.
    title: below the array's name and the size of the maps.
    """

    array: str
    maps: Maps | None
    name: str
    title: str = "{grid}\nof {threads}"


SOURCE, MAPS = CONVOLUTION.source, CONVOLUTION.maps
# Panels from left to right, by their kernel. Kernels of convolutions have a figure each.
CONVOLUTIONS = {
    "convolve_maps": (
        "forward, FP (2011, section 3.2)",
        Panel("h read", SOURCE, "states h", "a thread reads patches\nof connected maps"),
        Panel("w read", None, "weights w", "at each step all\nthreads read one"),
        Panel("y write", MAPS, "states y"),
    ),
    "pull_deltas": (
        "backward, BP (2011, section 3.3 and Figure 2)",
        Panel(
            "delta read", MAPS, "deltas", "a thread pulls from the neurons\nthat read its own one"
        ),
        Panel("w read", None, "weights w", "a thread reads one\nfor each delta"),
        Panel("delta_in write", SOURCE, "deltas"),
    ),
    "adjust_weights": (
        "adjusting weights, AW (2011, section 3.4)",
        Panel("delta read", MAPS, "deltas", "a thread reads\nall of its map"),
        Panel("h read", SOURCE, "states h", "a thread reads those\nthat its weight multiplies"),
        Panel("w write", None, "weights w"),
    ),
}
OTHERS = {
    "pool_maps": (
        Panel("h read", POOLING.source, "states h", "pool_maps: a thread\nreads a rectangle"),
        Panel("y write", POOLING.maps, "states y"),
    ),
    "unpool_deltas": (
        Panel(
            "winners read", POOLING.maps, "deltas", "unpool_deltas: a thread\nasks whether it won"
        ),
        Panel("delta_in write", POOLING.source, "deltas"),
    ),
    "process_maps": (
        Panel("h read", PROCESSING.source, "image h", "process_maps: a thread\nreads a patch"),
        Panel("y write", PROCESSING.maps, "states y"),
    ),
    "rows_to_maps": (
        Panel("rows read", None, "rows", "rows_to_maps reads,\nmaps_to_rows writes them"),
        Panel("maps write", POOLING.source, "maps"),
    ),
}


def draw_convolution(kernel: str) -> Figure:
    """A kernel of CONVOLUTIONS: the cells that a thread reads, and those that blocks write."""
    title, *panels = CONVOLUTIONS[kernel]
    figure = new_figure(f"{kernel}: {title}", 4.6)
    widths = [4 if panel.maps else 1.6 for panel in panels]
    for axes, panel in zip(figure.subplots(1, 3, width_ratios=widths), panels, strict=True):
        draw = _draw_maps if panel.maps else _draw_kernels
        draw(axes, kernel, panel, SOURCE.n * SOURCE.height)
    if kernel == "adjust_weights":
        of_threads = {"thread of a bias": BIAS, "idle threads": IDLE}
        styles = {name: style for name, style in STYLES.items() if style is not WARP_STEP}
        add_legend(figure, styles | of_threads)
    else:
        add_legend(figure, STYLES)
    return figure


def draw_others() -> Figure:
    """Max-pooling forward and back, image processing, and rows of neurons made maps."""
    figure = new_figure("Max-pooling, forward and back; image processing; rows and maps", 3.8)
    highest = [maps.n * maps.height for maps in (POOLING.source, PROCESSING.maps)]
    places = figure.subplots(2, 4, height_ratios=highest).reshape(4, 2)
    for both, rows, (kernel, panels) in zip(
        places, np.repeat(highest, 2).tolist(), OTHERS.items(), strict=True
    ):
        for axes, panel in zip(both, panels, strict=True):
            (_draw_maps if panel.maps else _draw_rows)(axes, kernel, panel, rows)
    add_legend(figure, STYLES)
    return figure


def _draw_maps(axes: Axes, kernel: str, panel: Panel, rows: int) -> None:
    """Maps below each other, with the padding of their rows. rows: that there is place for."""
    name, maps = f"{kernel} {panel.array}", panel.maps
    assert maps
    trace = read_traces()[name]
    (_, pitch), height, width = trace.shape, maps.height, maps.width
    draw_box(axes, width, 0, pitch - width, maps.n * height, PADDING)
    for m in range(maps.n):
        draw_box(axes, 0, m * height, width, height, OUTLINE)
        add_text(axes, -1, (m + 0.5) * height, f"map {m}", ha="right")
    written = panel.array.endswith("write")
    if written:
        across, down = trace.threads
        for block in np.ndindex(trace.grid):
            style, top = BLOCK if block == trace.block else OUTLINE, block[0] * height
            draw_box(
                axes, 0, top + block[1] * down, across, down, style, "block {}, {}".format(*block)
            )
    draw_cells(axes, cells_of(trace.step), THIN_STEP, "step")
    draw_cells(axes, cells_of(trace.own), THREAD if written else READ, "own")
    title = f"{panel.name}: {maps.n} map{'s' * (maps.n > 1)} of {width} x {height}\n"
    set_bare(axes, (-8, pitch), (0, rows), title + panel.title.format(**facts(name)))
    axes.set_aspect("equal", anchor="N")


def in_kernels(cells: list[Pair]) -> list[Pair]:
    """From (connection, weight) to where it is drawn, (row, column): kernels below each other."""
    height, width = CONVOLUTION.kernel
    return [(k * (height + 2) + place // width, place % width) for k, place in cells]


def _draw_kernels(axes: Axes, kernel: str, panel: Panel, rows: int) -> None:
    """The kernels of all connections, below each other."""
    name, written = f"{kernel} {panel.array}", panel.array.endswith("write")
    trace, (height, width) = read_traces()[name], CONVOLUTION.kernel
    (across, down), tops = trace.threads, [in_kernels([(k, 0)])[0][0] for k in range(len(PAIRS))]
    for k, (top, (m, i)) in enumerate(zip(tops, PAIRS, strict=True)):
        draw_box(axes, 0, top, width, height, OUTLINE)
        add_text(axes, -0.5, top + height / 2, f"map {i}\nto {m}", ha="right")
        if written:
            draw_box(axes, width, top, across - width, down, IDLE)
            style = BLOCK if (k, 0) == trace.block else OUTLINE
            draw_box(axes, 0, top, across, down, style, f"block {k}, 0")
            if m not in [other for other, _ in PAIRS[:k]]:  # a map's first connection
                draw_cells(axes, [(top, width)], BIAS, f"bias {k}")
    draw_cells(axes, in_kernels(cells_of(trace.own)), THREAD if written else READ, "own")
    draw_cells(axes, in_kernels(cells_of(trace.step)), THIN_STEP, "step")
    title = f"{panel.name}:\n{panel.title.format(**facts(name))}"
    set_bare(axes, (-5, width + 1.5), (0, tops[-1] + height), title)
    axes.set_aspect("equal", anchor="N")


def _draw_rows(axes: Axes, kernel: str, panel: Panel, rows: int) -> None:
    """Rows of neurons, which are drawn with a line for each line of the maps."""
    trace = read_traces()[f"{kernel} {panel.array}"]
    height, width = trace.shape
    draw_box(axes, 0, 0, width, height, OUTLINE)
    draw_cells(axes, cells_of(trace.own), READ, "own")
    title = f"{panel.name}: {width} neurons a line\n{panel.title}"
    set_bare(axes, (0, width), (0, height), title)
    axes.set_aspect("equal", anchor="N")


DRAWINGS: dict[str, Callable[[], Figure]] = {
    **{f"threads_{kernel}": partial(draw_convolution, kernel) for kernel in CONVOLUTIONS},
    "threads_maps": draw_others,
}
