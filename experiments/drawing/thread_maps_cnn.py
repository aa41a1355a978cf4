"""How the kernels of convolutional nets map their threads to data, drawn (see `thread_maps`)."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cnn_gpu.kernels import blocks
from cnn_gpu.layers import Maps
from deepbig_runtime.gpu import WARP
from experiments.drawing.figures import ORANGE
from experiments.drawing.thread_cells_cnn import (
    CONNECTIONS,
    CONVOLUTION,
    POOLING,
    PROCESSING,
    Mapping,
    Pair,
    make_mappings,
    pairs,
)
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
    new_figure,
    set_bare,
)

THIN_STEP = WARP_STEP | {"linewidth": 0.8}  # around a cell
STYLES = {
    "one block": BLOCK,
    "what a thread computes": THREAD,
    "what it reads for that": READ,
    "one warp at one step": WARP_STEP,
    f"padding to {WARP}": PADDING,
}
BIAS = THREAD | {"facecolor": ORANGE}
WIDTHS, HEIGHT = (4, 1.6, 4), 4.6  # of the panels of a convolution; of its figures, inches
ROWS = CONVOLUTION.source.n * CONVOLUTION.source.height  # that a panel has place for


def draw_forward() -> Figure:
    """convolve_maps: a block a map, a thread a neuron, which reads a patch of each map it reads."""
    layer, mapping = CONVOLUTION, make_mappings()["convolve_maps"]
    block, thread = (0, 0), (5, 4)
    touched = mapping.touched(block, thread)
    figure = new_figure("convolve_maps: forward, FP (2011, section 3.2)", HEIGHT)
    states, kernels, result = figure.subplots(1, 3, width_ratios=WIDTHS)
    _draw_maps(states, layer.source, "states h", "a thread reads patches\nof connected maps")
    draw_cells(states, touched["h", "read"], READ, "read")
    draw_cells(states, mapping.step(block, thread, ("h", "read")), THIN_STEP, "step")
    _draw_kernels(kernels, "weights w:\nat each step all\nthreads read one")
    draw_cells(kernels, in_kernels(touched["w", "read"]), READ, "read")
    draw_cells(kernels, in_kernels(touched["w", "read"][:1]), THIN_STEP, "step")
    _draw_result(result, mapping, layer.maps, "states y", (block, thread, ("y", "write")))
    add_legend(figure, STYLES)
    return figure


def draw_pulling() -> Figure:
    """pull_deltas: a block a map of the layer before, a thread a neuron of it."""
    layer, mapping = CONVOLUTION, make_mappings()["pull_deltas"]
    block, thread = (0, 0), (13, 12)
    touched = mapping.touched(block, thread)
    figure = new_figure("pull_deltas: backward, BP (2011, section 3.3 and Figure 2)", HEIGHT)
    deltas, kernels, result = figure.subplots(1, 3, width_ratios=WIDTHS)
    _draw_maps(
        deltas, layer.maps, "deltas", "a thread pulls from the neurons\nthat read its own one"
    )
    draw_cells(deltas, touched["delta", "read"], READ, "read")
    _draw_kernels(kernels, "weights w:\na thread reads one\nfor each delta")
    draw_cells(kernels, in_kernels(touched["w", "read"]), READ, "read")
    of_thread = block, thread, ("delta_in", "write")
    _draw_result(result, mapping, layer.source, "deltas", of_thread)
    add_legend(figure, STYLES)
    return figure


def draw_adjusting() -> Figure:
    """adjust_weights: a block a connection, a thread a weight."""
    layer, mapping = CONVOLUTION, make_mappings()["adjust_weights"]
    block, thread = (1, 0), (3, 1)
    touched = mapping.touched(block, thread)
    figure = new_figure("adjust_weights: adjusting weights, AW (2011, section 3.4)", HEIGHT)
    deltas, states, result = figure.subplots(1, 3, width_ratios=(WIDTHS[0], WIDTHS[0], WIDTHS[1]))
    _draw_maps(deltas, layer.maps, "deltas", "a thread reads\nall of its map")
    draw_cells(deltas, touched["delta", "read"], READ, "read")
    _draw_maps(states, layer.source, "states h", "a thread reads those\nthat its weight multiplies")
    draw_cells(states, touched["h", "read"], READ, "read")
    (across, down), n_blocks = mapping.threads, mapping.launch.grid[0]
    _draw_kernels(
        result, f"weights w:\ngrid of {n_blocks} x 1 blocks\nof {across} x {down} threads"
    )
    for k in range(n_blocks):
        top = in_kernels([(k, 0)])[0][0]
        draw_box(result, layer.kernel[1], top, 1, down, IDLE)
        draw_box(result, 0, top, across, down, BLOCK if k == block[0] else OUTLINE, f"block {k}, 0")
        if mapping.touched((k, 0), (across - 1, 0)):
            draw_cells(result, [(top, across - 1)], BIAS, f"bias {k}")
    draw_cells(result, in_kernels(touched["w", "write"]), THREAD, "own")
    styles = STYLES | {"thread of a bias": BIAS, "idle threads": IDLE}
    add_legend(figure, {name: style for name, style in styles.items() if style is not WARP_STEP})
    return figure


@dataclass(frozen=True)
class Panel:
    """What is drawn of a kernel without weights, and the block and the thread.

    read, written: an argument, its maps, or None for rows of neurons, and its name. reads: what the
    thread does with the first.
    """

    read: tuple[str, Maps | None, str]
    written: tuple[str, Maps, str]
    reads: str
    block: Pair
    thread: Pair


PANELS = {
    "pool_maps": Panel(
        ("h", POOLING.source, "states h"),
        ("y", POOLING.maps, "states y"),
        "reads a rectangle",
        (1, 0),
        (7, 2),
    ),
    "unpool_deltas": Panel(
        ("winners", POOLING.maps, "deltas"),
        ("delta_in", POOLING.source, "deltas"),
        "asks whether it won",
        (0, 0),
        (15, 5),
    ),
    "process_maps": Panel(
        ("h", PROCESSING.source, "image h"),
        ("y", PROCESSING.maps, "states y"),
        "reads a patch",
        (1, 0),
        (9, 4),
    ),
    "rows_to_maps": Panel(
        ("rows", None, "rows"), ("maps", POOLING.source, "maps"), "reads one neuron", (1, 0), (9, 4)
    ),
}


def draw_others() -> Figure:
    """Max-pooling forward and back, image processing, and rows of neurons made maps."""
    figure = new_figure("Max-pooling, forward and back; image processing; rows and maps", 3.8)
    mappings, small = make_mappings(), POOLING.source
    highest = [maps.n * maps.height for maps in (small, PROCESSING.maps)]  # of a line of panels
    panels = figure.subplots(2, 4, height_ratios=highest).reshape(4, 2)
    places = zip(panels, np.repeat(highest, 2).tolist(), strict=True)
    for ((left, right), rows), (name, panel) in zip(places, PANELS.items(), strict=True):
        (read, maps, reads), (written, made, makes) = panel.read, panel.written
        if maps:
            _draw_maps(left, maps, reads, f"{name}: a thread\n{panel.reads}", rows)
        else:
            width = small.width * small.n
            draw_box(left, 0, 0, width, small.height, OUTLINE)
            title = f"rows: {width} neurons a line\nrows_to_maps reads,\nmaps_to_rows writes them"
            set_bare(left, (0, width), (0, small.height), title)
            left.set_aspect("equal", anchor="N")
        touched = mappings[name].touched(panel.block, panel.thread)
        draw_cells(left, touched[read, "read"], READ, "read")
        of_thread = panel.block, panel.thread, (written, "write")
        _draw_result(right, mappings[name], made, makes, of_thread, rows)
    add_legend(figure, STYLES)
    return figure


def in_kernels(cells: Collection[Pair]) -> list[Pair]:
    """From (connection, weight) to where it is drawn, (row, column): kernels below each other."""
    height, width = CONVOLUTION.kernel
    return [(k * (height + 2) + place // width, place % width) for k, place in cells]


def _draw_maps(axes: Axes, maps: Maps, name: str, text: str, rows: int = ROWS) -> None:
    """Maps below each other, with the padding of their rows."""
    padding = blocks.pitch(maps.width) - maps.width
    draw_box(axes, maps.width, 0, padding, maps.n * maps.height, PADDING)
    for m in range(maps.n):
        draw_box(axes, 0, m * maps.height, maps.width, maps.height, OUTLINE)
        add_text(axes, -1, (m + 0.5) * maps.height, f"map {m}", ha="right")
    title = f"{name}: {maps.n} map{'s' * (maps.n > 1)} of {maps.width} x {maps.height}\n{text}"
    set_bare(axes, (-8, maps.width + padding), (0, rows), title)
    axes.set_aspect("equal", anchor="N")


def _draw_kernels(axes: Axes, title: str) -> None:
    """The kernels of all connections, below each other."""
    (height, width), tops = CONVOLUTION.kernel, []
    for k, (m, i) in enumerate(pairs(CONNECTIONS)):
        ((top, _),) = in_kernels([(k, 0)])
        draw_box(axes, 0, top, width, height, OUTLINE)
        add_text(axes, -0.5, top + height / 2, f"map {i}\nto {m}", ha="right")
        tops.append(top)
    set_bare(axes, (-5, width + 1.5), (0, tops[-1] + height), title)
    axes.set_aspect("equal", anchor="N")


def _draw_result(
    axes: Axes,
    mapping: Mapping,
    maps: Maps,
    name: str,
    of_thread: tuple[Pair, Pair, tuple[str, str]],
    rows: int = ROWS,
) -> None:
    """What a launch computes: its blocks, one of them outlined, a thread of it and its warp.

    of_thread: block, thread, and which argument it writes.
    """
    block, thread, key = of_thread
    (across, down), grid = mapping.threads, mapping.launch.grid
    text = f"grid of {grid[0]} x {grid[1]} blocks\nof {across} x {down} threads"
    _draw_maps(axes, maps, name, text, rows)
    for m, part in np.ndindex(grid[:2]):
        style = BLOCK if (m, part) == block else OUTLINE
        top = m * maps.height + part * down
        draw_box(axes, 0, top, across, down, style, f"block {m}, {part}")
    draw_cells(axes, mapping.step(block, thread, key), THIN_STEP, "step")
    draw_cells(axes, mapping.touched(block, thread)[key], THREAD, "own")
