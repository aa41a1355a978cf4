"""How each hand-written kernel maps its threads to data, drawn on a small layer.

Which cells threads touch, and the grids and blocks, are those of `traces`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cuda_on_cpu.access_stats import BANKS, words_per_bank
from deepbig_runtime.gpu import WARP
from deform_gpu.field import GRID, KERNEL, MARGIN
from deform_gpu.kernels import listing1, tiles
from deform_gpu.parameters import SIDE
from experiments.drawing import thread_maps_nets
from experiments.drawing.figures import LABEL_SIZE, SMALL_SIZE
from experiments.drawing.launches import BLOCK as BLOCK_IMAGES
from experiments.drawing.launches import END, FIELD_SIDE, FIRST, N_IN, N_OUT
from experiments.drawing.thread_drawing import (
    BLOCK,
    IDLE,
    OUTLINE,
    PADDING,
    READ,
    SHARED,
    THREAD,
    WARP_AND_IDLE,
    WARP_STEP,
    Panel,
    add_legend,
    add_text,
    extent,
    new_figure,
    plot_arrow,
    plot_block,
    plot_box,
    plot_cells,
    plot_lines,
    plot_panel,
    plot_vector_tiles,
    set_bare,
    set_scaled,
)
from experiments.drawing.traces import Pair, Trace, cells_of, read_traces
from mlp_gpu.kernels import backward, evaluate
from mlp_gpu.network import N_CLASSES, pad32
from mlp_gpu.window import blocks, products

# --- kernels of which a thread walks down a column of a matrix


@dataclass(frozen=True)
class Walk:
    """The texts of a walk, and how many rows and columns of its matrix are used, not padding.

    array: in the name of the trace. shared: numbers that a block loads into shared memory. result:
    of a thread. verb: the access of a warp's threads at one step.
    """

    title: str
    array: str = "W read"
    rows: str = "row of W: input\n(row 0: bias)"
    columns: str = "column of W: neuron"
    used: Pair = (N_IN + 1, N_OUT)
    shared: str = ""
    result: str = ""
    verb: str = "read"


BLOCKS_OF_INPUTS = "row: block\nof inputs"
WALKS = {
    "forward_partial": Walk(
        "forward, stage 1 (2010, Listing 2)", shared="inputs", result="one partial sum per thread"
    ),
    "forward_reduce": Walk(
        "forward, stage 2 (2010, Listing 2)",
        "partial read",
        BLOCKS_OF_INPUTS,
        "column of the partial sums: neuron",
        (3, N_OUT),
        result="one state y per thread",
    ),
    "output_delta": Walk(
        "forward, stage 2 of the output layer",
        "partial read",
        BLOCKS_OF_INPUTS,
        "column of the partial sums: class",
        (10, N_CLASSES),
        result="one sum per thread; then\neach reads all: softmax",
    ),
    "delta_partial": Walk("deltas, stage 1 (2010, Listing 3)"),
    "delta_reduce": Walk(
        "deltas, stage 2 (2010, Listing 3)",
        "partial read",
        "row: block\nof neurons",
        "column of the partial sums: input (column 0: bias)",
        (10, N_IN + 1),
        result="one delta per thread",
    ),
    "update_weights": Walk(
        "the weight update (2010, Listing 4)", "W write", shared="states", verb="read, then write"
    ),
}
WALK_TITLE = "{shape} numbers, {used} of them in use; {grid} of {threads}"


def plot_walk(name: str) -> Figure:
    """A kernel of WALKS on a small layer: its grid of blocks, and below a warp of one block."""
    walk = WALKS[name]
    matrix = f"{name} {walk.array}"
    shared = name == "delta_partial" or walk.shared
    figure = new_figure(f"{name}: {walk.title}", 5.2 if shared else 4)
    grid, warp = figure.subplots(2, 1)
    plot_panel(grid, Panel(matrix, walk.rows, walk.columns, WALK_TITLE, used=walk.used))
    styles = {"one block": BLOCK, "one thread's cells": THREAD, "one warp at one step": WARP_STEP}
    if name == "delta_partial":
        _plot_patch(warp)
    else:
        _plot_warp(warp, read_traces()[matrix], walk)
        styles |= {"idle threads": IDLE}
    if shared:
        styles |= {"in shared memory": SHARED}
    add_legend(figure, styles | {f"padding to {WARP}": PADDING})
    return figure


def _plot_warp(axes: Axes, trace: Trace, walk: Walk) -> None:
    """The warp of a thread: rows of the block down, threads across."""
    path, reached = cells_of(trace.own), cells_of(trace.step)
    own, rows = trace.thread[0] % WARP, len(path)
    top, left = path[0][0], path[0][1] - own
    busy, step = [column - left for _, column in reached], reached[0][0] - top
    idle = sorted(set(range(WARP)) - set(busy))
    plot_lines(axes, 0, WARP, rows)
    plot_cells(axes, [(row, i) for row in range(rows) for i in idle], IDLE)
    plot_cells(axes, [(row - top, column - left) for row, column in path], THREAD)
    plot_arrow(axes, (own + 0.5, 0), (own + 0.5, rows), "white")
    plot_box(axes, busy[0], step, len(busy), 1, WARP_STEP)
    side = f"at each step {len(busy)} threads\n{walk.verb} {len(busy)} numbers\n"
    add_text(axes, WARP + 1, step + 0.5, side + "side by side: coalesced", ha="left")
    if walk.shared:
        plot_cells(axes, [(row, -3) for row in range(rows)], SHARED)
        text = f"{rows} {walk.shared},\nloaded by\n{rows} threads"
        add_text(axes, -4, rows / 2, text, ha="right")
    if walk.result:
        result, height = 1.1 * rows, rows / 12
        for i in range(WARP):
            style = IDLE if i in idle else THREAD if i == own else OUTLINE
            plot_box(axes, i, result, 1, height, style)
        add_text(axes, WARP + 1, result + height / 2, walk.result, ha="left")
    first = trace.thread[0] - own
    title = f"threads {first} to {first + WARP - 1} of block {trace.block[0]}, {trace.block[1]}"
    set_bare(axes, (-11, WARP + 13), (0, 1.25 * rows if walk.result else rows), title)


def _plot_patch(axes: Axes) -> None:
    """The patch of a block: loaded into shared memory by columns, summed by rows."""
    side, right = backward.PATCH, backward.PATCH + 20  # right: where the patch is drawn again
    for left, kind in ((0, "write"), (right, "read")):
        trace = read_traces()[f"delta_partial shared 0 {kind}"]
        thread, step = trace.thread[0], cells_of(trace.step)
        height, width = extent(step)
        plot_lines(axes, left, side, side)
        plot_cells(axes, [(row, left + x) for row, x in cells_of(trace.own)], THREAD)
        plot_box(axes, left + step[0][1], step[0][0], width, height, WARP_STEP)
    plot_arrow(axes, (thread + 0.5, 0), (thread + 0.5, side), "white")
    plot_arrow(axes, (right, thread + 0.5), (right + side, thread + 0.5), "white")
    plot_arrow(axes, (side + 1, side / 2), (right - 1, side / 2), "black")
    add_text(axes, (side + right) / 2, side / 2 - 1, "to shared\nmemory", va="bottom")
    apart = f"its rows are\n{backward.STRIDE} words apart"
    add_text(axes, (side + right) / 2, side / 2 + 1, apart, va="top")
    plot_cells(axes, [(-3, right + j) for j in range(side)], SHARED)
    add_text(axes, right - 1, -2.5, "deltas", ha="right")
    for i in range(side):
        plot_box(axes, right + side + 3, i, 1.5, 1, THREAD if i == thread else OUTLINE)
    add_text(axes, right + side + 5.5, side / 2, "one partial\nsum per\nthread", ha="left")
    text = f"each of {side} threads reads a column:\ncoalesced"
    add_text(axes, side / 2, -0.5, text, va="bottom")
    add_text(axes, right + side / 2, -3.5, "then it sums a row, times deltas", va="bottom")
    set_bare(axes, (-2, right + side + 14), (-9, side))


def plot_banks() -> Figure:
    """Why the patch of delta_partial has rows of 33 words in shared memory: its banks."""
    side, column = backward.PATCH, 5
    title = f"delta_partial: {side} threads read column {column} of the patch from shared memory"
    figure = new_figure(title, 6)
    panels = figure.subplots(1, 2)
    for axes, stride in zip(panels, (side, backward.STRIDE), strict=True):
        banks = (np.arange(side)[:, None] * stride + np.arange(stride)) % BANKS
        edges = (0, stride, side, 0)
        image = axes.imshow(banks, "cividis", aspect="auto", vmin=0, vmax=BANKS - 1, extent=edges)
        plot_box(axes, side, 0, stride - side, side, PADDING)
        plot_box(axes, column, 0, 1, side, BLOCK)
        for row, bank in enumerate(banks[:, column]):
            axes.text(stride + 0.5, row + 0.5, f"{bank}", va="center", fontsize=SMALL_SIZE)
        most = words_per_bank(np.arange(side) * stride + column)
        title = f"rows {stride} words apart: a bank has {most} of the {side} words,\n"
        title += f"so reading takes {most} turns" if most > 1 else "so all are read at once"
        set_scaled(
            axes, stride, side, "word of the row", "row: thread (right: bank it reads)", title
        )
    bar = figure.colorbar(image, ax=panels, location="bottom", aspect=50, ticks=range(0, BANKS, 4))
    bar.set_label("bank of shared memory that has the word", fontsize=LABEL_SIZE)
    bar.ax.tick_params(labelsize=LABEL_SIZE)
    return figure


# --- kernels whose threads each compute a few cells side by side


def _cells(trace: str, each: str, rows: str, columns: str, reads: str = "") -> Panel:
    title = f"{{kernel}}\n{{reached}} numbers; a thread computes {each}\n{{grid}} of {{threads}}"
    return Panel(trace, rows, columns, title + "\n{step}", reads)


FROM = f"one from {KERNEL}"
IMAGE = _cells("pick_image h write", "one", "", "pixel of the image")
CLASSES = _cells("softmax_rows Y write", "a row", "row: image", "column: class")
ELEMENTS = "column: yy, yx, y1, xy, xx, x1"
STAGES = (
    _cells("draw_matrices matrices write", "a row", "row: image", ELEMENTS),
    _cells("fill_field field write", "two", "row of the field", "column"),
    _cells(
        "convolve_columns sums write",
        FROM,
        "row of the sums",
        "column",
        "convolve_columns field read",
    ),
    _cells(
        "convolve_rows displacement write",
        FROM,
        "row of the displacement",
        "column",
        "convolve_rows sums read",
    ),
    _cells("warp_images out write", "one", "row of the image", "column"),
)
CELLS_STYLES = {"one block": BLOCK, "cells that a thread computes": THREAD}


def plot_ends() -> Figure:
    """Before the first layer and after the last: an image is picked; softmax of a batch."""
    figure = new_figure("Before the first layer in training, after the last in evaluation", 4.4)
    panels = figure.subplots(2, 1, height_ratios=(1, 4))
    plot_panel(panels[0], IMAGE)
    plot_panel(panels[1], CLASSES)
    panels[0].set_yticks([])
    add_legend(figure, CELLS_STYLES | WARP_AND_IDLE)
    return figure


def plot_stages() -> Figure:
    """The stages of the deformation as kernels of their own: matrices, field, sums, pixels."""
    title = "The deformation, one kernel per stage: matrices, field, sums, displacement, pixels\n"
    title += f"(field to displacement: a batch of images of {FIELD_SIDE} x {FIELD_SIDE} pixels, "
    title += "y and x alike)"
    figure = new_figure(title, 8.6)
    panels = figure.subplot_mosaic([[0, 0], [1, 2], [3, 4]], height_ratios=(1.2, 3, 3))
    for place, panel in enumerate(STAGES):
        plot_panel(panels[place], panel)
        panels[place].set_aspect("equal" if place else "auto")
    add_legend(figure, CELLS_STYLES | {"cells that it reads for them": READ} | WARP_AND_IDLE)
    return figure


# --- kernels whose blocks each take a tile, a thread cells of it that are apart


@dataclass(frozen=True)
class Tile:
    """A kernel's tiles, and the result that a block makes of one.

    panel: all tiles. result: the trace of its result. title: with a braced size and thread.
    depth: numbers at a time in shared memory, for each row and column; 0: for rows only. left,
    above: names of these, beside the tile.
    """

    panel: Panel
    result: str
    title: str
    depth: int = 0
    left: str = ""
    above: str = ""


TILE_TITLE = "{kernel}:\n{grid}\nof {threads}"
PRODUCTS = "{size} results:\nthread {thread} sums 4 x 4 of\nthe products, in registers"
SUMS = "{size} results:\nthread {thread} sums the parts of 2\nimages and corrects them"
ROW_OF_W, COLUMN_OF_W, OF_WINDOW = "row of W: input", "column of W: neuron", "image of\nthe window"
EACH, DEPTH = evaluate.EACH, evaluate.DEPTH
BATCH = Tile(
    Panel("forward_batch Y write", "image", "neuron", "{reached} states;\n{grid}\nof {threads}"),
    "forward_batch Y write",
    f"tile of {{size}} states: thread {{thread}} sums {EACH} x {EACH}\n"
    f"of them in registers, {DEPTH} inputs at a time",
    DEPTH,
    f"{DEPTH} inputs of\n{evaluate.TILE} images",
    f"{DEPTH} x {evaluate.TILE}\nweights",
)
TENSOR = "{size} results: thread {thread} has 32 of\nits warp's 32 x 32, in registers"
TENSOR_SUMS = "{size} results: thread {thread} has 8\nof its warp's 16 x 16"
WAYS = ("forward", ROW_OF_W, COLUMN_OF_W), ("backward", COLUMN_OF_W, ROW_OF_W)
WINDOW_PRODUCTS, TENSOR_PRODUCTS = (
    [
        Tile(
            Panel(f"{way}_{kind} W read", rows, columns + more, TILE_TITLE, more=beside),
            f"{way}_{kind} partial write",
            title,
            products.DEPTH,
        )
        for (way, rows, columns), beside in zip(WAYS, widths, strict=True)
    ]
    for kind, title, more, widths in (
        ("products", PRODUCTS, "; then image", (BLOCK_IMAGES, BLOCK_IMAGES)),
        # Backward there are two parts of the sum, over which the blocks of G are spread.
        ("tensor_products", TENSOR, "; then blocks of G", (4 * BLOCK_IMAGES, 2 * BLOCK_IMAGES)),
    )
)
TENSOR_PRODUCTS.append(
    Tile(
        Panel("update_tensor_products W write", ROW_OF_W, COLUMN_OF_W, TILE_TITLE),
        "update_tensor_products W write",
        TENSOR,
        products.DEPTH,
    )
)
RESULTS = ("H_next write", "neuron"), ("D write", "neuron of the layer before")
WINDOW_SUMS = [
    Tile(
        Panel(f"{kernel} {result}", OF_WINDOW, columns, TILE_TITLE),
        f"{kernel} {result}",
        title,
        depth,
        left,
    )
    for kernels, title, depth, left in (
        (("forward_states", "backward_deltas"), SUMS, 0, "8 rows of G"),
        (("forward_tensor_sums", "backward_tensor_sums"), TENSOR_SUMS, products.DEPTH, "rows of G"),
    )
    for kernel, (result, columns) in zip(kernels, RESULTS, strict=True)
]
WINDOW_UPDATE = Tile(
    Panel("update_weights_of_block W write", ROW_OF_W, COLUMN_OF_W, TILE_TITLE),
    "update_weights_of_block W write",
    "{size} results:\nthread {thread} updates 4 x 4 weights,\n"
    f"{blocks.IMAGES} images at a time",
    blocks.IMAGES,
)
TILE_STYLES = {"one block": BLOCK, "one thread": THREAD, "in shared memory": SHARED}


def plot_tile(axes: Axes, tile: Tile) -> None:
    """The result of a block, and a thread's cells of it; beside it the numbers in shared memory."""
    trace = read_traces()[tile.result]
    block = cells_of(trace.of_block)
    (top, left), (rows, columns) = block[0], extent(block)
    own = [(row - top, column - left) for row, column in cells_of(trace.own)]
    width = tile.depth or 17
    start = -3 - width  # where the numbers in shared memory begin
    plot_box(axes, 0, 0, columns, rows, OUTLINE)
    plot_box(axes, start, 0, width, rows, SHARED)
    for row, _ in own:
        plot_box(axes, start, row, width, 1, THREAD)
    if tile.depth:
        plot_box(axes, 0, start, columns, width, SHARED)
        for _, column in own:
            plot_box(axes, column, start, 1, width, THREAD)
    plot_cells(axes, own, THREAD)
    add_text(axes, start, rows + 1, tile.left, ha="left", va="top")
    add_text(axes, columns + 1, start + width / 2, tile.above, ha="left")
    title = tile.title.format(size=f"{rows} x {columns}", thread=trace.thread[0])
    right = columns + (14 if tile.above else 1)
    down = (start - 1 if tile.depth else -3), rows + (9 if tile.left else 3)
    set_bare(axes, (min(start, -20) - 1, right), down, title)
    axes.set_aspect("equal")


