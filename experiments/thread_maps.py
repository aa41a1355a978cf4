"""How each hand-written kernel maps its threads to data, drawn on a small layer.

Grids, blocks and padding are those of the launches that the kernels' own functions make. Which
cells a thread takes is said here once more; the tests compare it with what the kernels touch.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from deform_gpu.field import GRID, KERNEL, MARGIN, SIDE
from deform_gpu.kernels import listing1, tiles
from experiments.kernels import BANKS, words_a_bank
from experiments.plots import BLUE, GREY, ORANGE, SMALL, TEXT, TITLE, VERMILION, WIDTH
from mlp_gpu.gpu import WARP, Launch
from mlp_gpu.kernels import backward, evaluate, forward, update
from mlp_gpu.network import pad32

N_IN, N_OUT = 70, 300  # of the layer that is drawn: W has rows and columns of padding
N_IMAGES = 150  # of the batch that is drawn

# What a thread takes, what is in shared memory, what a warp takes at a step, blocks, and what
# nobody uses.
OWN = {"facecolor": BLUE, "edgecolor": "0.2", "linewidth": 0.4}
SHARED = {"facecolor": ORANGE, "edgecolor": "0.2", "linewidth": 0.4}
STEP = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.6, "zorder": 4}
BLOCK = {"facecolor": "none", "edgecolor": VERMILION, "linewidth": 2.2, "zorder": 3}
OTHER = {"facecolor": "none", "edgecolor": "0.4", "linewidth": 0.6}
PADDING = {"facecolor": "none", "edgecolor": GREY, "linewidth": 0, "hatch": "/////"}
IDLE = {"facecolor": "0.88", "edgecolor": "none"}


@dataclass(frozen=True)
class Walk:
    """A launch whose threads walk down a matrix, a column each.

    shape: of the matrix. used: its rows and columns that are not padding. rows: that a block takes.
    working: columns whose threads walk; the others do nothing.
    """

    launch: Launch
    shape: tuple[int, int]
    used: tuple[int, int]
    rows: int
    working: range

    def cells(self, block: tuple[int, int], thread: int) -> np.ndarray:
        """The (row, column) that a thread of block (x, y) reads, in that order, int64 (n, 2)."""
        column = block[0] * self.launch.threads + thread
        rows = block[1] * self.rows + np.arange(self.rows if column in self.working else 0)
        return np.column_stack((rows, np.full_like(rows, column)))


@dataclass(frozen=True)
class Words:
    """What the drawing of a walk says, and the block and the thread that it shows."""

    title: str
    block: tuple[int, int]
    thread: int
    row: str = "row of W: input\n(row 0: bias)"
    column: str = "column of W: neuron"
    shared: str = ""
    result: str = ""
    does: str = "read"


WORDS = {
    "forward_partial": Words(
        "forward, stage 1 (2010, Listing 2)", (0, 1), 100, shared="inputs", result="partial sum"
    ),
    "forward_reduce": Words(
        "forward, stage 2 (2010, Listing 2)",
        (3, 0),
        4,
        row="row: block\nof inputs",
        column="column of the partial sums: neuron",
        result="state y",
    ),
    "delta_partial": Words("deltas, stage 1 (2010, Listing 3)", (3, 1), 4),
    "delta_reduce": Words(
        "deltas, stage 2 (2010, Listing 3)",
        (0, 0),
        4,
        row="row: block\nof neurons",
        column="column of the partial sums: input (column 0: bias)",
        result="delta",
    ),
    "update_weights": Words(
        "the weight update (2010, Listing 4)", (0, 2), 100, shared="states", does="read, then write"
    ),
}


def make_walk(name: str, n_in: int = N_IN, n_out: int = N_OUT) -> Walk:
    """The walk of a kernel of WORDS on a hidden layer."""
    W = np.zeros((pad32(n_in + 1), pad32(n_out)), np.float32)
    h, y = np.zeros(n_in, np.float32), np.zeros(n_out, np.float32)
    sums = np.zeros(forward.partial_shape(W.shape, n_in), np.float32)
    back = np.zeros(backward.partial_shape(W.shape), np.float32)
    launches = forward.propagate_forward(y, sums, W, h)
    launches += backward.propagate_back(h, back, W, y, h)
    launches += update.update(W, h, y, 0.0)
    weights, neurons = (n_in + 1, n_out), range(n_out)
    walks = {
        "forward_partial": (W.shape, weights, forward.INPUTS, neurons),
        "forward_reduce": (sums.shape, (len(sums), n_out), len(sums), neurons),
        "delta_partial": (W.shape, weights, backward.PATCH, range(W.shape[1])),
        # The bias, column 0, has no delta.
        "delta_reduce": (back.shape, (len(back), n_in + 1), len(back), range(1, n_in + 1)),
        "update_weights": (W.shape, weights, update.ROWS, neurons),
    }
    (launch,) = (one for one in launches if one.kernel.py_func.__name__ == name)
    return Walk(launch, *walks[name])


def draw_walk(name: str) -> Figure:
    """A kernel of WORDS on a small layer: above the grid of blocks, below a warp of one of them."""
    walk, words = make_walk(name), WORDS[name]
    figure = _figure(f"{name}: {words.title}", 4 if name.endswith("_reduce") else 5.2)
    grid, warp = figure.subplots(2, 1)
    _draw_grid(grid, walk, words)
    styles = {"a block": BLOCK, "a thread's cells": OWN, "a warp's at one step": STEP}
    if name == "delta_partial":
        _draw_patch(warp, words)
    else:
        _draw_warp(warp, walk, words)
        styles |= {"idle threads": IDLE}
    if name == "delta_partial" or words.shared:
        styles |= {"in shared memory": SHARED}
    _legend(figure, styles | {f"padding to {WARP}": PADDING})
    return figure


def _draw_grid(axes: Axes, walk: Walk, words: Words) -> None:
    """The matrix and its padding, all blocks, one of them outlined, and the path of a thread."""
    (rows, columns), (used_rows, used_columns) = walk.shape, walk.used
    threads, (across, down) = walk.launch.threads, walk.launch.grid
    for start, stop in ((0, walk.working.start), (walk.working.stop, across * threads)):
        _box(axes, start, 0, stop - start, down * walk.rows, IDLE)
    _box(axes, used_columns, 0, columns - used_columns, rows, PADDING)
    _box(axes, 0, used_rows, used_columns, rows - used_rows, PADDING)
    _draw_blocks(axes, (across, down), (threads, walk.rows), words.block)
    _box(axes, 0, 0, columns, rows, OTHER | {"edgecolor": "black", "linewidth": 1})
    path = walk.cells(words.block, words.thread)
    thick = OWN | {"edgecolor": BLUE, "linewidth": 1.5}  # a cell is less than a point wide
    _draw_cells(axes, path, thick, f"thread {words.thread}")
    title = f"{rows} x {columns} numbers, {used_rows} x {used_columns} of them in use; "
    title += f"grid of {across} x {down} blocks of {threads} threads"
    right, bottom = max(columns, across * threads), max(rows, down * walk.rows)
    _scaled(axes, right, bottom, words.column, words.row, title)


def _draw_blocks(axes: Axes, grid: tuple, size: tuple, chosen: tuple) -> None:
    """The outlines of a grid of blocks. size: how wide and high they are."""
    for x, y in np.ndindex(grid):
        style = BLOCK if (x, y) == chosen else OTHER
        _box(axes, x * size[0], y * size[1], *size, style, f"block {x}, {y}")


def _draw_warp(axes: Axes, walk: Walk, words: Words) -> None:
    """The warp of a thread: rows of the block down, threads across."""
    first, rows = words.thread // WARP * WARP, walk.rows
    own, column = words.thread - first, words.block[0] * walk.launch.threads + first
    idle = [i for i in range(WARP) if column + i not in walk.working]
    _draw_lines(axes, 0, WARP, rows)
    _draw_cells(axes, [(row, i) for row in range(rows) for i in idle], IDLE, "idle")
    _draw_cells(axes, [(row, own) for row in range(rows)], OWN, "own")
    _arrow(axes, (own + 0.5, 0), (own + 0.5, rows), "white")
    step = rows // 3
    _box(axes, 0, step, WARP, 1, STEP, "step")
    side = f"at each step {WARP} threads\n{words.does} {WARP} numbers\nside by side: coalesced"
    _say(axes, WARP + 1, step + 0.5, side, ha="left")
    if words.shared:
        _draw_cells(axes, [(row, -3) for row in range(rows)], SHARED, "shared")
        text = f"{rows} {words.shared},\nbrought by\n{rows} threads"
        _say(axes, -4, rows / 2, text, ha="right")
    if words.result:
        top, height = 1.1 * rows, rows / 12
        for i in range(WARP):
            style = IDLE if i in idle else OWN if i == own else OTHER
            _box(axes, i, top, 1, height, style)
        _say(axes, WARP + 1, top + height / 2, f"a {words.result} a thread", ha="left")
    title = f"threads {first} to {first + WARP - 1} of block {words.block[0]}, {words.block[1]}"
    _bare(axes, (-11, WARP + 13), (0, 1.25 * rows if words.result else rows), title)


def _draw_patch(axes: Axes, words: Words) -> None:
    """The patch of a block: brought to shared memory by columns, added up by rows."""
    side, thread = backward.PATCH, words.thread
    right, step = side + 20, side // 3  # right: where the patch is drawn again
    brought, added = patch_cells(thread)
    for left, cells, label in ((0, brought, "brought"), (right, added, "added")):
        _draw_lines(axes, left, side, side)
        _draw_cells(axes, [(row, left + column) for row, column in cells], OWN, label)
    _box(axes, 0, step, side, 1, STEP)
    _box(axes, right + step, 0, 1, side, STEP)
    _arrow(axes, (thread + 0.5, 0), (thread + 0.5, side), "white")
    _arrow(axes, (right, thread + 0.5), (right + side, thread + 0.5), "white")
    _arrow(axes, (side + 1, side / 2), (right - 1, side / 2), "black")
    _say(axes, (side + right) / 2, side / 2 - 1, "to shared\nmemory", va="bottom")
    apart = f"its rows are\n{backward.STRIDE} words apart"
    _say(axes, (side + right) / 2, side / 2 + 1, apart, va="top")
    _draw_cells(axes, [(-3, right + j) for j in range(side)], SHARED, "shared")
    _say(axes, right - 1, -2.5, "deltas", ha="right")
    for i in range(side):
        _box(axes, right + side + 3, i, 1.5, 1, OWN if i == thread else OTHER)
    _say(axes, right + side + 5.5, side / 2, "a partial\nsum a\nthread", ha="left")
    _say(axes, side / 2, -0.5, f"each of {side} threads reads a column:\ncoalesced", va="bottom")
    _say(axes, right + side / 2, -3.5, "then it adds up a row, times deltas", va="bottom")
    _bare(axes, (-2, right + side + 14), (-9, side))


def patch_cells(thread: int) -> tuple[np.ndarray, np.ndarray]:
    """The (row, column) in the patch of delta_partial that a thread brings, and that it adds up."""
    own, every = np.full(backward.PATCH, thread), np.arange(backward.PATCH)
    return np.column_stack((every, own)), np.column_stack((own, every))


def draw_banks() -> Figure:
    """Why the patch of delta_partial has rows of 33 words in shared memory: its banks."""
    side, column = backward.PATCH, 5
    title = f"delta_partial: {side} threads read column {column} of the patch from shared memory"
    figure = _figure(title, 6)
    panels = figure.subplots(1, 2)
    for axes, stride in zip(panels, (side, backward.STRIDE), strict=True):
        banks = (np.arange(side)[:, None] * stride + np.arange(stride)) % BANKS
        edges = (0, stride, side, 0)
        image = axes.imshow(banks, "cividis", aspect="auto", vmin=0, vmax=BANKS - 1, extent=edges)
        _box(axes, side, 0, stride - side, side, PADDING)
        _box(axes, column, 0, 1, side, BLOCK)
        for row, bank in enumerate(banks[:, column]):
            axes.text(stride + 0.5, row + 0.5, f"{bank}", va="center", fontsize=SMALL)
        most = words_a_bank(np.arange(side) * stride + column)
        title = f"rows {stride} words apart: a bank has {most} of the {side} words,\n"
        title += f"so reading takes {most} turns" if most > 1 else "so all are read at once"
        _scaled(axes, stride, side, "word of the row", "row: thread (right: bank it reads)", title)
    bar = figure.colorbar(image, ax=panels, location="bottom", aspect=50, ticks=range(0, BANKS, 4))
    bar.set_label("bank of shared memory that has the word", fontsize=TEXT)
    bar.ax.tick_params(labelsize=TEXT)
    return figure


def strip_cells(thread: tuple[int, int]) -> np.ndarray:
    """The (row, column) of convolve_field's region that thread (x, y) adds up, int64 (21, 2)."""
    x, y = thread
    return np.column_stack((y + np.arange(KERNEL), np.full(KERNEL, x)))


