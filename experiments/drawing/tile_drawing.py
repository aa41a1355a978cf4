"""A drawing of the CPU's kernel: which numbers a tile multiplies at a step, and where it adds."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing.thread_drawing import (
    OUTLINE,
    READ,
    SHARED,
    THREAD,
    WARP_STEP,
    add_legend,
    add_text,
    draw_arrow,
    draw_box,
    new_figure,
    set_bare,
)
from mlp_gpu.vector_kernel import CHUNK, VECTORS, choose_rows

STEPS, STEP = 10, 4  # of a chunk that are drawn, and the one that is at work
GAP = 2.5  # between matrices


def draw_tile() -> Figure:
    """The tiles of vectors of 16 and of 8 numbers at one step."""
    figure = new_figure("The CPU's kernel: a tile of C = S + A B at one step of k", 6)
    for axes, (lanes, registers) in zip(figure.subplots(2, 1), ((16, 32), (8, 16)), strict=True):
        _draw(axes, lanes, registers)
    styles = {
        "vectors of a row of B, each loaded once": READ,
        "numbers of A, each in all lanes of a vector": SHARED,
        "accumulators": THREAD,
        "a vector register": WARP_STEP,
    }
    add_legend(figure, styles)
    return figure


def _draw(axes: Axes, lanes: int, registers: int) -> None:
    """B above, A on the left, and the accumulators of C where a row and a column meet."""
    rows, columns, corner = choose_rows(lanes), VECTORS * lanes, STEPS + GAP
    draw_box(axes, corner, 0, columns, STEPS, OUTLINE)
    draw_box(axes, 0, corner, STEPS, rows, OUTLINE)
    draw_box(axes, corner, STEP, columns, 1, READ)
    draw_box(axes, STEP, corner, 1, rows, SHARED)
    draw_box(axes, corner, corner, columns, rows, THREAD)
    for left in range(0, columns, lanes):
        for top in (STEP, *(corner + row for row in range(rows))):
            draw_box(axes, corner + left, top, lanes, 1, WARP_STEP)
    draw_arrow(axes, (corner - 1, 0), (corner - 1, STEPS), "black")
    draw_arrow(axes, (0, corner - 1), (STEPS, corner - 1), "black")
    add_text(axes, corner - 2, STEPS / 2, f"k, {CHUNK} steps\na chunk", ha="right")
    right = corner + columns + 1
    add_text(axes, right, STEPS / 2, "B", ha="left")
    add_text(axes, right, corner + rows / 2, "C", ha="left")
    add_text(axes, -1, corner + rows / 2, "A", ha="right")
    title = f"vectors of {lanes} numbers, {registers} registers: {rows} rows of {VECTORS} vectors, "
    title += f"{rows * VECTORS} multiply-adds for {VECTORS} loads of B and {rows} of A"
    set_bare(axes, (-3, corner + 16 * VECTORS + 4), (0, corner + rows), title)