def plot_batch() -> Figure:
    """forward_batch: a block computes a tile of 64 images x 64 neurons, a thread 4 x 4 of them."""
    title = "forward_batch: many images at once, for evaluation"
    figure = new_figure(f"{title}\nforward_tensor_batch has the same tiles, see the window", 4.8)
    whole, part = figure.subplots(1, 2, width_ratios=(1, 1.25))
    plot_panel(whole, BATCH.panel)
    whole.set_aspect("equal")
    plot_tile(part, BATCH)
    add_legend(figure, TILE_STYLES | {"no image or no neuron": IDLE})
    return figure


def plot_window_tiles(title: str, height: float, kernels: list[Tile]) -> Figure:
    """Kernels of tiles below each other: all blocks, and one."""
    figure = new_figure(title, height)
    panels = figure.subplots(len(kernels), 2, squeeze=False, width_ratios=(1.4, 1))
    for (whole, part), tile in zip(panels, kernels, strict=True):
        plot_panel(whole, tile.panel)
        plot_tile(part, tile)
    styles = TILE_STYLES
    if kernels is not WINDOW_SUMS:
        styles = styles | {"rows of H or D of the block's images": READ}
    add_legend(figure, styles | {"outside the matrix": IDLE})
    return figure


def plot_blocks_and_progress() -> Figure:
    """The kernels that run once a block, and those that end a sweep and a block."""
    figure = new_figure("Window: once a block, and at the end of a sweep", 7.4)
    (whole, part), (gather, outputs), (slide, ending) = figure.subplots(3, 2)
    plot_panel(whole, WINDOW_UPDATE.panel)
    plot_tile(part, WINDOW_UPDATE)
    plot_panel(gather, _cells("gather_images H write", "one", "image of the block", "pixel"))
    title = TILE_TITLE + ", a thread a class"
    plot_panel(outputs, Panel("output_deltas D write", "image of the window", "class", title))
    outputs.set_ylim(END - FIRST, 0)  # the window has fewer images than it may have
    trace = read_traces()["slide_window changes read"]
    _, _, n_rows, n_images = trace.reached
    plot_box(slide, 0, 0, n_images, n_rows, OUTLINE)
    plot_cells(slide, cells_of(trace.own), THREAD)
    title = f"slide_window: one block of {trace.threads[0]}\nthreads, an image each; of each layer"
    title += f"\nthread {trace.thread[0]} reads"
    set_scaled(slide, n_images, n_rows, "image of the window", "change; delta", title)
    set_bare(ending, (0, 10), (0, 8), "next_block: one thread,\nthe numbers of progress")
    names = ["START", "BLOCK", "FIRST", "END", "SWEPT", "WINDOW", "TIMES", "SWEEPS", "ALL_TIMES"]
    names += ["SQUARE"]
    for place, name in enumerate(names):
        row, column = divmod(place, 3)
        plot_box(ending, 3.4 * column, 1.8 * row, 3.1, 1.3, OUTLINE)
        text = name.lower().replace("_", " ")
        add_text(ending, 3.4 * column + 1.55, 1.8 * row + 0.65, text)
    add_legend(figure, TILE_STYLES | WARP_AND_IDLE)
    return figure


