"""The drawings of how kernels map threads to data: what they show, and that it can be read."""

import re

import numpy as np
import pytest
from drawn import assert_readable, boxes, cells_drawn
from matplotlib.figure import Figure

from experiments.benchmarks import compiled
from experiments.drawing import thread_maps, thread_maps_cnn
from experiments.drawing.thread_drawing import draw_panel, extent
from experiments.drawing.traces import cells_of, read_traces
from mlp_gpu.window import progress

TILES = [
    thread_maps.BATCH,
    *thread_maps.WINDOW_PRODUCTS,
    *thread_maps.WINDOW_SUMS,
    thread_maps.WINDOW_UPDATE,
]
# The outlined block of each panel: left, top, width and height.
OUTLINED = {
    "forward_partial W read": (0, 32, 256, 32),
    "forward_reduce partial read": (96, 0, 32, 3),
    "output_delta partial read": (0, 0, 32, 10),
    "delta_partial W read": (96, 32, 32, 32),
    "delta_reduce partial read": (0, 0, 32, 10),
    "update_weights W write": (0, 32, 256, 16),
    "pick_image h write": (256, 0, 256, 1),
    "softmax_rows Y write": (0, 128, 10, 128),
    "draw_matrices matrices write": (0, 0, 6, 128),
    "fill_field field write": (0, 16, 32, 16),
    "convolve_columns sums write": (0, 8, 32, 8),
    "convolve_rows displacement write": (0, 8, 32, 8),
    "warp_images out write": (0, 8, 32, 8),
    "forward_batch Y write": (64, 64, 64, 64),
    "forward_products W read": (128, 96, 64, 96),
    "backward_products W read": (64, 128, 64, 64),
    "forward_states H_next write": (128, 8, 64, 8),
    "backward_deltas D write": (64, 16, 64, 8),
    "update_weights_of_block W write": (64, 64, 64, 64),
}


def panels():
    """All panels, by the names of their traces."""
    found = [thread_maps.walk_panel(name) for name in thread_maps.WALKS]
    found += [thread_maps.IMAGE, thread_maps.CLASSES, *thread_maps.STAGES]
    found += [tile.panel for tile in TILES]
    return {panel.trace: panel for panel in found}


def drawn_panel(name):
    axes = Figure().subplots()
    draw_panel(axes, panels()[name])
    return axes


def outlined(axes):
    """The label and the bounds of the only block that is outlined."""
    (patch,) = [patch for patch in axes.patches if patch.get_linewidth() > 2]
    return patch.get_label(), patch.get_bbox().bounds


@pytest.mark.parametrize("name", panels())
def test_panel_shows_blocks_thread_warp_and_what_is_idle(name):
    panel, trace, axes = panels()[name], read_traces()[name], drawn_panel(name)
    _, (left, top, width, height) = outlined(axes)
    assert (left, top, width, height) == OUTLINED[name]
    assert all(
        top <= row < top + height and left <= column < left + width
        for row, column in cells_of(trace.of_block)
    )
    assert len(boxes(axes, "block ")) == np.prod(trace.grid)
    idle, white = axes.patches[:2]
    top, left, bottom, right = trace.reached
    assert white.get_bbox().bounds == (left, top, right - left, bottom - top)
    _, _, width, height = idle.get_bbox().bounds
    assert (width, height) == max((x + w, y + h) for x, y, w, h in boxes(axes, "block ").values())
    if trace.step:
        assert cells_drawn(axes, "own") == cells_of(trace.own)
        step = cells_of(trace.step)
        assert boxes(axes, "step")[""] == (step[0][1], step[0][0], *extent(step)[::-1])
        assert len(step) == np.prod(extent(step))
    assert "grid of {} x {} blocks".format(*trace.grid) in axes.get_title()
    threads = " x ".join(f"{n}" for n in trace.threads).removesuffix(" x 1")
    assert f"of {threads} threads" in axes.get_title()
    hatched = [patch.get_bbox().bounds for patch in axes.patches if patch.get_hatch()]
    if panel.used:
        (rows, columns), (used_rows, used_columns) = trace.shape, panel.used
        assert hatched == [
            (used_columns, 0, columns - used_columns, rows),
            (0, used_rows, used_columns, rows - used_rows),
        ]
        assert f"{rows} x {columns} numbers, {used_rows} x {used_columns}" in axes.get_title()
    else:
        assert not hatched


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("softmax_rows Y write", "150 x 10 numbers; a thread computes a row\n"),
        ("softmax_rows Y write", "22 threads write 22 numbers, 10 words apart"),
        ("draw_matrices matrices write", "32 threads write 32 numbers, 6 words apart"),
        ("convolve_rows displacement write", "30 threads write 30 numbers, side by side"),
        ("forward_products W read", "forward_products:\ngrid of 7 x 3 blocks\nof 128 threads"),
    ],
)
def test_titles_say_sizes_and_how_far_apart_a_warp_writes(name, says):
    assert says in drawn_panel(name).get_title()


