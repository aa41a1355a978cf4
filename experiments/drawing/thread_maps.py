"""How each hand-written kernel maps its threads to data, drawn on a small layer.

Grids, blocks and padding are those of the launches that the kernels' own functions make. Which
cells a thread takes is computed here once more; the tests compare it with what the kernels touch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cuda_on_cpu.access_stats import BANKS, words_per_bank
from deepbig_runtime.gpu import WARP, Launch
from deform_gpu.parameters import SIDE
from experiments.drawing import (
    block_drawing,
    thread_maps_cnn,
    thread_maps_deform,
    thread_maps_ladder,
    thread_maps_window,
    tile_drawing,
)
from experiments.drawing.figures import LABEL_SIZE, SMALL_SIZE
from experiments.drawing.thread_drawing import (
    BLOCK,
    IDLE,
    OUTLINE,
    PADDING,
    SHARED,
    THIN_THREAD,
    THREAD,
    WARP_AND_IDLE,
    WARP_STEP,
    Mosaic,
    Panel,
    add_legend,
    add_text,
    draw_arrow,
    draw_blocks,
    draw_box,
    draw_cells,
    draw_lines,
    draw_mosaic,
    new_figure,
    set_bare,
    set_scaled,
)
from mlp_gpu.kernels import backward, evaluate, forward, output, pick, update
from mlp_gpu.network import N_CLASSES, pad32

N_IN, N_OUT = 70, 300  # of the layer that is drawn: W has rows and columns of padding
N_IMAGES = 150  # of the batch that is drawn


@dataclass(frozen=True)
class Walk:
    """A launch whose threads walk down a matrix, one column per thread.

    shape: of the matrix. used: its rows and columns that are not padding. rows: that a block takes.
    working: columns whose threads walk; the others do nothing.
    """

    launch: Launch
    shape: tuple[int, int]
    used: tuple[int, int]
    rows: int
    working: range

    @property
    def threads(self) -> int:
        """Threads per block, side by side."""
        assert isinstance(self.launch.threads, int)
        return self.launch.threads

    def cells(self, block: tuple[int, int], thread: int) -> np.ndarray:
        """The (row, column) that a thread of block (x, y) reads, in that order, int64 (n, 2)."""
        column = block[0] * self.threads + thread
        rows = block[1] * self.rows + np.arange(self.rows if column in self.working else 0)
        return np.column_stack((rows, np.full_like(rows, column)))


@dataclass(frozen=True)
class Caption:
    """What the drawing of a walk says, and the block and the thread that it shows.

    shared: what a block loads into shared memory. result: what a thread computes. verb: what the
    threads of a warp do with their cells at one step.
    """

    title: str
    block: tuple[int, int]
    thread: int
    row_label: str = "row of W: input\n(row 0: bias)"
    column_label: str = "column of W: neuron"
    shared: str = ""
    result: str = ""
    verb: str = "read"


CAPTIONS = {
    "forward_partial": Caption(
        "forward, stage 1 (2010, Listing 2)",
        (0, 1),
        100,
        shared="inputs",
        result="one partial sum per thread",
    ),
    "forward_reduce": Caption(
        "forward, stage 2 (2010, Listing 2)",
        (3, 0),
        4,
        row_label="row: block\nof inputs",
        column_label="column of the partial sums: neuron",
        result="one state y per thread",
    ),
    "output_delta": Caption(
        "forward, stage 2 of the output layer",
        (0, 0),
        4,
        row_label="row: block\nof inputs",
        column_label="column of the partial sums: class",
        result="one sum per thread; then\neach reads all: softmax",
    ),
    "delta_partial": Caption("deltas, stage 1 (2010, Listing 3)", (3, 1), 4),
    "delta_reduce": Caption(
        "deltas, stage 2 (2010, Listing 3)",
        (0, 0),
        4,
        row_label="row: block\nof neurons",
        column_label="column of the partial sums: input (column 0: bias)",
        result="one delta per thread",
    ),
    "update_weights": Caption(
        "the weight update (2010, Listing 4)", (0, 2), 100, shared="states", verb="read, then write"
    ),
}


def make_walk(name: str, n_in: int = N_IN, n_out: int = N_OUT) -> Walk:
    """The walk of a kernel of CAPTIONS on a hidden layer, or on the output layer after it."""
    W = np.zeros((pad32(n_in + 1), pad32(n_out)), np.float32)
    h, y = np.zeros(n_in, np.float32), np.zeros(n_out, np.float32)
    sums = np.zeros(forward.partial_shape(W.shape, n_in), np.float32)
    back = np.zeros(backward.partial_shape(W.shape), np.float32)
    launches = forward.propagate_forward(y, sums, W, h)
    launches += backward.propagate_back(h, back, W, y, h)
    launches += update.update(W, h, y, np.zeros(1, np.float32))
    V = np.zeros((pad32(n_out + 1), pad32(N_CLASSES)), np.float32)
    delta, losses = np.zeros(N_CLASSES, np.float32), np.zeros(1, np.float32)
    last = np.zeros(forward.partial_shape(V.shape, n_out), np.float32)
    step, order, labels = np.zeros(1, int), np.zeros(1, int), np.zeros(1, np.uint8)
    launches += output.output_deltas(delta, losses, step, last, V, y, labels, order)[1:]
    weights, neurons = (n_in + 1, n_out), range(n_out)
    walks = {
        "forward_partial": (W.shape, weights, forward.INPUTS, neurons),
        "forward_reduce": (sums.shape, (len(sums), n_out), len(sums), neurons),
        "output_delta": (last.shape, (len(last), N_CLASSES), len(last), range(N_CLASSES)),
        "delta_partial": (W.shape, weights, backward.PATCH, range(W.shape[1])),
        # The bias, column 0, has no delta.
        "delta_reduce": (back.shape, (len(back), n_in + 1), len(back), range(1, n_in + 1)),
        "update_weights": (W.shape, weights, update.ROWS, neurons),
    }
    (launch,) = (one for one in launches if one.kernel.py_func.__name__ == name)
    return Walk(launch, *walks[name])


def draw_walk(name: str) -> Figure:
    """A kernel of CAPTIONS on a small layer: its grid of blocks, and below a warp of one block."""
    walk, caption = make_walk(name), CAPTIONS[name]
    shared = name == "delta_partial" or caption.shared
    figure = new_figure(f"{name}: {caption.title}", 5.2 if shared else 4)
    grid, warp = figure.subplots(2, 1)
    _draw_grid(grid, walk, caption)
    styles = {"one block": BLOCK, "one thread's cells": THREAD, "one warp at one step": WARP_STEP}
    if name == "delta_partial":
        _draw_patch(warp, caption)
    else:
        _draw_warp(warp, walk, caption)
        styles |= {"idle threads": IDLE}
    if shared:
        styles |= {"in shared memory": SHARED}
    add_legend(figure, styles | {f"padding to {WARP}": PADDING})
    return figure


def _draw_grid(axes: Axes, walk: Walk, caption: Caption) -> None:
    """The matrix and its padding, all blocks, one of them outlined, and the path of a thread."""
    (rows, columns), (used_rows, used_columns) = walk.shape, walk.used
    threads, (across, down) = walk.threads, walk.launch.grid
    for start, stop in ((0, walk.working.start), (walk.working.stop, across * threads)):
        draw_box(axes, start, 0, stop - start, down * walk.rows, IDLE)
    draw_box(axes, used_columns, 0, columns - used_columns, rows, PADDING)
    draw_box(axes, 0, used_rows, used_columns, rows - used_rows, PADDING)
    draw_blocks(axes, (across, down), (threads, walk.rows), caption.block)
    draw_box(axes, 0, 0, columns, rows, OUTLINE | {"edgecolor": "black", "linewidth": 1})
    path = walk.cells(caption.block, caption.thread)
    draw_cells(axes, path, THIN_THREAD, f"thread {caption.thread}")
    title = f"{rows} x {columns} numbers, {used_rows} x {used_columns} of them in use; "
    title += f"grid of {across} x {down} blocks of {threads} threads"
    right, bottom = max(columns, across * threads), max(rows, down * walk.rows)
    set_scaled(axes, right, bottom, caption.column_label, caption.row_label, title)


def _draw_warp(axes: Axes, walk: Walk, caption: Caption) -> None:
    """The warp of a thread: rows of the block down, threads across."""
    first, rows = caption.thread // WARP * WARP, walk.rows
    own, column = caption.thread - first, caption.block[0] * walk.threads + first
    idle = [i for i in range(WARP) if column + i not in walk.working]
    busy = [i for i in range(WARP) if i not in idle]
    draw_lines(axes, 0, WARP, rows)
    draw_cells(axes, [(row, i) for row in range(rows) for i in idle], IDLE, "idle")
    draw_cells(axes, [(row, own) for row in range(rows)], THREAD, "own")
    draw_arrow(axes, (own + 0.5, 0), (own + 0.5, rows), "white")
    step = rows // 3
    draw_box(axes, busy[0], step, len(busy), 1, WARP_STEP, "step")
    side = f"at each step {len(busy)} threads\n{caption.verb} {len(busy)} numbers\n"
    add_text(axes, WARP + 1, step + 0.5, side + "side by side: coalesced", ha="left")
    if caption.shared:
        draw_cells(axes, [(row, -3) for row in range(rows)], SHARED, "shared")
        text = f"{rows} {caption.shared},\nloaded by\n{rows} threads"
        add_text(axes, -4, rows / 2, text, ha="right")
    if caption.result:
        top, height = 1.1 * rows, rows / 12
        for i in range(WARP):
            style = IDLE if i in idle else THREAD if i == own else OUTLINE
            draw_box(axes, i, top, 1, height, style)
        add_text(axes, WARP + 1, top + height / 2, caption.result, ha="left")
    title = f"threads {first} to {first + WARP - 1} of block {caption.block[0]}, {caption.block[1]}"
    set_bare(axes, (-11, WARP + 13), (0, 1.25 * rows if caption.result else rows), title)


def _draw_patch(axes: Axes, caption: Caption) -> None:
    """The patch of a block: loaded into shared memory by columns, summed by rows."""
    side, thread = backward.PATCH, caption.thread
    right, step = side + 20, side // 3  # right: where the patch is drawn again
    loaded, summed = patch_cells(thread)
    for left, cells, label in ((0, loaded, "loaded"), (right, summed, "summed")):
        draw_lines(axes, left, side, side)
        draw_cells(axes, [(row, left + column) for row, column in cells], THREAD, label)
    draw_box(axes, 0, step, side, 1, WARP_STEP)
    draw_box(axes, right + step, 0, 1, side, WARP_STEP)
    draw_arrow(axes, (thread + 0.5, 0), (thread + 0.5, side), "white")
    draw_arrow(axes, (right, thread + 0.5), (right + side, thread + 0.5), "white")
    draw_arrow(axes, (side + 1, side / 2), (right - 1, side / 2), "black")
    add_text(axes, (side + right) / 2, side / 2 - 1, "to shared\nmemory", va="bottom")
    apart = f"its rows are\n{backward.STRIDE} words apart"
    add_text(axes, (side + right) / 2, side / 2 + 1, apart, va="top")
    draw_cells(axes, [(-3, right + j) for j in range(side)], SHARED, "shared")
    add_text(axes, right - 1, -2.5, "deltas", ha="right")
    for i in range(side):
        draw_box(axes, right + side + 3, i, 1.5, 1, THREAD if i == thread else OUTLINE)
    add_text(axes, right + side + 5.5, side / 2, "one partial\nsum per\nthread", ha="left")
    add_text(
        axes, side / 2, -0.5, f"each of {side} threads reads a column:\ncoalesced", va="bottom"
    )
    add_text(axes, right + side / 2, -3.5, "then it sums a row, times deltas", va="bottom")
    set_bare(axes, (-2, right + side + 14), (-9, side))


def patch_cells(thread: int) -> tuple[np.ndarray, np.ndarray]:
    """The (row, column) in the patch of delta_partial that a thread loads, and that it sums."""
    own, every = np.full(backward.PATCH, thread), np.arange(backward.PATCH)
    return np.column_stack((every, own)), np.column_stack((own, every))


def draw_banks() -> Figure:
    """Why the patch of delta_partial has rows of 33 words in shared memory: its banks."""
    side, column = backward.PATCH, 5
    title = f"delta_partial: {side} threads read column {column} of the patch from shared memory"
    figure = new_figure(title, 6)
    panels = figure.subplots(1, 2)
    for axes, stride in zip(panels, (side, backward.STRIDE), strict=True):
        banks = (np.arange(side)[:, None] * stride + np.arange(stride)) % BANKS
        edges = (0, stride, side, 0)
        image = axes.imshow(banks, "cividis", aspect="auto", vmin=0, vmax=BANKS - 1, extent=edges)
        draw_box(axes, side, 0, stride - side, side, PADDING)
        draw_box(axes, column, 0, 1, side, BLOCK)
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


def batch_cells(thread: int) -> np.ndarray:
    """The (image, neuron) in the tile of forward_batch that a thread computes, int64 (16, 2)."""
    x, y = thread % evaluate.SIDE, thread // evaluate.SIDE
    apart = evaluate.SIDE * np.arange(evaluate.EACH)
    return np.array([(y + r, x + c) for r in apart for c in apart])


def draw_batch() -> Figure:
    """forward_batch: a block computes a tile of 64 images x 64 neurons, a thread 4 x 4 of them."""
    H, Y = np.zeros((N_IMAGES, N_IN)), np.zeros((N_IMAGES, N_OUT))
    launch = evaluate.evaluate([H, Y], [np.zeros((pad32(N_IN + 1), pad32(N_OUT)))])[0]
    (across, down), tile, thread = launch.grid, evaluate.TILE, 37
    right, bottom = across * tile, down * tile
    figure = new_figure("forward_batch: many images at once, for evaluation", 4.6)
    whole, part = figure.subplots(1, 2, width_ratios=(1, 1.25))
    draw_box(whole, N_OUT, 0, right - N_OUT, bottom, IDLE)
    draw_box(whole, 0, N_IMAGES, N_OUT, bottom - N_IMAGES, IDLE)
    draw_blocks(whole, (across, down), (tile, tile), (1, 1))
    title = f"{N_IMAGES} x {N_OUT} states; grid of {across} x {down}\nblocks of "
    set_scaled(whole, right, bottom, "neuron", "image", title + f"{launch.threads} threads")
    whole.set_aspect("equal")

    depth, own = evaluate.DEPTH, batch_cells(thread)
    before = -3 - depth  # where what is in shared memory begins
    draw_box(part, 0, 0, tile, tile, OUTLINE)
    draw_box(part, before, 0, depth, tile, SHARED)
    draw_box(part, 0, before, tile, depth, SHARED)
    for row, column in own:
        draw_box(part, before, row, depth, 1, THREAD)
        draw_box(part, column, before, 1, depth, THREAD)
    draw_cells(part, own, THREAD, "own")
    add_text(part, before, tile + 1, f"{depth} inputs of\n{tile} images", ha="left", va="top")
    add_text(part, tile + 1, before + depth / 2, f"{depth} x {tile}\nweights", ha="left")
    title = f"tile of {tile} x {tile} states: thread {thread} sums {evaluate.EACH} x "
    title += f"{evaluate.EACH}\nof them in registers, {depth} inputs at a time"
    set_bare(part, (before - 1, tile + 14), (before - 1, tile + 9), title)
    part.set_aspect("equal")
    styles = {"one block": BLOCK, "one thread": THREAD, "in shared memory": SHARED}
    add_legend(figure, styles | {"no image or no neuron": IDLE})
    return figure


PANELS = {
    "pick_image": Panel("one", (1, 0), (110, 0), "", "pixel of the image"),
    "softmax_rows": Panel("a row", (1, 0), (10, 0), "row: image", "column: class"),
}


def make_mosaics(n_images: int = N_IMAGES, n_in: int = SIDE * SIDE) -> dict[str, Mosaic]:
    """The kernels of PANELS: an image of n_in pixels, and the outputs for n_images images."""
    h, images = np.zeros(n_in, np.float32), np.zeros((1, n_in), np.float32)
    order, step = np.zeros(1, int), np.zeros(1, int)
    Y = np.zeros((n_images, N_CLASSES), np.float32)
    (picking,) = pick.pick(h, images, order, step)
    (softmax,) = evaluate.evaluate([Y], [])
    return {
        "pick_image": Mosaic(picking, images.shape),
        "softmax_rows": Mosaic(softmax, Y.shape, each=(1, N_CLASSES), down=True),
    }


def draw_ends() -> Figure:
    """What is before the first layer and after the last: an image is picked; softmax of a batch."""
    figure = new_figure("Before the first layer in training, after the last in evaluation", 4.4)
    panels = figure.subplots(2, 1, height_ratios=(1, 4))
    for axes, (name, mosaic) in zip(panels, make_mosaics().items(), strict=True):
        draw_mosaic(axes, name, mosaic, PANELS[name])
    panels[0].set_yticks([])
    add_legend(figure, {"one block": BLOCK, "what a thread computes": THREAD, **WARP_AND_IDLE})
    return figure


# Each picture by its name.
DRAWINGS: dict[str, Callable[[], Figure]] = {
    **{f"threads_{name}": partial(draw_walk, name) for name in CAPTIONS},
    "threads_banks": draw_banks,
    "threads_convolve_field": thread_maps_deform.draw_convolution,
    "threads_forward_batch": draw_batch,
    "threads_deform_tiles": thread_maps_deform.draw_tiles,
    "threads_ends": draw_ends,
    "threads_stages": thread_maps_deform.draw_stages,
    "threads_convolve_maps": thread_maps_cnn.draw_forward,
    "threads_pull_deltas": thread_maps_cnn.draw_pulling,
    "threads_adjust_weights": thread_maps_cnn.draw_adjusting,
    "threads_maps": thread_maps_cnn.draw_others,
    "vector_tile": tile_drawing.draw_tile,
    **thread_maps_window.DRAWINGS,
    **thread_maps_ladder.DRAWINGS,
    "block_of_images": block_drawing.draw_block,
}