# --- the deformation in one kernel, and as the paper prints it


def plot_convolution() -> Figure:
    """Listing 1: a block computes ten cells of a column, a thread sums a vertical strip of 21."""
    inner, (left, y_block) = GRID * SIDE, (120, 12)
    padded, rows, region = inner + KERNEL - 1, listing1.ROWS, listing1.REGION
    stride, top = pad32(padded), rows * y_block
    strip = read_traces()["convolve_field shared 1 read"]
    sum_of_strip, (x, y) = read_traces()["convolve_field shared 2 write"], strip.thread
    figure = new_figure("convolve_field: the elastic field (2010, Listing 1)", 4.4)
    whole, cells, sums = figure.subplots(1, 3, width_ratios=(2.2, 1.4, 1.6))
    plot_box(whole, padded, 0, stride - padded, padded, PADDING)
    plot_box(whole, 0, 0, padded, padded, IDLE)
    plot_box(whole, MARGIN, MARGIN, inner, inner, OUTLINE | {"facecolor": "white"})
    plot_box(whole, left, top, KERNEL, region, BLOCK)
    plot_box(whole, left + MARGIN, top + MARGIN, 1, rows, WARP_STEP)
    title = f"{padded} x {padded} cells of a field,\n{inner} x {inner} without its zero margin;\n"
    title += f"grid of {inner} x {inner // rows} blocks"
    set_scaled(whole, stride, padded, "column of the field", "row of the field", title)
    whole.set_aspect("equal")
    for axes, trace in ((cells, strip), (sums, sum_of_strip)):
        plot_cells(axes, cells_of(trace.of_block), SHARED)
        plot_cells(axes, cells_of(trace.own), THREAD)
    title = f"{region} x {KERNEL} cells in shared\nmemory: thread {x}, {y}\n"
    set_bare(cells, (-1, KERNEL + 1), (0, region), title + f"sums {KERNEL} products")
    plot_box(sums, 0, y, KERNEL, 1, WARP_STEP)
    for i in range(rows):
        plot_box(sums, KERNEL + 2, i, 1, 1, WARP_STEP if i == y else OUTLINE)
    title = f"{rows} x {KERNEL} sums there: the\nfirst thread of a row adds\n"
    set_bare(sums, (-1, KERNEL + 4), (0, region), title + f"up {KERNEL}, for a cell")
    styles = {
        "cells that a block reads": BLOCK,
        "cells that it computes": WARP_STEP,
        "in shared memory": SHARED,
    }
    styles |= {"one thread": THREAD, "margin of zeros": IDLE, f"padding to {WARP}": PADDING}
    add_legend(figure, styles)
    return figure