@pytest.mark.parametrize(
    ("name", "size"),
    [("convolve_columns sums write", (21, 1)), ("convolve_rows displacement write", (1, 21))],
)
def test_cells_that_a_thread_reads_lie_around_its_own(name, size):
    axes = drawn_panel(name)
    read = cells_drawn(axes, "read")
    assert extent(read) == size
    assert [tuple(np.mean(read, axis=0))] == cells_drawn(axes, "own")


@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("forward_products W read", (320, 0, 128, 224)),
        ("backward_products W read", (256, 0, 128, 320)),
    ],
)
def test_images_lie_beside_the_matrix_from_a_whole_tile_on(name, images):
    assert boxes(drawn_panel(name), "images")[""] == images


@pytest.mark.parametrize("name", thread_maps.WALKS)
def test_warp_of_a_walk_shows_path_step_and_idle_threads(name):
    trace = read_traces()[thread_maps.walk_panel(name).trace]
    warp = thread_maps.draw_walk(name).axes[1]
    path, warp_start = cells_of(trace.own), trace.thread[0] // 32 * 32
    first = trace.block[0] * trace.threads[0] + warp_start
    if name == "delta_partial":
        assert cells_drawn(warp, "write") == [(i, 4) for i in range(32)]
        ((_, left), *_) = summed = cells_drawn(warp, "read")
        assert summed == [(4, left + i) for i in range(32)]
        steps = [patch.get_bbox().bounds for patch in warp.patches if patch.get_label() == "step"]
        assert steps == [(0, 10, 32, 1), (left + 10, 0, 1, 32)]
        return
    assert cells_drawn(warp, "own") == [(i, x - first) for i, (_, x) in enumerate(path)]
    idle = {x for _, x in cells_drawn(warp, "idle")}
    busy = {x - first for _, x in cells_of(trace.step)}
    assert idle == set(range(32)) - busy
    (step,) = boxes(warp, "step").values()
    assert step == (min(busy), cells_of(trace.step)[0][0] - path[0][0], len(busy), 1)
    texts = " ".join(text.get_text() for text in warp.texts)
    assert f"at each step {len(busy)} threads\n" in texts
    assert warp.get_title().startswith(f"threads {warp_start} to {warp_start + 31} of block ")


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.result)
def test_tile_shows_the_cells_of_a_thread_and_what_it_multiplies(tile):
    trace, axes = read_traces()[tile.result], Figure().subplots()
    thread_maps.draw_tile(axes, tile)
    left, top, width, height = OUTLINED.get(tile.result, (0, 0, 64, 32))
    own = cells_drawn(axes, "own")
    assert f"{height} x {width} " in axes.get_title()
    assert "thread 37 " in axes.get_title()
    offset = {(a - c, b - d) for (a, b), (c, d) in zip(cells_of(trace.own), own, strict=True)}
    if tile.result in OUTLINED:
        assert offset == {(top, left)}
    assert len(offset) == 1
    assert all(0 <= row < height and 0 <= column < width for row, column in own)
    bounds = [patch.get_bbox().bounds for patch in axes.patches]
    assert {y for x, y, _, tall in bounds if x < 0 and tall == 1} == {row for row, _ in own}
    above = {x for x, y, wide, _ in bounds if y < 0 and wide == 1}
    assert above == ({column for _, column in own} if tile.depth else set())


def test_banks_conflict_in_rows_of_32_words_and_not_of_33():
    tight, padded = (axes for axes in thread_maps.draw_banks().axes if axes.images)
    for axes, stride in ((tight, 32), (padded, 33)):
        banks = axes.images[0].get_array()
        assert banks.shape == (32, stride)
        assert (banks[3] == (3 * stride + np.arange(stride)) % 32).all()
        ((left, _, width, height),) = [
            patch.get_bbox().bounds for patch in axes.patches if not patch.get_hatch()
        ]
        assert (width, height) == (1, 32)
        read = [int(text.get_text()) for text in axes.texts]
        assert read == list(banks[:, int(left)])
        assert len(set(read)) == (1 if stride == 32 else 32)
    assert "a bank has 32 of the 32 words" in tight.get_title()
    assert "a bank has 1 of the 32 words" in padded.get_title()


