"""How the kernels of the deformation map their threads to data, drawn (see `thread_maps`)."""

import numpy as np
from matplotlib.figure import Figure

from deepbig_runtime.gpu import WARP
from deform_gpu import TABLE1
from deform_gpu.field import GRID, KERNEL, MARGIN
from deform_gpu.kernels import listing1, matrices, stages, tiles
from deform_gpu.parameters import SIDE
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
    Mosaic,
    Panel,
    add_legend,
    draw_box,
    draw_cells,
    draw_mosaic,
    new_figure,
    set_bare,
    set_scaled,
)
from mlp_gpu.network import pad32

N_IMAGES = 150  # whose matrices are drawn
FIELD_SIDE = 3  # pixels of the images whose field is drawn: its cells can still be seen

PANELS = {
    "draw_matrices": Panel(
        "a row", (0, 0), (40, 0), "row: image", "column: yy, yx, y1, xy, xx, x1"
    ),
    "fill_field": Panel("two", (0, 1), (12, 3), "row of the field", "column"),
    "convolve_columns": Panel(f"one from {KERNEL}", (0, 1), (12, 5), "row of the sums", "column"),
    "convolve_rows": Panel(
        f"one from {KERNEL}", (0, 1), (12, 5), "row of the displacement", "column"
    ),
    "warp_images": Panel("one", (0, 1), (12, 3), "row of the image", "column"),
}


def strip_cells(thread: tuple[int, int]) -> np.ndarray:
    """The (row, column) of convolve_field's region that thread (x, y) sums, int64 (21, 2)."""
    x, y = thread
    return np.column_stack((y + np.arange(KERNEL), np.full(KERNEL, x)))


def draw_convolution() -> Figure:
    """Listing 1: a block computes ten cells of a column, a thread sums a vertical strip of 21."""
    inner = GRID * SIDE
    padded = inner + KERNEL - 1
    stride, rows, region = pad32(padded), listing1.ROWS, listing1.REGION
    field, out = np.zeros((padded, stride)), np.zeros((inner, pad32(inner)))
    (launch,) = listing1.convolve(out, field, np.zeros((KERNEL, pad32(KERNEL))), 1.0, inner)
    (across, down), (left, y_block), (x, y) = launch.grid, (120, 12), (6, 3)
    top = rows * y_block
    figure = new_figure("convolve_field: the elastic field (2010, Listing 1)", 4.4)
    whole, cells, sums = figure.subplots(1, 3, width_ratios=(2.2, 1.4, 1.6))

    draw_box(whole, padded, 0, stride - padded, padded, PADDING)
    draw_box(whole, 0, 0, padded, padded, IDLE)
    draw_box(whole, MARGIN, MARGIN, inner, inner, OUTLINE | {"facecolor": "white"})
    draw_box(whole, left, top, KERNEL, region, BLOCK, "read")
    draw_box(whole, left + MARGIN, top + MARGIN, 1, rows, WARP_STEP, "made")
    title = f"{padded} x {padded} cells of a field,\n{inner} x {inner} without its zero margin;\n"
    title += f"grid of {across} x {down} blocks"
    set_scaled(whole, stride, padded, "column of the field", "row of the field", title)
    whole.set_aspect("equal")

    for axes, height in ((cells, region), (sums, rows)):
        draw_cells(axes, np.argwhere(np.ones((height, KERNEL))), SHARED, "shared")
    draw_cells(cells, strip_cells((x, y)), THREAD, "own")
    title = f"{region} x {KERNEL} cells in shared\nmemory: thread {x}, {y}\n"
    set_bare(cells, (-1, KERNEL + 1), (0, region), title + f"sums {KERNEL} products")
    draw_cells(sums, [(y, x)], THREAD, "own")
    draw_box(sums, 0, y, KERNEL, 1, WARP_STEP)
    for i in range(rows):
        draw_box(sums, KERNEL + 2, i, 1, 1, WARP_STEP if i == y else OUTLINE)
    title = f"{rows} x {KERNEL} sums there: the\nfirst thread of a row adds\n"
    set_bare(sums, (-1, KERNEL + 4), (0, region), title + f"up {KERNEL}, for a cell")
    styles = {
        "what a block reads": BLOCK,
        "what is computed": WARP_STEP,
        "in shared memory": SHARED,
    }
    styles |= {"one thread": THREAD, "margin of zeros": IDLE, f"padding to {WARP}": PADDING}
    add_legend(figure, styles)
    return figure


def tile_cells(thread: int) -> dict[str, np.ndarray]:
    """What a thread of deform_tiles computes: (row, column), int64 (n, 2), of each of three stages.

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
    figure = new_figure(title, 3.6)
    for axes, (name, (shape, title)) in zip(
        figure.subplots(1, 3, sharex=True, sharey=True), panels.items(), strict=True
    ):
        height, width = shape
        draw_box(axes, 0, 0, width, height, OUTLINE if name == "warped" else SHARED)
        draw_cells(axes, cells[name], THREAD, name)
        title += f"\n({height} x {width})"
        set_scaled(axes, columns, tiles.FIELD_ROWS, "column", "row", title)
        axes.set_aspect("equal")
    add_legend(figure, {"in shared memory": SHARED, f"what thread {thread} computes": THREAD})
    return figure


def make_mosaics(
    n_images: int = N_IMAGES, field_side: int = FIELD_SIDE, side: int = SIDE
) -> dict[str, Mosaic]:
    """The five stages of the deformation of PANELS, as kernels of their own.

    n_images: whose matrices are drawn. field_side: pixels of the images of the batch whose field is
    drawn and convolved. side: of the image that is warped.
    """
    affine, beta = np.zeros((n_images, 2, 3), np.float32), np.zeros(n_images, np.float32)
    scratch = [np.zeros(shape, np.float32) for shape in stages.scratch_shapes(1, field_side)]
    weights, image = np.zeros(KERNEL, np.float32), np.zeros((1, side, side), np.float32)
    key = (np.uint32(0),) * 3
    (draw,) = matrices.draw(affine, beta, TABLE1, key, 0, side)
    fill, columns, rows = stages.displace(scratch, weights, TABLE1, key, 0)
    (warp,) = stages.warp(image.copy(), image, affine, scratch[-1], TABLE1, 0)
    field, sums, displacement = (array.shape[2:] for array in scratch)
    return {
        "draw_matrices": Mosaic(draw, (n_images, 6), each=(1, 6), down=True),
        "fill_field": Mosaic(fill, field, each=(2, 1)),
        "convolve_columns": Mosaic(columns, sums, reads=(KERNEL, 1)),
        "convolve_rows": Mosaic(rows, displacement, reads=(1, KERNEL)),
        "warp_images": Mosaic(warp, (side, side)),
    }


def draw_stages() -> Figure:
    """The stages of the deformation as kernels of their own: matrices, field, sums, pixels."""
    title = "The deformation, one kernel per stage: matrices, field, sums, displacement, pixels\n"
    title += f"(field to displacement: a batch of images of {FIELD_SIDE} x {FIELD_SIDE} pixels, "
    title += "y and x alike)"
    figure = new_figure(title, 8.6)
    first, *others = PANELS
    places: list = [[first, first], others[:2], others[2:]]
    panels = figure.subplot_mosaic(places, height_ratios=(1.2, 3, 3))
    for name, mosaic in make_mosaics().items():
        draw_mosaic(panels[name], name, mosaic, PANELS[name])
    for name in others:
        panels[name].set_aspect("equal")
    styles = {"one block": BLOCK, "what a thread computes": THREAD, "what it reads for that": READ}
    add_legend(figure, styles | WARP_AND_IDLE)
    return figure
