"""The drawn maps of the window's kernels are what these do when they are executed."""

from collections import Counter, defaultdict

import numpy as np
import pytest
import touches
from compiled_cases import needs_toolkit
from drawn import boxes, cells_drawn, cells_of

from experiments.drawing import thread_maps_window
from experiments.drawing.thread_drawing import Mosaic
from mlp_gpu.window import SIGNATURES, products, progress

N_IN, N_OUT, N_BLOCK, FIRST, END = 70, 100, 40, 5, 37
LAUNCHES = thread_maps_window.make_launches(N_IN, N_OUT, N_BLOCK, FIRST, END)
SHARED = [(1 << 12,)] * 3
# The array that a kernel of tiles writes, the rows and columns of a block, and the first of them.
RESULTS = {
    "forward_products": ("partial", (0, 64), (0, 0), "product_cells"),
    "backward_products": ("partial", (0, 64), (0, 0), "product_cells"),
    "forward_states": ("H_next", (8, 64), (FIRST, 1), "sum_cells"),
    "backward_deltas": ("D", (8, 64), (FIRST, 0), "sum_cells"),
    "update_weights_of_block": ("W", (64, 64), (0, 0), "update_cells"),
}


def written(name, array, kind="write"):
    """What threads touch of an array: (block, thread) to the last two indices, in order."""
    launch = LAUNCHES[name]
    found = defaultdict(list)
    names = launch.kernel.py_func.__code__.co_varnames
    for (own, what, block, thread), cells in touches.touched(launch, names, SHARED).items():
        if (own, what) == (array, kind):
            found[block, thread[0]] += cells
    return found


def test_every_kernel_is_launched():
    assert set(LAUNCHES) == {kernel.py_func.__name__ for kernel in SIGNATURES}


@needs_toolkit
@pytest.mark.parametrize("name", RESULTS)
def test_tiles_are_those_of_the_kernels(name):
    array, size, start, cells = RESULTS[name]
    found, made = written(name, array), Counter()
    limits = {
        "partial": (END, 1 << 20),
        "H_next": (END, 1 + N_OUT),
        "D": (END, N_IN),
        "W": (N_IN + 1, N_OUT),
    }[array]
    launch = LAUNCHES[name]
    shape = launch.arguments[0].shape
    columns = shape[-1] - N_BLOCK
    tiles = -(-columns // products.COLUMNS)
    for block in np.ndindex(launch.grid[:2]):
        for thread in range(launch.threads):
            own = getattr(thread_maps_window, cells)(thread)
            if array == "partial":
                is_gram = block[0] >= tiles
                own = own + np.array((FIRST, 64 * (block[0] - tiles * is_gram)))
                width = END if is_gram else columns
                expected = [
                    (block[1], t % shape[1], j + columns * is_gram)
                    for t, j in cells_of(own)
                    if t < END and j < width
                ]
            else:
                own = own + np.array(start) + np.array(block[::-1]) * size
                expected = [c for c in cells_of(own) if c[0] < limits[0] and c[1] < limits[1]]
            executed = found.get((block, thread), [])
            assert sorted(executed) == sorted(expected), (block, thread)
            made.update(expected)
    assert set(made.values()) == {1}
    if array == "W":
        assert set(made) == set(np.ndindex(N_IN + 1, N_OUT))


@needs_toolkit
def test_changes_are_those_that_the_kernel_reads():
    tiles = LAUNCHES["slide_window"].arguments[1].shape[2]
    found = written("slide_window", "changes", "read")
    for thread in range(LAUNCHES["slide_window"].threads):
        expected = thread_maps_window.change_cells(thread, tiles)
        expected = [(0, kind, *cell) for cell in expected for kind in (0, 1)]
        executed = found.get(((0, 0), thread), [])
        assert sorted(executed) == sorted(expected)


@needs_toolkit
def test_images_are_gathered_as_drawn():
    mosaic = Mosaic(LAUNCHES["gather_images"], (N_BLOCK, N_IN))
    found = written("gather_images", "H")
    for block in np.ndindex(mosaic.launch.grid[:2]):
        for thread in range(256):
            cells = [(t, 1 + i) for t, i in cells_of(mosaic.cells(block, (thread, 0)))]
            assert found.get((block, thread), []) == cells


@needs_toolkit
def test_a_thread_has_a_class():
    found = written("output_deltas", "D")
    n_classes = thread_maps_window.N_CLASSES
    for image in range(progress.MAX_WINDOW):
        for thread in range(32):
            cells = found.get(((0, image), thread), [])
            assert cells == ([(FIRST + image, thread)] if thread < n_classes else [])


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (thread_maps_window.draw_products, ["forward_products", "backward_products"]),
        (thread_maps_window.draw_sums, ["forward_states", "backward_deltas"]),
        (thread_maps_window.draw_blocks_and_progress, ["update_weights_of_block"]),
    ],
)
def test_tiles_are_drawn(draw, names):
    launches, kernels = (
        thread_maps_window.make_launches(),
        thread_maps_window.tiled_kernels(),
    )
    panels = iter(draw().axes)
    for name, whole, part in zip(names, panels, panels, strict=False):
        kernel, launch = kernels[name], launches[name]
        found = boxes(whole, "block ")
        assert len(found) == np.prod(launch.grid)
        assert found["{}, {}".format(*kernel.block)] == (
            kernel.block[0] * kernel.tile[1],
            kernel.block[1] * kernel.tile[0],
            *kernel.tile[::-1],
        )
        assert name in whole.get_title()
        own = kernel.cells(thread_maps_window.THREAD_SHOWN)
        assert cells_drawn(part, "own") == cells_of(own)
        assert bool(boxes(whole, "images")) == ("products" in name)


def test_what_ends_a_sweep_and_a_block_is_drawn():
    *_, slide, ending = thread_maps_window.draw_blocks_and_progress().axes
    tiles = thread_maps_window.make_launches()["slide_window"].arguments[1].shape[2]
    own = thread_maps_window.change_cells(41, tiles)
    assert own
    assert cells_drawn(slide, "own") == own
    assert "thread 41 reads" in slide.get_title()
    fields = [name for name in vars(progress) if isinstance(vars(progress)[name], int)]
    assert len(ending.patches) == progress.FIELDS
    assert {patch.get_label() for patch in ending.patches} <= set(fields)