def test_convolution_shows_region_strip_and_sums():
    whole, cells, sums = thread_maps.draw_convolution().axes
    assert "310 x 310 cells" in whole.get_title()
    assert "grid of 290 x 29 blocks" in whole.get_title()
    left, top, width, height = boxes(whole, "read")[""]
    assert (width, height) == (21, 30)
    assert top % 10 == 0
    assert boxes(whole, "made")[""] == (left + 10, top + 10, 1, 10)
    assert cells_drawn(cells, "own") == [(3 + i, 6) for i in range(21)]
    assert len(cells_drawn(cells, "shared")) == 30 * 21
    assert cells_drawn(sums, "own") == [(3, 6)]
    assert len(cells_drawn(sums, "shared")) == 10 * 21


def test_stages_of_a_tile_show_the_cells_of_the_thread():
    panels = thread_maps.draw_tiles().axes
    shapes = ((52, 49), (30, 49), (29, 29))
    for axes, array, shape in zip(panels, thread_maps.TILE_STAGES, shapes, strict=True):
        assert cells_drawn(axes, "own") == cells_of(read_traces()[f"deform_tiles {array}"].own)
        assert axes.get_title().endswith("\n({} x {})".format(*shape))
        assert axes.patches[0].get_bbox().bounds == (0, 0, *shape[::-1])


def test_window_progress_shows_changes_and_fields():
    *_, slide, ending = thread_maps.draw_blocks_and_progress().axes
    assert cells_drawn(slide, "own") == [(1, 5)]
    assert "5 tiles\nof changes; thread 41 reads" in slide.get_title()
    fields = [name for name in vars(progress) if isinstance(vars(progress)[name], int)]
    assert len(ending.patches) == progress.FIELDS
    assert {patch.get_label() for patch in ending.patches} <= set(fields)


MAPS = {  # by the name of a drawing: each kernel with its panels from left to right
    **{f"threads_{name}": {name: one[1:]} for name, one in thread_maps_cnn.CONVOLUTIONS.items()},
    "threads_maps": thread_maps_cnn.OTHERS,
}


@pytest.mark.parametrize("drawing", MAPS)
def test_maps_show_what_a_thread_reads_and_the_blocks_that_write(drawing):
    drawn = iter(thread_maps.DRAWINGS[drawing]().axes)
    for kernel, panels in MAPS[drawing].items():
        for panel in panels:
            trace, axes = read_traces()[f"{kernel} {panel.array}"], next(drawn)
            own, step = cells_of(trace.own), cells_of(trace.step)
            if trace.shape == (4, 25):  # kernels, drawn below each other with a gap
                own, step = ([(7 * k + i // 5, i % 5) for k, i in cells] for cells in (own, step))
            assert cells_drawn(axes, "own") == own
            assert cells_drawn(axes, "step") == step
            assert axes.get_title().split(":")[0] == panel.title.split(":")[0]
            if panel.array.endswith("read"):
                assert not boxes(axes, "block ")
                continue
            assert len(boxes(axes, "block ")) == np.prod(trace.grid)
            label, (left, top, width, height) = outlined(axes)
            assert (label, width, height) == ("block {}, {}".format(*trace.block), *trace.threads)
            assert own == [(top + trace.thread[1], left + trace.thread[0])]
            assert "grid of {} x {} blocks".format(*trace.grid) in axes.get_title()


def test_kernels_name_their_maps_and_the_first_of_a_map_has_its_bias():
    *_, weights = thread_maps_cnn.draw_convolution("adjust_weights").axes
    texts = [text.get_text() for text in weights.texts]
    assert texts == ["map 0\nto 0", "map 1\nto 0", "map 1\nto 1", "map 0\nto 2"]
    assert [boxes(weights, "block ")[f"{k}, 0"] for k in range(4)] == [
        (0, 7 * k, 6, 5) for k in range(4)
    ]
    biases = [own.get_label() for own in weights.collections if "bias" in own.get_label()]
    assert biases == ["bias 0", "bias 2", "bias 3"]
    assert cells_drawn(weights, "bias 2") == [(14, 5)]


def test_every_kernel_is_named_in_a_title():
    titles = []
    for draw in thread_maps.DRAWINGS.values():
        figure = draw()
        titles += [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    named = set(re.findall("[a-z]+(?:_[a-z]+)+", " ".join(titles)))
    assert named == {kernel.py_func.__name__ for kernel in compiled.SIGNATURES}


@pytest.mark.parametrize("name", thread_maps.DRAWINGS)
def test_labels_do_not_overlap(name):
    assert_readable(thread_maps.DRAWINGS[name]())