TILE_STAGES = {
    "shared 0 write": "1. draw the field,\ntwo rows at a time",
    "shared 1 write": "2. convolve down a column:\n"
    f"{tiles.STRIP} sums from {tiles.STRIP_CELLS} cells",
    "out write": f"3. for a pixel convolve along\n{KERNEL} sums, then interpolate",
}


def plot_tiles() -> Figure:
    """deform_tiles: a block draws its part of the field, convolves it, and moves the pixels."""
    title = f"deform_tiles: {tiles.THREADS} threads deform a tile of {SIDE} x {SIDE} pixels"
    figure = new_figure(title, 3.6)
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    for axes, (name, title) in zip(panels, TILE_STAGES.items(), strict=True):
        trace = read_traces()[f"deform_tiles {name}"]
        _, _, height, width = trace.reached
        plot_box(axes, 0, 0, width, height, OUTLINE if name == "out write" else SHARED)
        plot_cells(axes, cells_of(trace.own), THREAD)
        title += f"\n({height} x {width})"
        set_scaled(axes, tiles.REGION, tiles.FIELD_ROWS, "column", "row", title)
        axes.set_aspect("equal")
    styles = {"in shared memory": SHARED, f"cells of thread {trace.thread[0]}": THREAD}
    add_legend(figure, styles)
    return figure


# Each picture by its name.
DRAWINGS: dict[str, Callable[[], Figure]] = {
    **{f"threads_{name}": partial(plot_walk, name) for name in WALKS},
    "threads_banks": plot_banks,
    "threads_convolve_field": plot_convolution,
    "threads_forward_batch": plot_batch,
    "threads_deform_tiles": plot_tiles,
    "threads_ends": plot_ends,
    "threads_stages": plot_stages,
    "vector_tile": plot_vector_tiles,
    "threads_window_products": partial(
        plot_window_tiles,
        "Window, stage 1: products of 32 images with a matrix, and with the block's images",
        6.2,
        WINDOW_PRODUCTS,
    ),
    "threads_window_tensor_products": partial(
        plot_window_tiles,
        "Window: products and the update on tensor cores",
        9,
        TENSOR_PRODUCTS,
    ),
    "threads_window_sums": partial(
        plot_window_tiles,
        "Window, stage 2: parts are summed, corrected, and become states or deltas",
        9.6,
        WINDOW_SUMS,
    ),
    "threads_window_blocks": plot_blocks_and_progress,
    **thread_maps_nets.DRAWINGS,
    "block_of_images": plot_block,
}