def draw_convolution() -> Figure:
    """Listing 1: a block makes ten cells of a column, a thread a vertical strip of 21 products."""
    inner = GRID * SIDE
    padded = inner + KERNEL - 1
    stride, rows, region = pad32(padded), listing1.ROWS, listing1.REGION
    field, out = np.zeros((padded, stride)), np.zeros((inner, pad32(inner)))
    (launch,) = listing1.convolve(out, field, np.zeros((KERNEL, pad32(KERNEL))), 1.0, inner)
    (across, down), (left, y_block), (x, y) = launch.grid, (120, 12), (6, 3)
    top = rows * y_block
    figure = _figure("convolve_field: the elastic field (2010, Listing 1)", 4.4)
    whole, cells, sums = figure.subplots(1, 3, width_ratios=(2.2, 1.4, 1.6))

    _box(whole, padded, 0, stride - padded, padded, PADDING)
    _box(whole, 0, 0, padded, padded, IDLE)
    _box(whole, MARGIN, MARGIN, inner, inner, OTHER | {"facecolor": "white"})
    _box(whole, left, top, KERNEL, region, BLOCK, "read")
    _box(whole, left + MARGIN, top + MARGIN, 1, rows, STEP, "made")
    title = f"{padded} x {padded} cells of a field,\n{inner} x {inner} without its zero margin;\n"
    title += f"grid of {across} x {down} blocks"
    _scaled(whole, stride, padded, "column of the field", "row of the field", title)
    whole.set_aspect("equal")

    for axes, height in ((cells, region), (sums, rows)):
        _draw_cells(axes, np.argwhere(np.ones((height, KERNEL))), SHARED, "shared")
    _draw_cells(cells, strip_cells((x, y)), OWN, "own")
    title = f"{region} x {KERNEL} cells in shared\nmemory: thread {x}, {y}\n"
    _bare(cells, (-1, KERNEL + 1), (0, region), title + f"adds up {KERNEL} products")
    _draw_cells(sums, [(y, x)], OWN, "own")
    _box(sums, 0, y, KERNEL, 1, STEP)
    for i in range(rows):
        _box(sums, KERNEL + 2, i, 1, 1, STEP if i == y else OTHER)
    title = f"{rows} x {KERNEL} sums there: the\nfirst thread of a row adds\n"
    _bare(sums, (-1, KERNEL + 4), (0, region), title + f"up {KERNEL}, for a cell")
    styles = {"what a block reads": BLOCK, "what is made": STEP, "in shared memory": SHARED}
    styles |= {"a thread's": OWN, "margin of zeros": IDLE, f"padding to {WARP}": PADDING}
    _legend(figure, styles)
    return figure


