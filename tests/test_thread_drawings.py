"""The drawings of how kernels map threads to data: what they show, and that it can be read."""

import re

import numpy as np
import pytest
from drawn import boxes, cells_drawn, cells_of

from experiments.drawing import thread_maps, thread_maps_cnn, thread_maps_deform
from experiments.drawing.thread_cells_cnn import make_mappings
from experiments.timing import compiled


@pytest.mark.parametrize("name", thread_maps.CAPTIONS)
def test_walks_are_drawn(name):
    walk, caption = thread_maps.make_walk(name), thread_maps.CAPTIONS[name]
    grid, warp = thread_maps.draw_walk(name).axes
    found = boxes(grid, "block ")
    assert len(found) == np.prod(walk.launch.grid)
    for block in np.ndindex(walk.launch.grid):
        left, top, width, height = found["{}, {}".format(*block)]
        for thread in range(walk.launch.threads):
            cells = cells_of(walk.cells(block, thread))
            assert not cells or cells[0] == (top, left + thread)
            assert len(cells) in (0, height)
        assert width == walk.launch.threads
    (outlined,) = [patch for patch in grid.patches if patch.get_linewidth() > 2]
    assert outlined.get_label() == "block {}, {}".format(*caption.block)
    path = cells_of(walk.cells(caption.block, caption.thread))
    assert cells_drawn(grid, f"thread {caption.thread}") == path
    (rows, columns), (used_rows, used_columns) = walk.shape, walk.used
    hatched = {patch.get_bbox().bounds for patch in grid.patches if patch.get_hatch()}
    assert (used_columns, 0, columns - used_columns, rows) in hatched
    assert (0, used_rows, used_columns, rows - used_rows) in hatched
    if name == "delta_partial":
        loaded, summed = thread_maps.patch_cells(caption.thread)
        assert cells_drawn(warp, "loaded") == cells_of(loaded)
        ((row, left), *rest) = cells_drawn(warp, "summed")
        assert [(row, left + i) for i in range(1, 32)] == rest
        assert row == summed[0, 0]
    else:
        first = caption.block[0] * walk.launch.threads + caption.thread // 32 * 32
        assert [first + column for _, column in cells_drawn(warp, "own")] == [c for _, c in path]
        assert len(cells_drawn(warp, "own")) == len(path)
        idle_columns = {column for _, column in cells_drawn(warp, "idle")}
        idle = {first + column for column in idle_columns}
        assert idle == set(range(first, first + 32)) - set(walk.working)
        (step,) = boxes(warp, "step").values()
        assert step == (min(set(range(32)) - idle_columns), step[1], 32 - len(idle), 1)


def test_banks_are_drawn():
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


def test_convolution_is_drawn():
    whole, cells, sums = thread_maps_deform.draw_convolution().axes
    assert "grid of 290 x 29 blocks" in whole.get_title()
    assert "310 x 310 cells" in whole.get_title()
    left, top, width, height = boxes(whole, "read")[""]
    assert (width, height) == (21, 30)
    assert top % 10 == 0
    assert boxes(whole, "made")[""] == (left + 10, top + 10, 1, 10)
    assert cells_drawn(cells, "own") == cells_of(thread_maps_deform.strip_cells((6, 3)))
    assert len(cells_drawn(cells, "shared")) == 30 * 21
    assert cells_drawn(sums, "own") == [(3, 6)]
    assert len(cells_drawn(sums, "shared")) == 10 * 21


def test_batch_is_drawn():
    whole, part = thread_maps.draw_batch().axes
    found = boxes(whole, "block ")
    assert len(found) == 5 * 3
    assert found["4, 2"] == (256, 128, 64, 64)
    assert cells_drawn(part, "own") == cells_of(thread_maps.batch_cells(37))


def test_tiles_are_drawn():
    panels = thread_maps_deform.draw_tiles().axes
    own = thread_maps_deform.tile_cells(70)
    for axes, name, shape in zip(panels, own, ("52 x 49", "30 x 49", "29 x 29"), strict=True):
        assert cells_drawn(axes, name) == cells_of(own[name])
        assert shape in axes.get_title()


