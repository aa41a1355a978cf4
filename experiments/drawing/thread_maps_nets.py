"""How threads of convolutional nets and of the ladder map to data (see `thread_maps`).

And the launches of the ladder's rungs in time.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from cnn_gpu.layers import Maps
from cuda_on_cpu.access_stats import BANKS, SECTOR, words_per_bank
from deepbig_runtime.gpu import WARP
from experiments.drawing.figures import BLUE, GREEN, ORANGE, SKY, SMALL_SIZE, VERMILION
from experiments.drawing.launches import CONNECTIONS, CONVOLUTION, HIDDEN, POOLING, PROCESSING
from experiments.drawing.thread_drawing import (
    BLOCK,
    IDLE,
    OUTLINE,
    PADDING,
    READ,
    SHARED,
    THREAD,
    WARP_STEP,
    add_legend,
    add_text,
    facts,
    new_figure,
    plot_box,
    plot_cells,
    plot_lines,
    set_bare,
    set_scaled,
)
from experiments.drawing.traces import Pair, Trace, cells_of, read_traces
from experiments.training.formatting import plural
from mlp_gpu.ladder import rung2_tiled as tiled
from mlp_gpu.ladder import rung6_graph as graph
from mlp_gpu.ladder import rung7_one_kernel as one_kernel
from mlp_gpu.ladder.net import N_INPUTS, N_OUTPUTS, SIDE

# --- convolutional nets

THIN_STEP = WARP_STEP | {"linewidth": 0.8}  # around a cell
MAP_STYLES = {
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
class MapPanel:
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
        MapPanel("h read", "states h: {maps}\na thread reads patches\nof connected maps", SOURCE),
        MapPanel("w read", "weights w:\nat each step all\nthreads read one"),
        MapPanel("y write", f"states y: {{maps}}\n{WRITTEN}", MAPS),
    ),
    "pull_deltas": (
        "backward, BP (2011, section 3.3 and Figure 2)",
        MapPanel(
            "delta read",
            "deltas: {maps}\na thread pulls from the neurons\nthat read its own one",
            MAPS,
        ),
        MapPanel("w read", "weights w:\na thread reads one\nfor each delta"),
        MapPanel("delta_in write", f"deltas: {{maps}}\n{WRITTEN}", SOURCE),
    ),
    "adjust_weights": (
        "adjusting weights, AW (2011, section 3.4)",
        MapPanel("delta read", "deltas: {maps}\na thread reads\nall of its map", MAPS),
        MapPanel(
            "h read", "states h: {maps}\na thread reads those\nthat its weight multiplies", SOURCE
        ),
        MapPanel("w write", f"weights w:\n{WRITTEN}"),
    ),
}
A_THREAD = "{maps}\n{kernel}: a thread\n"
OTHERS = {
    "pool_maps": (
        MapPanel("h read", f"states h: {A_THREAD}reads a rectangle", POOLING.source),
        MapPanel("y write", f"states y: {{maps}}\n{WRITTEN}", POOLING.maps),
    ),
    "unpool_deltas": (
        MapPanel("winners read", f"deltas: {A_THREAD}asks whether it won", POOLING.maps),
        MapPanel("delta_in write", f"deltas: {{maps}}\n{WRITTEN}", POOLING.source),
    ),
    "process_maps": (
        MapPanel("h read", f"image h: {A_THREAD}reads a patch", PROCESSING.source),
        MapPanel("y write", f"states y: {{maps}}\n{WRITTEN}", PROCESSING.maps),
    ),
    "rows_to_maps": (
        MapPanel(
            "rows read", "rows: {width} neurons a line\n{kernel} reads,\nmaps_to_rows writes them"
        ),
        MapPanel("maps write", f"maps: {{maps}}\n{WRITTEN}", POOLING.source),
    ),
}


def plot_convolution(kernel: str) -> Figure:
    """A kernel of CONVOLUTIONS: the cells that a thread reads, and those that blocks write."""
    title, *panels = CONVOLUTIONS[kernel]
    figure = new_figure(f"{kernel}: {title}", 4.6)
    widths = [4 if panel.maps else 1.6 for panel in panels]
    for axes, panel in zip(figure.subplots(1, 3, width_ratios=widths), panels, strict=True):
        _plot_panel(axes, kernel, panel, SOURCE.n * SOURCE.height)
    styles = MAP_STYLES
    if kernel == "adjust_weights":
        styles = {name: style for name, style in MAP_STYLES.items() if style is not WARP_STEP}
        styles |= {"thread of a bias": BIAS, "idle threads": IDLE}
    add_legend(figure, styles)
    return figure


def plot_others() -> Figure:
    """Max-pooling forward and back, image processing, and rows of neurons made maps."""
    figure = new_figure("Max-pooling, forward and back; image processing; rows and maps", 3.8)
    lines = [maps.n * maps.height for maps in (POOLING.source, PROCESSING.maps)]
    axes = iter(figure.subplots(2, 4, height_ratios=lines).flat)
    for place, (kernel, panels) in enumerate(OTHERS.items()):
        for panel in panels:
            _plot_panel(next(axes), kernel, panel, lines[place // 2])
    add_legend(figure, MAP_STYLES)
    return figure


def _plot_panel(axes: Axes, kernel: str, panel: MapPanel, lines: int) -> None:
    """An array of a kernel. lines: of maps, for which there is space."""
    name, maps = f"{kernel} {panel.array}", panel.maps
    trace, written = read_traces()[name], name.endswith("write")
    own, step, (height, width) = cells_of(trace.own), cells_of(trace.step), trace.shape
    ends: list[float] = [0, width, height]  # of the axes: left, right and bottom
    if maps:
        _plot_maps(axes, trace, maps, written)
        ends = [-8, width, lines]
    elif panel.array.startswith("w "):
        _plot_kernels(axes, trace, written)
        own, step = in_kernels(own), in_kernels(step)
        ends = [-5, CONVOLUTION.kernel[1] + 1.5, in_kernels([(len(PAIRS), 0)])[0][0] - 2]
    else:
        plot_box(axes, 0, 0, width, height, OUTLINE)
    plot_cells(axes, own, THREAD if written else READ)
    plot_cells(axes, step, THIN_STEP)
    size = f"{plural(maps.n, 'map')} of {maps.width} x {maps.height}" if maps else ""
    title = panel.title.format(maps=size, width=trace.shape[1], **facts(name))
    set_bare(axes, (ends[0], ends[1]), (0, ends[2]), title)
    axes.set_aspect("equal", anchor="N")


def _plot_maps(axes: Axes, trace: Trace, maps: Maps, written: bool) -> None:
    """Maps below each other, with the padding of their rows, and the blocks that write them."""
    height, width = maps.height, maps.width
    plot_box(axes, width, 0, trace.shape[1] - width, maps.n * height, PADDING)
    for m in range(maps.n):
        plot_box(axes, 0, m * height, width, height, OUTLINE)
        add_text(axes, -1, (m + 0.5) * height, f"map {m}", ha="right")
    for m, part in np.ndindex(trace.grid) if written else ():
        style = BLOCK if (m, part) == trace.block else OUTLINE
        top = m * height + part * trace.threads[1]
        plot_box(axes, 0, top, *trace.threads, style)


def in_kernels(cells: list[Pair]) -> list[Pair]:
    """From (connection, weight) to where it is drawn, (row, column): kernels below each other."""
    height, width = CONVOLUTION.kernel
    return [(k * (height + 2) + place // width, place % width) for k, place in cells]


def _plot_kernels(axes: Axes, trace: Trace, written: bool) -> None:
    """The kernels of all connections, below each other, and the blocks that write them."""
    (height, width), (across, down) = CONVOLUTION.kernel, trace.threads
    for k, (m, i) in enumerate(PAIRS):
        ((top, _),) = in_kernels([(k, 0)])
        plot_box(axes, 0, top, width, height, OUTLINE)
        add_text(axes, -0.5, top + height / 2, f"map {i}\nto {m}", ha="right")
        if written:
            plot_box(axes, width, top, across - width, down, IDLE)
            style = BLOCK if (k, 0) == trace.block else OUTLINE
            plot_box(axes, 0, top, across, down, style)
            if m not in [other for other, _ in PAIRS[:k]]:  # a map's first connection
                plot_cells(axes, [(top, width)], BIAS)


# --- the ladder

STEP_CELLS = WARP_STEP | {"linewidth": 0.9}
STYLES = {
    "cells of one thread": THREAD,
    "one warp at one step": STEP_CELLS,
    "sectors of 32 bytes that this step transfers": READ,
}
BLOCK_STYLE = {"one block": BLOCK | {"linewidth": 1.6}}

# Labels of the axes, by the number of rows or columns.
LABELS = {N_INPUTS: "input", HIDDEN: "hidden neuron", N_OUTPUTS: "output neuron"}
TITLES = {
    "naive": "Rung 1, naive: neighbouring threads read rows apart",
    "coalesced": "Rung 3, coalesced: the weights transposed, so that neighbours read side by side",
}


def plot_rung(rung: str) -> Figure:
    """The four kernels of a rung on their matrices."""
    figure = new_figure(f"{TITLES[rung]}\n784-{HIDDEN}-10", 7)
    names = [name for name in read_traces() if f"_{rung} " in name]
    for axes, name in zip(figure.subplots(2, 2).flat, names, strict=True):
        plot_corner(axes, name)
    add_legend(figure, STYLES | BLOCK_STYLE)
    return figure


def plot_corner(axes: Axes, name: str) -> None:
    """The corner of a matrix: cells of a thread and of a warp, its sectors, the first block.

    name: of the trace.
    """
    trace = read_traces()[name]
    (_, _, rows, columns), step = trace.reached, cells_of(trace.step)
    plot_lines(axes, 0, columns, rows)
    transferred = sectors(step, trace.shape[1])
    for cells in transferred:
        for row in sorted({row for row, _ in cells}):
            places = [column for one, column in cells if one == row]
            plot_box(axes, places[0], row, len(places), 1, READ)
    plot_cells(axes, cells_of(trace.own), THREAD)
    plot_cells(axes, step, STEP_CELLS)
    n_blocks = trace.grid[0]
    if n_blocks > 1:
        lines = border_of(cells_of(trace.of_block), trace)
        border = LineCollection(lines, colors=VERMILION, linewidths=2, zorder=3)
        axes.add_collection(border)
    kernel, array, kind = name.split()
    title = f"{kernel}, {plural(n_blocks, 'block')} of {trace.threads[0]} threads:\n"
    title += f"{len(step)} threads {kind} {len(step)} numbers of {array}\n"
    title += f"in {len(transferred)} sectors"
    row_label, column_label = (LABELS[n] for n in trace.shape)
    set_scaled(axes, columns, rows, column_label, row_label, title)


def sectors(cells: list[Pair], columns: int) -> list[list[Pair]]:
    """The sectors of 32 bytes that hold some cells of a float32 matrix, each as its cells."""
    floats = SECTOR // 4
    numbers = {(row * columns + column) // floats for row, column in cells}
    return [[divmod(floats * n + i, columns) for i in range(floats)] for n in sorted(numbers)]


def border_of(cells: list[Pair], trace: Trace) -> list[tuple[Pair, Pair]]:
    """The sides, from x, y to x, y, of one cell alone; none where only the drawing ends."""
    sides = Counter(
        side
        for y, x in cells
        for side in (
            ((x, y), (x + 1, y)),
            ((x, y + 1), (x + 1, y + 1)),
            ((x, y), (x, y + 1)),
            ((x + 1, y), (x + 1, y + 1)),
        )
    )
    (_, _, bottom, right), (rows, columns) = trace.reached, trace.shape
    return [
        ((x, y), end)
        for ((x, y), end), times in sides.items()
        if times == 1 and not (x == end[0] == right < columns or y == end[1] == bottom < rows)
    ]


def plot_tiled() -> Figure:
    """forward_tiled: how a block fills a tile, and reads it from shared memory."""
    (thread, _) = read_traces()["forward_tiled W1 read"].thread
    title = "Rung 2, tiled: all threads load 8 inputs of all neurons, then each sums its row"
    figure = new_figure(title, 5.2)
    whole, *shared = figure.subplots(1, 3, width_ratios=(2.2, 1, 1))
    plot_corner(whole, "forward_tiled W1 read")
    plot_box(whole, 0, 0, tiled.TILE, WARP, BLOCK)
    step = 3
    for axes, stride in zip(shared, (tiled.ROW, tiled.TILE), strict=True):
        words = np.arange(WARP) * stride + step
        plot_box(axes, 0, 0, tiled.TILE, WARP, SHARED)
        plot_lines(axes, 0, tiled.TILE, WARP)
        plot_box(axes, tiled.TILE, 0, stride - tiled.TILE, WARP, PADDING)
        plot_cells(axes, [(thread, i) for i in range(tiled.TILE)], THREAD)
        plot_cells(axes, [(row, step) for row in range(WARP)], STEP_CELLS)
        for row, bank in enumerate(words % BANKS):
            axes.text(tiled.ROW + 0.3, row + 0.5, f"{bank}", va="center", fontsize=SMALL_SIZE)
        turns = plural(words_per_bank(words.tolist()), "turn")
        title = f"in shared memory:\nrows of {stride} words,\n{turns} a step"
        add_text(axes, tiled.ROW + 1, -0.7, "bank")
        set_bare(axes, (0, tiled.ROW + 3), (-1, WARP), title)
    add_legend(figure, STYLES | {"the tile": BLOCK, "in shared memory": SHARED, "unused": PADDING})
    return figure


def plot_shared() -> Figure:
    """Rung 4: shared memory holds the numbers that all threads read; rates are constants."""
    title = (
        "Rung 4, shared: numbers that all threads read are loaded once; the others stay in memory"
    )
    title += "\n(update_outputs_shared: as rung 3, with the constants eta and momentum)"
    figure = new_figure(title, 7)
    image, *others = figure.subplots(2, 2).flat
    loaded = read_traces()["forward_shared images read"]
    step = cells_of(loaded.step)
    plot_box(image, 0, 0, SIDE, SIDE, SHARED)
    plot_lines(image, 0, SIDE, SIDE)
    plot_cells(image, cells_of(loaded.own), THREAD)
    plot_cells(image, step, STEP_CELLS)
    title = f"forward_shared loads the image:\n{len(step)} threads read {len(step)} pixels in "
    title += f"{len(sectors(step, SIDE))} sectors;\nlater all threads read one word at each step"
    set_scaled(image, SIDE, SIDE, "column of pixels", "row of pixels", title)
    names = [name for name in read_traces() if "_shared " in name]
    for axes, name in zip(others, names[1:], strict=True):
        plot_corner(axes, name)
    _, deltas, updates = others
    plot_cells(deltas, [(-3, k) for k in range(N_OUTPUTS)], SHARED)
    add_text(deltas, N_OUTPUTS / 2, -4.5, "delta2, read by all threads")
    deltas.set_ylim(32.5, -6)
    for left, name in ((6, "eta"), (20, "momentum")):
        plot_box(updates, left, -3, 6, 1, SHARED)
        add_text(updates, left + 3, -4.5, name)
    updates.set_ylim(32.5, -6)
    add_legend(figure, STYLES | BLOCK_STYLE | {"in shared memory, or constant": SHARED})
    return figure


WORKING = OUTLINE | {"facecolor": GREEN}
# The phases of train_chunk for an image, and the number of threads that work in each. A barrier
# ends each but the last, for which the next image does not wait.
PHASES = {
    "W1: update for the previous image, products with this one": 4 * HIDDEN,
    "sums and states of layer 1": HIDDEN,
    "W2: products, 32 threads a class": N_OUTPUTS * one_kernel.LANES,
    "states and deltas of layer 2": N_OUTPUTS,
    "deltas of layer 1": HIDDEN,
    "W2: update": 4 * HIDDEN,
}


def plot_chunk() -> Figure:
    """Rung 7: which weights a thread has in registers, and who works when."""
    name = "train_chunk W1 read"
    threads, columns = read_traces()[name].threads[0], read_traces()[name].reached[3]
    figure = new_figure("Rung 7, one kernel: one block trains a chunk of images by itself", 4.8)
    weights, phases = figure.subplots(1, 2, width_ratios=(1, 1.25))
    kept = one_kernel.KEPT * threads // HIDDEN  # rows
    plot_box(weights, 0, 0, columns, kept, SHARED)
    plot_corner(weights, name)
    for row, (text, working) in enumerate(PHASES.items()):
        plot_box(phases, 0, row + 0.45, working, 0.45, WORKING)
        plot_box(phases, working, row + 0.45, threads - working, 0.45, IDLE)
        add_text(phases, 0, row + 0.22, text, ha="left")
        if row < len(PHASES) - 1:
            phases.axhline(row + 0.97, color="black", linewidth=1.5)
    title = f"phases of an image, barriers between:\nhow many of {threads} threads work"
    set_scaled(phases, threads, len(PHASES), "thread", "", title)
    phases.set_yticks([])
    styles = {"in registers from first to last image": SHARED, "threads that work": WORKING}
    add_legend(figure, STYLES | styles | {"idle threads": IDLE})
    return figure


# --- launches in time, on paper

FORWARD, DELTAS, OUTPUTS, HIDDENS = "forward", "deltas", "update of layer 2", "update of layer 1"
COLOURS = {
    task: OUTLINE | {"facecolor": colour}
    for task, colour in ((FORWARD, BLUE), (DELTAS, ORANGE), (OUTPUTS, GREEN), (HIDDENS, SKY))
}
OF_HOST = OUTLINE | {"facecolor": "0.8", "hatch": "xxx"}
WAIT, GRAPH = "event recorded and waited for", "launch of the graph"
LAUNCH_TIME, WAIT_TIME, WORK_TIME, GAP = 1.0, 0.8, 0.3, 0.1  # nothing that was measured
N_DRAWN = 3  # images

# The calls of the host for one image: a kernel on a stream, or (WAIT, stream, stream waited for).
ONE_STREAM = [(FORWARD, 1), (DELTAS, 1), (OUTPUTS, 1), (HIDDENS, 1)]
TWO_STREAMS = [(FORWARD, 1), (DELTAS, 1), (WAIT, 2, 1), (OUTPUTS, 2), (HIDDENS, 1), (WAIT, 1, 2)]


@dataclass(frozen=True)
class Box:
    """Something that takes time: of the host, row 0, or of a stream, row 1 or 2."""

    task: str
    row: int
    start: float
    end: float


def timeline(calls: list[tuple], captured: bool = False) -> list[Box]:
    """When the host and the streams do their tasks, if a kernel takes less time than its launch.

    captured: whether the calls are in a graph, which the host launches once.
    """
    boxes, host = [], 0.0
    free = {1: 0.0, 2: 0.0}  # from when a stream is
    if captured:
        host = LAUNCH_TIME
        boxes.append(Box(GRAPH, 0, 0, host))
    for task, stream, *other in calls:
        if not captured:
            took = WAIT_TIME if other else LAUNCH_TIME
            boxes.append(Box(task, 0, host, host + took))
            host += took
        if other:
            free[stream] = max(free[stream], free[other[0]])
        else:
            start = max(host, free[stream]) + GAP
            free[stream] = start + WORK_TIME
            boxes.append(Box(task, stream, start, free[stream]))
    return boxes


def plot_times(title: str, rows: dict[str, list[Box]]) -> Figure:
    """Timelines below each other, drawn alike; the last kernel of an image has its number."""
    figure = new_figure(f"{title}\n(on paper: lengths were not measured)", 1.4 + 1.2 * len(rows))
    end = max(box.end for boxes in rows.values() for box in boxes)
    apart, used = 1.3, {}
    for axes, (name, boxes) in zip(figure.subplots(len(rows), 1), rows.items(), strict=True):
        last = max(box.row for box in boxes)
        for row in range(last + 1):
            text = f"stream {row}" if row else "host"
            add_text(axes, -0.01 * end, apart * row + 0.4, text, ha="right")
        for box in boxes:
            used[box.task] = COLOURS.get(box.task, OF_HOST)
            length, style = box.end - box.start, used[box.task]
            plot_box(axes, box.start, apart * box.row, length, 0.8, style)
        ends = [box.end for box in boxes if box.row and box.task == HIDDENS]
        for number, x in enumerate(ends, 1):
            axes.text(x, apart - 0.08, f"{number}", fontsize=SMALL_SIZE, ha="right")
        set_bare(axes, (-0.1 * end, 1.01 * end), (0.3, apart * last + 0.5), name)
    add_legend(figure, used)
    return figure


def plot_streams() -> Figure:
    return plot_times(
        "Rung 5, streams: the two updates on two streams",
        {
            "rung 4: one stream": timeline(ONE_STREAM * N_DRAWN),
            "rung 5: two streams": timeline(TWO_STREAMS * N_DRAWN),
        },
    )


def plot_graph() -> Figure:
    return plot_times(
        "Rung 6, graph: one launch for many kernels",
        {
            "rung 4: a launch for each kernel": timeline(ONE_STREAM * N_DRAWN),
            f"rung 6: a launch for the kernels of {graph.IMAGES_PER_GRAPH} images": timeline(
                ONE_STREAM * graph.IMAGES_PER_GRAPH, captured=True
            ),
        },
    )


DRAWINGS: dict[str, Callable[[], Figure]] = {
    **{f"threads_{kernel}": partial(plot_convolution, kernel) for kernel in CONVOLUTIONS},
    "threads_maps": plot_others,
    "threads_ladder_naive": partial(plot_rung, "naive"),
    "threads_ladder_tiled": plot_tiled,
    "threads_ladder_coalesced": partial(plot_rung, "coalesced"),
    "threads_ladder_shared": plot_shared,
    "threads_ladder_streams": plot_streams,
    "threads_ladder_graph": plot_graph,
    "threads_ladder_one_kernel": plot_chunk,
}