def batch_cells(thread: int) -> np.ndarray:
    """The (image, neuron) in the tile of forward_batch that a thread computes, int64 (16, 2)."""
    x, y = thread % evaluate.SIDE, thread // evaluate.SIDE
    apart = evaluate.SIDE * np.arange(evaluate.EACH)
    return np.array([(y + r, x + c) for r in apart for c in apart])


def draw_batch() -> Figure:
    """forward_batch: a block makes a tile of 64 images x 64 neurons, a thread 4 x 4 of them."""
    H, Y = np.zeros((N_IMAGES, N_IN)), np.zeros((N_IMAGES, N_OUT))
    launch = evaluate.evaluate([H, Y], [np.zeros((pad32(N_IN + 1), pad32(N_OUT)))])[0]
    (across, down), tile, thread = launch.grid, evaluate.TILE, 37
    right, bottom = across * tile, down * tile
    figure = _figure("forward_batch: many images at once, for evaluation", 4.6)
    whole, part = figure.subplots(1, 2, width_ratios=(1, 1.25))
    _box(whole, N_OUT, 0, right - N_OUT, bottom, IDLE)
    _box(whole, 0, N_IMAGES, N_OUT, bottom - N_IMAGES, IDLE)
    _draw_blocks(whole, (across, down), (tile, tile), (1, 1))
    title = f"{N_IMAGES} x {N_OUT} states; grid of {across} x {down}\nblocks of "
    _scaled(whole, right, bottom, "neuron", "image", title + f"{launch.threads} threads")
    whole.set_aspect("equal")

    depth, own = evaluate.DEPTH, batch_cells(thread)
    before = -3 - depth  # where what is in shared memory begins
    _box(part, 0, 0, tile, tile, OTHER)
    _box(part, before, 0, depth, tile, SHARED)
    _box(part, 0, before, tile, depth, SHARED)
    for row, column in own:
        _box(part, before, row, depth, 1, OWN)
        _box(part, column, before, 1, depth, OWN)
    _draw_cells(part, own, OWN, "own")
    _say(part, before, tile + 1, f"{depth} inputs of\n{tile} images", ha="left", va="top")
    _say(part, tile + 1, before + depth / 2, f"{depth} x {tile}\nweights", ha="left")
    title = f"tile of {tile} x {tile} states: thread {thread} adds up {evaluate.EACH} x "
    title += f"{evaluate.EACH}\nof them in registers, {depth} inputs at a time"
    _bare(part, (before - 1, tile + 14), (before - 1, tile + 9), title)
    part.set_aspect("equal")
    styles = {"a block": BLOCK, "a thread's": OWN, "in shared memory": SHARED}
    _legend(figure, styles | {"no image or no neuron": IDLE})
    return figure