@pytest.mark.parametrize(
    ("module", "draw"),
    [(thread_maps, thread_maps.draw_ends), (thread_maps_deform, thread_maps_deform.draw_stages)],
)
def test_mosaics_are_drawn(module, draw):
    panels, mosaics = {}, module.make_mosaics()
    for axes in draw().axes:
        panels[axes.get_title().split("\n")[0]] = axes
    assert set(panels) == set(mosaics) == set(module.PANELS)
    for name, axes in panels.items():
        mosaic, panel = mosaics[name], module.PANELS[name]
        own = mosaic.cells(panel.block, panel.thread)
        assert cells_drawn(axes, "own") == cells_of(own)
        assert len(own) == np.prod(mosaic.each)
        around = cells_drawn(axes, "read")
        assert len(around) == np.prod(mosaic.reads)
        if around:
            assert (np.mean(around, axis=0) == own).all()
            assert (np.ptp(around, axis=0) + 1 == mosaic.reads).all()
        found = boxes(axes, "block ")
        assert len(found) == np.prod(mosaic.launch.grid)
        (outlined,) = [patch for patch in axes.patches if patch.get_linewidth() > 2]
        left, top, width, height = outlined.get_bbox().bounds
        every = [mosaic.cells(panel.block, thread) for thread in np.ndindex(mosaic.threads)]
        every = np.vstack(every)
        assert tuple(every.min(axis=0)) == (top, left)
        assert (every.max(axis=0) < (top + height, left + width)).all()
        assert width * height == np.prod(mosaic.threads) * np.prod(mosaic.each)
        step = mosaic.step(panel.block, panel.thread)
        left, top, width, height = boxes(axes, "step")[""]
        assert ((step[0] == (top, left)) & (step[-1] == (top + height - 1, left + width - 1))).all()
        assert width * height == len(step)
        assert "{} x {} numbers".format(*mosaic.shape) in axes.get_title()
        assert "grid of {} x {} blocks".format(*mosaic.launch.grid) in axes.get_title()
        assert ("coalesced" in axes.get_title()) != mosaic.down


def assert_result_is_drawn(axes, name, block, thread, key):
    """Its blocks, one of them outlined, and in this the cells of a thread and of its warp."""
    mapping = make_mappings()[name]
    found = boxes(axes, "block ")
    assert len(found) == np.prod(mapping.launch.grid)
    (outlined,) = [patch for patch in axes.patches if patch.get_linewidth() > 2]
    assert outlined.get_label() == "block {}, {}".format(*block)
    assert outlined.get_bbox().bounds[2:] == mapping.threads
    left, top, _, _ = outlined.get_bbox().bounds
    own = mapping.touched(block, thread)[key]
    assert cells_drawn(axes, "own") == own == [(top + thread[1], left + thread[0])]
    first = (thread[1] * mapping.threads[0] + thread[0]) // 32 * 32
    warp = [divmod(i, mapping.threads[0]) for i in range(first, first + 32)]
    assert cells_drawn(axes, "step") == [(top + y, left + x) for y, x in warp]
    assert "grid of {} x {} blocks".format(*mapping.launch.grid) in axes.get_title()


def test_forward_of_maps_is_drawn():
    states, kernels, result = thread_maps_cnn.draw_forward().axes
    assert_result_is_drawn(result, "convolve_maps", (0, 0), (5, 4), ("y", "write"))
    # Neuron 4, 5 reads 5x5 neurons from 8, 10 on: of both maps, which are 29 high.
    patches = [(top + v, 10 + u) for top in (8, 29 + 8) for v in range(5) for u in range(5)]
    assert cells_drawn(states, "read") == patches
    # At the first step each neuron reads the first of its patch, all of them the same weight.
    made = cells_drawn(result, "step")
    assert cells_drawn(states, "step") == [(2 * y, 2 * x) for y, x in made]
    assert cells_drawn(kernels, "step") == [(0, 0)]
    used = [(top + v, u) for top in (0, 7) for v in range(5) for u in range(5)]
    assert cells_drawn(kernels, "read") == used
    assert [text.get_text() for text in kernels.texts][:2] == ["map 0\nto 0", "map 1\nto 0"]


