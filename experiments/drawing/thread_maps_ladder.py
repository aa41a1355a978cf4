"""How the ladder's kernels map their threads to data, and its launches in time (`thread_maps`)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from cuda_on_cpu.access_stats import BANKS, words_per_bank
from deepbig_runtime.gpu import WARP
from experiments.drawing.figures import BLUE, GREEN, ORANGE, SKY, SMALL_SIZE, VERMILION
from experiments.drawing.thread_cells_cnn import Mapping, Pair
from experiments.drawing.thread_cells_ladder import (
    HIDDEN,
    kept_and_other,
    make_mappings,
    pieces,
)
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
    draw_box,
    draw_cells,
    draw_lines,
    new_figure,
    set_bare,
    set_scaled,
)
from mlp_gpu.ladder import graph, one_kernel, tiled
from mlp_gpu.ladder.net import N_INPUTS, N_OUTPUTS, SIDE

STEP_CELLS = WARP_STEP | {"linewidth": 0.9}
STYLES = {
    "what one thread takes": THREAD,
    "one warp at one step": STEP_CELLS,
    "the pieces of 32 bytes that this moves": READ,
}
BLOCK_STYLE = {"one block": BLOCK | {"linewidth": 1.6}}


@dataclass(frozen=True)
class Panel:
    """A part of a matrix of float32 as a kernel takes it.

    array, kind: argument and "read" or "write". shape: of the matrix. shown: its first rows and
    columns. labels: of rows and columns. thread: of the first block, whose cells are drawn. step:
    of its warp.
    """

    kernel: str
    array: str
    kind: str
    shape: Pair
    shown: Pair
    labels: tuple[str, str]
    thread: int = 5
    step: int = 0

    @property
    def mapping(self) -> Mapping:
        return make_mappings()[self.kernel]

    def own(self) -> list[Pair]:
        """The cells that the thread takes."""
        return self.mapping.touched((0, 0), (self.thread, 0))[self.array, self.kind]

    def together(self) -> list[Pair]:
        """The cells that its warp takes at the step."""
        return self.mapping.step((0, 0), (self.thread, 0), (self.array, self.kind), self.step)

    def moved(self) -> list[list[Pair]]:
        """The pieces of 32 bytes that are moved for that."""
        return pieces(self.together(), self.shape[1])


INPUT, NEURON, CLASS = "input", "hidden neuron", "output neuron"
W1, W2 = (HIDDEN, N_INPUTS), (N_OUTPUTS, HIDDEN)
CORNER = 32, 32  # of W1 that is shown
PANELS = {
    "naive": [
        Panel("forward_naive", "W1", "read", W1, CORNER, (NEURON, INPUT), step=11),
        Panel("deltas_naive", "W2", "read", W2, (10, 40), (CLASS, NEURON), step=4),
        Panel("update_hidden_naive", "W1", "write", W1, CORNER, (NEURON, INPUT)),
        Panel("update_outputs_naive", "W2", "write", W2, (10, 40), (CLASS, NEURON)),
    ],
    "coalesced": [
        Panel("forward_coalesced", "W1", "read", W1[::-1], CORNER, (INPUT, NEURON), step=11),
        Panel("deltas_coalesced", "W2", "read", W2[::-1], (32, 10), (NEURON, CLASS), step=4),
        Panel("update_hidden_coalesced", "W1", "write", W1[::-1], CORNER, (INPUT, NEURON)),
        Panel("update_outputs_coalesced", "W2", "write", W2[::-1], (32, 10), (NEURON, CLASS)),
    ],
    "shared": [
        Panel("forward_shared", "W1", "read", W1[::-1], CORNER, (INPUT, NEURON), step=11),
        Panel("deltas_shared", "W2", "read", W2[::-1], (32, 10), (NEURON, CLASS), step=4),
        Panel("update_hidden_shared", "W1", "write", W1[::-1], CORNER, (INPUT, NEURON)),
    ],
    "one kernel": [
        Panel(
            "train_chunk",
            "W1",
            "read",
            W1[::-1],
            (48, 32),
            (INPUT, NEURON),
            step=one_kernel.KEPT + 1,
        )
    ],
}
TITLES = {
    "naive": "Rung 1, naive: neighbouring threads read rows apart",
    "coalesced": "Rung 3, coalesced: the weights turned, so that neighbours read side by side",
}


def draw_rung(rung: str) -> Figure:
    """The four kernels of a rung on their matrices."""
    figure = new_figure(f"{TITLES[rung]}\n784-{HIDDEN}-10", 7)
    panels = figure.subplots(2, 2, height_ratios=(1, 1))
    for axes, panel in zip(panels.flat, PANELS[rung], strict=True):
        draw_panel(axes, panel)
    add_legend(figure, STYLES | BLOCK_STYLE)
    return figure


def draw_panel(axes: Axes, panel: Panel) -> None:
    """The corner of a matrix: a thread's cells, a warp's, what they move, and the first block."""
    rows, columns = panel.shown
    draw_lines(axes, 0, columns, rows)
    moved = panel.moved()
    for cells in moved:
        for row in sorted({row for row, _ in cells}):
            places = [column for one, column in cells if one == row]
            draw_box(axes, places[0], row, len(places), 1, READ, "piece")
    draw_cells(axes, [cell for cell in panel.own() if _inside(cell, panel.shown)], THREAD, "own")
    draw_cells(axes, panel.together(), STEP_CELLS, "step")
    launch = panel.mapping.launch
    if launch.grid[0] > 1:
        _draw_border(axes, panel)
    blocks = f"{launch.grid[0]} block{'s' * (launch.grid[0] > 1)} of {launch.threads} threads"
    n = len(panel.together())
    title = f"{panel.kernel}, {blocks}:\n{n} threads {panel.kind} {n} numbers of {panel.array}\n"
    title += f"in {len(moved)} pieces"
    set_scaled(axes, columns, rows, panel.labels[1], panel.labels[0], title)


def _inside(cell: Pair, shown: Pair) -> bool:
    return cell[0] < shown[0] and cell[1] < shown[1]


def _draw_border(axes: Axes, panel: Panel) -> None:
    """The outline of the cells of the first block."""
    mapping, key = panel.mapping, (panel.array, panel.kind)
    threads = np.ndindex(mapping.threads)
    block = {cell for thread in threads for cell in mapping.touched((0, 0), thread)[key]}
    lines = []
    for row, column in block:
        sides = {
            (row - 1, column): [(column, row), (column + 1, row)],
            (row + 1, column): [(column, row + 1), (column + 1, row + 1)],
            (row, column - 1): [(column, row), (column, row + 1)],
            (row, column + 1): [(column + 1, row), (column + 1, row + 1)],
        }
        lines += [line for beside, line in sides.items() if beside not in block]
    axes.add_collection(
        LineCollection(lines, colors=VERMILION, linewidths=2, zorder=3, label="block")
    )


def draw_tiled() -> Figure:
    """forward_tiled: how a block fills a tile, and reads it from shared memory."""
    panel = Panel("forward_tiled", "W1", "read", W1, (WARP, 3 * tiled.TILE), (NEURON, INPUT), 21)
    title = "Rung 2, tiled: all threads bring 8 inputs of all neurons, then each sums its row"
    figure = new_figure(title, 5.2)
    whole, *shared = figure.subplots(1, 3, width_ratios=(2.2, 1, 1))
    draw_panel(whole, panel)
    draw_box(whole, 0, 0, tiled.TILE, WARP, BLOCK, "tile")
    step = 3
    for axes, stride in zip(shared, (tiled.ROW, tiled.TILE), strict=True):
        words = np.arange(WARP) * stride + step
        draw_box(axes, 0, 0, tiled.TILE, WARP, SHARED, "tile")
        draw_lines(axes, 0, tiled.TILE, WARP)
        draw_box(axes, tiled.TILE, 0, stride - tiled.TILE, WARP, PADDING)
        draw_cells(axes, [(panel.thread, i) for i in range(tiled.TILE)], THREAD, "own")
        draw_cells(axes, [(row, step) for row in range(WARP)], STEP_CELLS, "step")
        for row, bank in enumerate(words % BANKS):
            axes.text(tiled.ROW + 0.3, row + 0.5, f"{bank}", va="center", fontsize=SMALL_SIZE)
        turns = words_per_bank(words.tolist())
        turning = f"{turns} turn{'s' * (turns > 1)} a step"
        title = f"in shared memory:\nrows of {stride} words,\n{turning}"
        add_text(axes, tiled.ROW + 1, -0.7, "bank")
        set_bare(axes, (0, tiled.ROW + 3), (-1, WARP), title)
    add_legend(figure, STYLES | {"the tile": BLOCK, "in shared memory": SHARED, "unused": PADDING})
    return figure


def draw_shared() -> Figure:
    """Rung 4: what all threads of a block read is in shared memory, rates are constants."""
    title = "Rung 4, shared: what all threads read is brought once; what one reads stays in memory"
    title += "\n(update_outputs_shared: as rung 3, with the constants eta and momentum)"
    figure = new_figure(title, 7)
    image, *others = figure.subplots(2, 2).flat
    bring = Panel("forward_shared", "images", "read", (1, N_INPUTS), (SIDE, SIDE), ("", ""))
    draw_box(image, 0, 0, SIDE, SIDE, SHARED)
    draw_lines(image, 0, SIDE, SIDE)
    for cells, style, label in (
        (bring.own(), THREAD, "own"),
        (bring.together(), STEP_CELLS, "step"),
    ):
        draw_cells(image, [divmod(place, SIDE) for _, place in cells], style, label)
    title = f"forward_shared brings the image:\n{WARP} threads read {WARP} pixels in "
    title += f"{len(bring.moved())} pieces;\nlater all threads read one word at each step"
    set_scaled(image, SIDE, SIDE, "column of pixels", "row of pixels", title)
    for axes, panel in zip(others, PANELS["shared"], strict=True):
        draw_panel(axes, panel)
    _, deltas, updates = others
    draw_cells(deltas, [(-3, k) for k in range(N_OUTPUTS)], SHARED, "delta2")
    add_text(deltas, N_OUTPUTS / 2, -4.5, "delta2, read by all threads")
    deltas.set_ylim(32.5, -6)
    for left, name in ((6, "eta"), (20, "momentum")):
        draw_box(updates, left, -3, 6, 1, SHARED, name)
        add_text(updates, left + 3, -4.5, name)
    updates.set_ylim(32.5, -6)
    add_legend(figure, STYLES | BLOCK_STYLE | {"in shared memory, or constant": SHARED})
    return figure


WORKING = OUTLINE | {"facecolor": GREEN}
# What train_chunk does for an image, and how many of its threads work at it. A barrier ends each
# but the last, for which the next image does not wait.
PHASES = {
    "W1: update of the image before, and products with this one": 4 * HIDDEN,
    "sums and states of layer 1": HIDDEN,
    "W2: products, 32 threads a class": N_OUTPUTS * one_kernel.LANES,
    "states and deltas of layer 2": N_OUTPUTS,
    "deltas of layer 1": HIDDEN,
    "W2: update": 4 * HIDDEN,
}


def draw_chunk() -> Figure:
    """Rung 7: which weights a thread has in registers, and who works when."""
    (threads, _), panel = make_mappings()["train_chunk"].threads, PANELS["one kernel"][0]
    figure = new_figure("Rung 7, one kernel: one block trains a chunk of images by itself", 4.8)
    weights, phases = figure.subplots(1, 2, width_ratios=(1, 1.25))
    kept = max(row for row, _ in kept_and_other(HIDDEN, threads - 1)[0]) + 1
    draw_box(weights, 0, 0, panel.shown[1], kept, SHARED, "kept")
    draw_panel(weights, panel)
    for row, (text, working) in enumerate(PHASES.items()):
        draw_box(phases, 0, row + 0.45, working, 0.45, WORKING, f"phase {row}")
        draw_box(phases, working, row + 0.45, threads - working, 0.45, IDLE)
        add_text(phases, 0, row + 0.22, text, ha="left")
        if row < len(PHASES) - 1:
            phases.axhline(row + 0.97, color="black", linewidth=1.5, label="barrier")
    title = f"what the {threads} threads do for an image,\nbarriers between"
    set_scaled(phases, threads, len(PHASES), "thread", "", title)
    phases.set_yticks([])
    styles = {"in registers from first to last image": SHARED, "threads that work": WORKING}
    add_legend(figure, STYLES | styles | {"idle threads": IDLE})
    return figure


# --- launches in time, on paper

FORWARD, DELTAS, OUTPUTS, HIDDENS = "forward", "deltas", "update of layer 2", "update of layer 1"
COLOURS = {
    what: OUTLINE | {"facecolor": colour}
    for what, colour in ((FORWARD, BLUE), (DELTAS, ORANGE), (OUTPUTS, GREEN), (HIDDENS, SKY))
}
OF_HOST = OUTLINE | {"facecolor": "0.8", "hatch": "xxx"}
WAIT, GRAPH = "event recorded and waited for", "launch of the graph"
LAUNCH_TIME, WAIT_TIME, WORK_TIME, GAP = 1.0, 0.8, 0.3, 0.1  # nothing that was measured
N_DRAWN = 3  # images

# What the host does for one image: a kernel on a stream, or (WAIT, stream, stream waited for).
ONE_STREAM = [(FORWARD, 1), (DELTAS, 1), (OUTPUTS, 1), (HIDDENS, 1)]
TWO_STREAMS = [(FORWARD, 1), (DELTAS, 1), (WAIT, 2, 1), (OUTPUTS, 2), (HIDDENS, 1), (WAIT, 1, 2)]


@dataclass(frozen=True)
class Box:
    """Something that takes time: of the host, row 0, or of a stream, row 1 or 2."""

    what: str
    row: int
    start: float
    end: float


def timeline(calls: list[tuple], captured: bool = False) -> list[Box]:
    """When the host does what, and when streams do, if a kernel takes less time than its launch.

    captured: whether the calls are in a graph, which the host launches once.
    """
    boxes, host = [], 0.0
    free = {1: 0.0, 2: 0.0}  # from when a stream is
    if captured:
        host = LAUNCH_TIME
        boxes.append(Box(GRAPH, 0, 0, host))
    for what, stream, *other in calls:
        if not captured:
            took = WAIT_TIME if other else LAUNCH_TIME
            boxes.append(Box(what, 0, host, host + took))
            host += took
        if other:
            free[stream] = max(free[stream], free[other[0]])
        else:
            start = max(host, free[stream]) + GAP
            free[stream] = start + WORK_TIME
            boxes.append(Box(what, stream, start, free[stream]))
    return boxes


def draw_times(title: str, rows: dict[str, list[Box]]) -> Figure:
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
            used[box.what] = COLOURS.get(box.what, OF_HOST)
            what = box.end - box.start, 0.8, used[box.what], f"{box.row}: {box.what}"
            draw_box(axes, box.start, apart * box.row, *what)
        ends = [box.end for box in boxes if box.row and box.what == HIDDENS]
        for number, x in enumerate(ends, 1):
            axes.text(x, apart - 0.08, f"{number}", fontsize=SMALL_SIZE, ha="right")
        set_bare(axes, (-0.1 * end, 1.01 * end), (0.3, apart * last + 0.5), name)
    add_legend(figure, used)
    return figure


def draw_streams() -> Figure:
    return draw_times(
        "Rung 5, streams: the two updates side by side",
        {
            "rung 4: one stream": timeline(ONE_STREAM * N_DRAWN),
            "rung 5: two streams": timeline(TWO_STREAMS * N_DRAWN),
        },
    )


def draw_graph() -> Figure:
    return draw_times(
        "Rung 6, graph: one launch for many kernels",
        {
            "rung 4: a launch for each kernel": timeline(ONE_STREAM * N_DRAWN),
            f"rung 6: a launch for the kernels of {graph.IMAGES_PER_GRAPH} images": timeline(
                ONE_STREAM * graph.IMAGES_PER_GRAPH, captured=True
            ),
        },
    )


DRAWINGS: dict[str, Callable[[], Figure]] = {
    "threads_ladder_naive": partial(draw_rung, "naive"),
    "threads_ladder_tiled": draw_tiled,
    "threads_ladder_coalesced": partial(draw_rung, "coalesced"),
    "threads_ladder_shared": draw_shared,
    "threads_ladder_streams": draw_streams,
    "threads_ladder_graph": draw_graph,
    "threads_ladder_one_kernel": draw_chunk,
}
