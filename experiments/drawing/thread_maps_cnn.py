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
from experiments.drawing.traces import Pair, Trace, cells_of, read_traces
from experiments.training.formatting import plural

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

    array: in the name of the trace. title: with `facts`, and the size of the maps, in braces. maps:
    of which the array consists; None: it has a row for each kernel, or for each line of neurons.
    """

    array: str
    title: str
    maps: Maps | None = None


SOURCE, MAPS = CONVOLUTION.source, CONVOLUTION.maps
WRITTEN = "{grid}\nof {threads}"
# Panels from left to right, by their kernel. Kernels of convolutions have a figure each.
CONVOLUTIONS = {
    "convolve_maps": (
        "forward, FP (2011, section 3.2)",
        Panel("h read", "states h: {maps}\na thread reads patches\nof connected maps", SOURCE),
        Panel("w read", "weights w:\nat each step all\nthreads read one"),
        Panel("y write", f"states y: {{maps}}\n{WRITTEN}", MAPS),
    ),
    "pull_deltas": (
        "backward, BP (2011, section 3.3 and Figure 2)",
        Panel(
            "delta read",
            "deltas: {maps}\na thread pulls from the neurons\nthat read its own one",
            MAPS,
        ),
        Panel("w read", "weights w:\na thread reads one\nfor each delta"),
        Panel("delta_in write", f"deltas: {{maps}}\n{WRITTEN}", SOURCE),
    ),
    "adjust_weights": (
        "adjusting weights, AW (2011, section 3.4)",
        Panel("delta read", "deltas: {maps}\na thread reads\nall of its map", MAPS),
        Panel(
            "h read", "states h: {maps}\na thread reads those\nthat its weight multiplies", SOURCE
        ),
        Panel("w write", f"weights w:\n{WRITTEN}"),
    ),
}
A_THREAD = "{maps}\n{kernel}: a thread\n"
OTHERS = {
    "pool_maps": (
        Panel("h read", f"states h: {A_THREAD}reads a rectangle", POOLING.source),
        Panel("y write", f"states y: {{maps}}\n{WRITTEN}", POOLING.maps),
    ),
    "unpool_deltas": (
        Panel("winners read", f"deltas: {A_THREAD}asks whether it won", POOLING.maps),
        Panel("delta_in write", f"deltas: {{maps}}\n{WRITTEN}", POOLING.source),
    ),
    "process_maps": (
        Panel("h read", f"image h: {A_THREAD}reads a patch", PROCESSING.source),
        Panel("y write", f"states y: {{maps}}\n{WRITTEN}", PROCESSING.maps),
    ),
    "rows_to_maps": (
        Panel(
            "rows read", "rows: {width} neurons a line\n{kernel} reads,\nmaps_to_rows writes them"
        ),
        Panel("maps write", f"maps: {{maps}}\n{WRITTEN}", POOLING.source),
    ),
}


def draw_convolution(kernel: str) -> Figure:
    """A kernel of CONVOLUTIONS: the cells that a thread reads, and those that blocks write."""
    title, *panels = CONVOLUTIONS[kernel]
    figure = new_figure(f"{kernel}: {title}", 4.6)
    widths = [4 if panel.maps else 1.6 for panel in panels]
    for axes, panel in zip(figure.subplots(1, 3, width_ratios=widths), panels, strict=True):
        _draw_panel(axes, kernel, panel, SOURCE.n * SOURCE.height)
    styles = STYLES
    if kernel == "adjust_weights":
        styles = {name: style for name, style in STYLES.items() if style is not WARP_STEP}
        styles |= {"thread of a bias": BIAS, "idle threads": IDLE}
    add_legend(figure, styles)
    return figure


def draw_others() -> Figure:
    """Max-pooling forward and back, image processing, and rows of neurons made maps."""
    figure = new_figure("Max-pooling, forward and back; image processing; rows and maps", 3.8)
    lines = [maps.n * maps.height for maps in (POOLING.source, PROCESSING.maps)]
    axes = iter(figure.subplots(2, 4, height_ratios=lines).flat)
    for place, (kernel, panels) in enumerate(OTHERS.items()):
        for panel in panels:
            _draw_panel(next(axes), kernel, panel, lines[place // 2])
    add_legend(figure, STYLES)
    return figure


def _draw_panel(axes: Axes, kernel: str, panel: Panel, lines: int) -> None:
    """An array of a kernel. lines: of maps, for which there is space."""
    name, maps = f"{kernel} {panel.array}", panel.maps
    trace, written = read_traces()[name], name.endswith("write")
    own, step, (height, width) = cells_of(trace.own), cells_of(trace.step), trace.shape
    ends: list[float] = [0, width, height]  # of the axes: left, right and bottom
    if maps:
        _draw_maps(axes, trace, maps, written)
        ends = [-8, width, lines]
    elif panel.array.startswith("w "):
        _draw_kernels(axes, trace, written)
        own, step = in_kernels(own), in_kernels(step)
        ends = [-5, CONVOLUTION.kernel[1] + 1.5, in_kernels([(len(PAIRS), 0)])[0][0] - 2]
    else:
        draw_box(axes, 0, 0, width, height, OUTLINE)
    draw_cells(axes, own, THREAD if written else READ, "own")
    draw_cells(axes, step, THIN_STEP, "step")
    size = f"{plural(maps.n, 'map')} of {maps.width} x {maps.height}" if maps else ""
    title = panel.title.format(maps=size, width=trace.shape[1], **facts(name))
    set_bare(axes, (ends[0], ends[1]), (0, ends[2]), title)
    axes.set_aspect("equal", anchor="N")


def _draw_maps(axes: Axes, trace: Trace, maps: Maps, written: bool) -> None:
    """Maps below each other, with the padding of their rows, and the blocks that write them."""
    height, width = maps.height, maps.width
    draw_box(axes, width, 0, trace.shape[1] - width, maps.n * height, PADDING)
    for m in range(maps.n):
        draw_box(axes, 0, m * height, width, height, OUTLINE)
        add_text(axes, -1, (m + 0.5) * height, f"map {m}", ha="right")
    for m, part in np.ndindex(trace.grid) if written else ():
        style = BLOCK if (m, part) == trace.block else OUTLINE
        top = m * height + part * trace.threads[1]
        draw_box(axes, 0, top, *trace.threads, style, f"block {m}, {part}")


def in_kernels(cells: list[Pair]) -> list[Pair]:
    """From (connection, weight) to where it is drawn, (row, column): kernels below each other."""
    height, width = CONVOLUTION.kernel
    return [(k * (height + 2) + place // width, place % width) for k, place in cells]


def _draw_kernels(axes: Axes, trace: Trace, written: bool) -> None:
    """The kernels of all connections, below each other, and the blocks that write them."""
    (height, width), (across, down) = CONVOLUTION.kernel, trace.threads
    for k, (m, i) in enumerate(PAIRS):
        ((top, _),) = in_kernels([(k, 0)])
        draw_box(axes, 0, top, width, height, OUTLINE)
        add_text(axes, -0.5, top + height / 2, f"map {i}\nto {m}", ha="right")
        if written:
            draw_box(axes, width, top, across - width, down, IDLE)
            style = BLOCK if (k, 0) == trace.block else OUTLINE
            draw_box(axes, 0, top, across, down, style, f"block {k}, 0")
            if m not in [other for other, _ in PAIRS[:k]]:  # a map's first connection
                draw_cells(axes, [(top, width)], BIAS, f"bias {k}")


DRAWINGS: dict[str, Callable[[], Figure]] = {
    **{f"threads_{kernel}": partial(draw_convolution, kernel) for kernel in CONVOLUTIONS},
    "threads_maps": draw_others,
}