def test_pulling_is_drawn():
    deltas, kernels, result = thread_maps_cnn.draw_pulling().axes
    assert_result_is_drawn(result, "pull_deltas", (0, 0), (13, 12), ("delta_in", "write"))
    # Of column 13: ceil((13 - 4) / 2) to floor(13 / 2); of line 12: ceil((12 - 4) / 2) to 12 / 2.
    rectangle = [(y, x) for y in (4, 5, 6) for x in (5, 6)]
    two = [(13 * m + y, x) for m in (0, 2) for y, x in rectangle]
    assert cells_drawn(deltas, "read") == two
    weights = [(12 - 2 * y, 13 - 2 * x) for y, x in rectangle]
    assert cells_drawn(kernels, "read") == [(7 * k + v, u) for k in (0, 3) for v, u in weights]
    assert kernels.texts[3].get_text() == "map 0\nto 2"


def test_adjusting_is_drawn():
    deltas, states, result = thread_maps_cnn.draw_adjusting().axes
    places = list(np.ndindex(13, 13))
    assert cells_drawn(deltas, "read") == places
    assert cells_drawn(states, "read") == [(29 + 1 + 2 * y, 3 + 2 * x) for y, x in places]
    found = boxes(result, "block ")
    assert [found[f"{k}, 0"] for k in range(4)] == [(0, 7 * k, 6, 5) for k in range(4)]
    (outlined,) = [patch for patch in result.patches if patch.get_linewidth() > 2]
    assert outlined.get_label() == "block 1, 0"
    assert cells_drawn(result, "own") == [(7 + 1, 3)]
    # The first connections of the three maps have their biases.
    biases = [own.get_label() for own in result.collections if "bias" in own.get_label()]
    assert biases == ["bias 0", "bias 2", "bias 3"]
    assert cells_drawn(result, "bias 2") == [(14, 5)]


def test_other_kernels_of_maps_are_drawn():
    panels = thread_maps_cnn.draw_others().axes
    for left, right, (name, panel) in zip(
        panels[::2], panels[1::2], thread_maps_cnn.PANELS.items(), strict=True
    ):
        (read, _, _), (written, _, _) = panel.read, panel.written
        touched = make_mappings()[name].touched(panel.block, panel.thread)
        assert cells_drawn(left, "read") == touched[read, "read"]
        assert name in left.get_title()
        assert_result_is_drawn(right, name, panel.block, panel.thread, (written, "write"))


def test_every_kernel_is_drawn():
    """And named in the titles of a picture."""
    titles = []
    for draw in thread_maps.DRAWINGS.values():
        figure = draw()
        titles += [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    named = set(re.findall("[a-z]+(?:_[a-z]+)+", " ".join(titles)))
    assert named == {kernel.py_func.__name__ for kernel in compiled.SIGNATURES}


@pytest.mark.parametrize("name", thread_maps.DRAWINGS)
def test_nothing_leaves_a_figure_or_stands_across_other_text(name):
    figure = thread_maps.DRAWINGS[name]()
    figure.draw_without_rendering()
    assert figure.get_figwidth() <= 7
    texts = [figure._suptitle]
    for legend in figure.legends:
        texts += legend.get_texts()
    for axes in figure.axes:
        texts += [axes.title, *axes.texts]
        texts += [axes.xaxis.label, axes.yaxis.label] if axes.axison else []
    texts = [text for text in texts if text.get_text()]
    spaces = [text.get_window_extent() for text in texts]
    for i, (text, space) in enumerate(zip(texts, spaces, strict=True)):
        assert text.get_fontsize() >= 7
        assert figure.bbox.x0 <= space.x0
        assert space.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= space.y0
        assert space.y1 <= figure.bbox.y1
        for other, its in zip(texts[:i], spaces, strict=False):
            assert not space.overlaps(its), (text.get_text(), other.get_text())