def tile_cells(thread: int) -> dict[str, np.ndarray]:
    """What a thread of deform_tiles makes: (row, column), int64 (n, 2), of each of three stages.

    drawn: cells of the random field. convolved: of the sums down its columns, of the y axis.
    warped: pixels of the tile.
    """
    pairs = np.arange(thread, tiles.PAIRS * tiles.REGION, tiles.THREADS)
    row, column = 2 * (pairs // tiles.REGION), pairs % tiles.REGION
    drawn = np.vstack((np.column_stack((row, column)), np.column_stack((row + 1, column))))
    strips = np.arange(thread, 2 * tiles.STRIPS * tiles.REGION, tiles.THREADS)
    strips = strips[strips // tiles.REGION % 2 == 0]
    top = tiles.STRIP * (strips // (2 * tiles.REGION))
    convolved = [
        (row + i, column)
        for row, column in zip(top, strips % tiles.REGION, strict=True)
        for i in range(tiles.STRIP)
    ]
    rows = np.arange(thread // WARP, tiles.TILE, tiles.THREADS // WARP)
    rows = rows if thread % WARP < tiles.TILE else rows[:0]
    warped = np.column_stack((rows, np.full_like(rows, thread % WARP)))
    return {"drawn": drawn, "convolved": np.array(convolved).reshape(-1, 2), "warped": warped}


def draw_tiles() -> Figure:
    """deform_tiles: a block draws its part of the field, convolves it, and moves the pixels."""
    thread, pixels, columns = 70, tiles.TILE, tiles.REGION
    cells = tile_cells(thread)
    panels = {
        "drawn": ((tiles.FIELD_ROWS, columns), "1. draw the field,\ntwo rows at a time"),
        "convolved": (
            (tiles.ROWS, columns),
            f"2. convolve down a column:\n{tiles.STRIP} sums from {tiles.STRIP_CELLS} cells",
        ),
        "warped": (
            (pixels, pixels),
            f"3. for a pixel convolve along\n{KERNEL} sums, then interpolate",
        ),
    }
    title = f"deform_tiles: {tiles.THREADS} threads deform a tile of {pixels} x {pixels} pixels"
    figure = _figure(title, 3.6)
    for axes, (name, (shape, title)) in zip(
        figure.subplots(1, 3, sharex=True, sharey=True), panels.items(), strict=True
    ):
        height, width = shape
        _box(axes, 0, 0, width, height, OTHER if name == "warped" else SHARED)
        _draw_cells(axes, cells[name], OWN, name)
        title += f"\n({height} x {width})"
        _scaled(axes, columns, tiles.FIELD_ROWS, "column", "row", title)
        axes.set_aspect("equal")
    _legend(figure, {"in shared memory": SHARED, f"what thread {thread} makes": OWN})
    return figure


def _figure(title: str, height: float) -> Figure:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.suptitle(title, fontsize=TITLE)
    return figure


def _box(axes: Axes, left, top, width, height, style: dict, label: str = "") -> None:
    axes.add_patch(Rectangle((left, top), width, height, label=label, **style))


def _draw_cells(axes: Axes, cells: Collection, style: dict, label: str) -> None:
    """Cells (row, column), each a square."""
    squares = [Rectangle((column, row), 1, 1) for row, column in cells]
    axes.add_collection(PatchCollection(squares, **style, label=label))


def _draw_lines(axes: Axes, left: int, columns: int, rows: int) -> None:
    """The thin lines between cells, from row 0 on."""
    lines = [[(x, 0), (x, rows)] for x in range(left, left + columns + 1)]
    lines += [[(left, y), (left + columns, y)] for y in range(rows + 1)]
    axes.add_collection(LineCollection(lines, colors="0.75", linewidths=0.5, zorder=0))


def _arrow(axes: Axes, start: tuple, end: tuple, color: str) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": color, "lw": 1.5})


def _say(axes: Axes, x: float, y: float, text: str, ha: str = "center", va: str = "center") -> None:
    axes.text(x, y, text, ha=ha, va=va, fontsize=TEXT)


def _scaled(axes: Axes, right: int, bottom: int, across: str, down: str, title: str) -> None:
    """Axes that count columns to the right and rows down, from 0."""
    x, y = 0.01 * right, 0.02 * bottom
    axes.set(xlim=(-x, right + x), ylim=(bottom + y, -y))
    axes.set_xlabel(across, fontsize=TEXT)
    axes.set_ylabel(down, fontsize=TEXT)
    axes.set_title(title, fontsize=TEXT)
    axes.tick_params(labelsize=TEXT)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))


def _bare(axes: Axes, across: tuple, down: tuple, title: str = "") -> None:
    """Axes of a drawing that has no scale: its first and last x, its first and last y."""
    axes.set(xlim=across, ylim=(down[1] + 0.5, down[0] - 0.5))
    axes.set_title(title, fontsize=TEXT)
    axes.set_axis_off()


def _legend(figure: Figure, styles: dict[str, dict]) -> None:
    """What each style of the figure means, below it."""
    handles = [Patch(**style, label=label) for label, style in styles.items()]
    place = {"loc": "outside lower center", "ncols": 3, "frameon": False}
    figure.legend(handles=handles, fontsize=TEXT, **place)
