"""How the window's kernels map their threads to data, drawn as in `thread_maps`."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deepbig_runtime.gpu import WARP, Launch
from experiments.drawing.thread_drawing import (
    BLOCK,
    IDLE,
    OUTLINE,
    READ,
    SHARED,
    THREAD,
    WARP_AND_IDLE,
    Mosaic,
    Panel,
    add_legend,
    add_text,
    draw_blocks,
    draw_box,
    draw_cells,
    draw_lines,
    draw_mosaic,
    new_figure,
    set_bare,
    set_scaled,
)
from mlp_gpu.network import pad32
from mlp_gpu.window import blocks, products, progress, sums

N_IN, N_OUT, N_BLOCK, N_CLASSES = 200, 300, 128, 10  # of the layers that are drawn
FIRST, END = 40, 72  # the window
THREAD_SHOWN = 37


def numbers(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def make_launches(
    n_in: int = N_IN, n_out: int = N_OUT, n_block: int = N_BLOCK, first: int = FIRST, end: int = END
) -> dict[str, Launch]:
    """The launches of a net with a layer of these sizes, by kernel."""
    rows, columns = pad32(n_in + 1), pad32(n_out)
    W, eta = numbers(rows, columns), np.zeros(1, np.float32)
    H, D = numbers(n_block, rows), numbers(n_block, columns)
    H_next, ring = numbers(n_block, pad32(n_out + 1)), progress.MAX_WINDOW
    now, done, begun = (progress.at_start(n_block, 2 * n_block) for _ in range(3))
    now[[progress.FIRST, progress.END, progress.SWEPT]] = first, end, end
    done[progress.FIRST] = n_block
    A = np.zeros(products.partial_shape(rows, columns, n_block, ring), np.float32)
    E = np.zeros(products.partial_shape(columns, rows, n_block, ring), np.float32)
    epoch = {"losses": numbers(2 * n_block), "labels": np.zeros(1, np.uint8)}
    order = epoch["order"] = np.zeros(2 * n_block, int)
    changes = np.zeros(sums.changes_shape((n_in, n_out)), np.float32)
    before, classes = numbers(n_block, pad32(n_in)), numbers(n_block, pad32(N_CLASSES))
    activations = numbers(n_block, pad32(N_CLASSES + 1))
    found = [
        *products.forward(A, now, H, W),
        *products.backward(E, now, D, W),
        *sums.forward(H_next, A, now, D, eta, n_out, True),
        *sums.backward(before, changes, E, now, H, eta, 0, n_in),
        *sums.outputs(classes, changes, now, activations, epoch, N_CLASSES),
        *progress.slide(now, changes),
        *blocks.gather(H, begun, numbers(1, n_in), order),
        *blocks.update(W, done, H, D, eta, n_in, n_out),
        *progress.end_block(done, n_block, 2 * n_block),
    ]
    return {launch.kernel.py_func.__name__: launch for launch in found}


def spread(thread: int, across: int, down: int, each: tuple[int, int]) -> np.ndarray:
    """The (row, column) of a block's tile that a thread takes, int64 (n, 2).

    Threads lie across first; a thread takes so many rows and columns, `down` and `across` apart.
    """
    x, y = thread % across, thread // across
    rows, columns = (np.arange(n) for n in each)
    return np.array([(y + down * r, x + across * c) for r in rows for c in columns])


def product_cells(thread: int) -> np.ndarray:
    """Of forward_products and backward_products: (image, column)."""
    return spread(thread, products.X, products.Y, (products.EACH, products.EACH))


def sum_cells(thread: int) -> np.ndarray:
    """Of forward_states and backward_deltas: (image, neuron)."""
    return spread(thread, sums.NEURONS, sums.GROUPS, (sums.EACH, 1))


def update_cells(thread: int) -> np.ndarray:
    """Of update_weights_of_block: (row, column) of W."""
    return spread(thread, blocks.SIDE, blocks.SIDE, (blocks.EACH, blocks.EACH))


def change_cells(thread: int, tiles: int) -> list[tuple[int, int]]:
    """Of slide_window: the (tile, image) of a layer whose largest change a thread reads."""
    image, group = divmod(thread, progress.GROUPS)
    return [(tile, image) for tile in range(group, tiles, progress.GROUPS)]


@dataclass(frozen=True)
class Tiled:
    """A kernel whose blocks each take a tile of a matrix.

    shape: of the matrix. more: columns of a second one beside it. tile: rows and columns that a
    block takes; made: of the result that it makes of them. cells: of the result, a thread's. block:
    the one that is outlined. inner: numbers at a time in shared memory, None: none are.
    """

    name: str
    shape: tuple[int, int]
    tile: tuple[int, int]
    made: tuple[int, int]
    cells: Callable[[int], np.ndarray]
    block: tuple[int, int]
    labels: tuple[str, str]
    said: str
    more: int = 0
    inner: int | None = None


def tiled_kernels() -> dict[str, Tiled]:
    """The kernels of tiles."""
    rows, columns = pad32(N_IN + 1), pad32(N_OUT)
    of_images = products.IMAGES, products.COLUMNS
    depth, back_depth = (
        products.depth_of(inner, other, N_BLOCK)
        for inner, other in ((rows, columns), (columns, rows))
    )
    products_said = "sums 4 x 4 of\nthe products, in registers"
    sums_said = "sums the parts of 2\nimages and corrects them"
    found = [
        Tiled(
            "forward_products",
            (rows, columns),
            (depth, products.COLUMNS),
            of_images,
            product_cells,
            (2, 1),
            ("column of W: neuron; then image", "row of W: input"),
            products_said,
            N_BLOCK,
            products.DEPTH,
        ),
        Tiled(
            "backward_products",
            (columns, rows),
            (back_depth, products.COLUMNS),
            of_images,
            product_cells,
            (1, 2),
            ("row of W: input; then image", "column of W: neuron"),
            products_said,
            N_BLOCK,
            products.DEPTH,
        ),
        Tiled(
            "forward_states",
            (END - FIRST, N_OUT),
            (sums.IMAGES, sums.NEURONS),
            (sums.IMAGES, sums.NEURONS),
            sum_cells,
            (2, 1),
            ("neuron", "image of\nthe window"),
            sums_said,
        ),
        Tiled(
            "backward_deltas",
            (END - FIRST, N_IN),
            (sums.IMAGES, sums.NEURONS),
            (sums.IMAGES, sums.NEURONS),
            sum_cells,
            (1, 2),
            ("neuron of the layer before", "image of\nthe window"),
            sums_said,
        ),
        Tiled(
            "update_weights_of_block",
            (rows, columns),
            (blocks.TILE, blocks.TILE),
            (blocks.TILE, blocks.TILE),
            update_cells,
            (1, 1),
            ("column of W: neuron", "row of W: input"),
            f"updates 4 x 4 weights,\n{blocks.IMAGES} images at a time",
            inner=blocks.IMAGES,
        ),
    ]
    return {kernel.name: kernel for kernel in found}


def draw_whole(axes: Axes, kernel: Tiled, launch: Launch) -> None:
    """All blocks over the matrix, one of them outlined."""
    rows, columns = kernel.shape
    across, down = launch.grid[:2]
    right, bottom = across * kernel.tile[1], down * kernel.tile[0]
    draw_box(axes, 0, 0, right, bottom, IDLE)
    draw_box(axes, 0, 0, columns, rows, OUTLINE | {"facecolor": "white"})
    if kernel.more:
        left = -(-columns // kernel.tile[1]) * kernel.tile[1]
        draw_box(axes, left, 0, kernel.more, rows, READ, "images")
    draw_blocks(axes, (across, down), kernel.tile[::-1], kernel.block)
    title = f"{kernel.name}:\ngrid of {across} x {down} blocks\nof {launch.threads} threads"
    set_scaled(axes, right, bottom, *kernel.labels, title)


def draw_tile(axes: Axes, kernel: Tiled) -> None:
    """What a block makes, and a thread of it; beside it what is in shared memory."""
    rows, columns = kernel.made
    own = kernel.cells(THREAD_SHOWN)
    draw_box(axes, 0, 0, columns, rows, OUTLINE)
    before = -3 - (kernel.inner or 0)
    if kernel.inner:
        draw_box(axes, before, 0, kernel.inner, rows, SHARED)
        draw_box(axes, 0, before, columns, kernel.inner, SHARED)
        for row, column in own:
            draw_box(axes, before, row, kernel.inner, 1, THREAD)
            draw_box(axes, column, before, 1, kernel.inner, THREAD)
    else:  # scalar products with all images before
        draw_box(axes, -20, 0, 17, rows, SHARED)
        add_text(axes, -11, rows + 2.5, f"{rows} rows of G")
        for row, _ in own:
            draw_box(axes, -20, row, 17, 1, THREAD)
    draw_cells(axes, own, THREAD, "own")
    title = f"{rows} x {columns} results:\nthread {THREAD_SHOWN} {kernel.said}"
    set_bare(axes, (min(before, -20) - 1, columns + 1), (before, rows + 3), title)
    axes.set_aspect("equal")


def draw_pair(title: str, names: tuple[str, ...], height: float) -> Figure:
    """Kernels of tiles below each other: all blocks, and one."""
    figure = new_figure(title, height)
    launches, kernels = make_launches(), tiled_kernels()
    panels = figure.subplots(len(names), 2, squeeze=False, width_ratios=(1.4, 1))
    for (whole, part), name in zip(panels, names, strict=True):
        draw_whole(whole, kernels[name], launches[name])
        draw_tile(part, kernels[name])
    styles = {"one block": BLOCK, "one thread": THREAD, "in shared memory": SHARED}
    if any(kernels[name].more for name in names):
        styles |= {"rows of H or D of the block's images": READ}
    add_legend(figure, styles | {"nothing": IDLE})
    return figure


def draw_products() -> Figure:
    title = "Window, stage 1: products of 32 images with a matrix, and with the block's images"
    return draw_pair(title, ("forward_products", "backward_products"), 6.2)


def draw_sums() -> Figure:
    title = "Window, stage 2: parts are summed, corrected, and become states or deltas"
    return draw_pair(title, ("forward_states", "backward_deltas"), 4.4)


def draw_blocks_and_progress() -> Figure:
    """What is done once a block, and what ends a sweep and a block."""
    figure = new_figure("Window: once a block, and at the end of a sweep", 7.4)
    launches, kernel = make_launches(), tiled_kernels()["update_weights_of_block"]
    (whole, part), (gather, outputs), (slide, ending) = figure.subplots(3, 2)
    draw_whole(whole, kernel, launches[kernel.name])
    draw_tile(part, kernel)
    panel = Panel("one", (0, 4), (110, 0), "image of the block", "pixel")
    few = 8  # images in a block, so that they can be seen
    mosaic = Mosaic(make_launches(n_block=few)["gather_images"], (few, N_IN))
    draw_mosaic(gather, "gather_images", mosaic, panel)
    launch = launches["output_deltas"]
    shown = 5
    draw_lines(outputs, 0, N_CLASSES, launch.grid[1])
    draw_box(outputs, 0, 11, N_CLASSES, 1, BLOCK, "block 0, 11")
    draw_cells(outputs, [(11, shown)], THREAD, "own")
    title = f"output_deltas:\ngrid of 1 x {launch.grid[1]} blocks of {WARP} threads,\n"
    title += "a thread a class"
    set_scaled(outputs, N_CLASSES, launch.grid[1], "class", "image of the window", title)
    launch = launches["slide_window"]
    tiles = launch.arguments[1].shape[2]
    draw_lines(slide, 0, progress.MAX_WINDOW, tiles)
    thread = 5 * progress.GROUPS + 1
    draw_cells(slide, change_cells(thread, tiles), THREAD, "own")
    title = f"slide_window: one block of {launch.threads}\nthreads takes each layer's {tiles} "
    title += f"tiles\nof changes; thread {thread} reads"
    set_scaled(slide, progress.MAX_WINDOW, tiles, "image of the window", "tile", title)
    set_bare(ending, (0, 10), (0, 6), "next_block: one thread,\nthe numbers of progress")
    names = ["START", "BLOCK", "FIRST", "END", "SWEPT", "WINDOW", "TIMES", "SWEEPS", "ALL_TIMES"]
    for place, name in enumerate(names):
        row, column = place // 3, place % 3
        draw_box(ending, 3.4 * column, 1.8 * row, 3.1, 1.3, OUTLINE, name)
        add_text(ending, 3.4 * column + 1.55, 1.8 * row + 0.65, name.lower().replace("_", " "))
    styles = {"one block": BLOCK, "one thread": THREAD, "in shared memory": SHARED}
    add_legend(figure, styles | WARP_AND_IDLE)
    return figure


DRAWINGS: dict[str, Callable[[], Figure]] = {
    "threads_window_products": draw_products,
    "threads_window_sums": draw_sums,
    "threads_window_blocks": draw_blocks_and_progress,
}
