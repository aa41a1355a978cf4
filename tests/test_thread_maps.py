"""The drawn maps of threads to data are what the kernels do, as the simulator shows it.

Run as a script, with NUMBA_ENABLE_CUDASIM=1, this file writes who touched what: JSON, a list of
[array, read or write, block, thread, index] for each launch.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter

import numpy as np
import pytest

from deform_gpu import TABLE1
from deform_gpu.kernels import listing1, tiles
from experiments.drawing import thread_maps, thread_maps_deform
from experiments.running.provenance import REPOSITORY
from experiments.timing import compiled
from experiments.timing.compiled import BANKS
from mlp_gpu.gpu import Launch
from mlp_gpu.kernels import backward, evaluate, forward, update
from mlp_gpu.network import pad32

N_IN, N_OUT = 40, 270  # smaller than what is drawn: the simulator takes its time
CONVOLVED = 20, 2  # rows and columns of the result of Listing 1
BATCH = 66, 5, 10  # images, inputs and neurons
MOSAICS = thread_maps.make_mosaics(130, 300) | thread_maps_deform.make_mosaics(130, 2, 10)


# --- who touches what


class Recorder:
    """An array that writes down the thread and the index of everything read and written."""

    def __init__(self, name, array, touched):
        self.name, self.array, self.touched = name, array, touched
        self.shape = array.shape

    def note(self, what, index):
        if not isinstance(index, tuple):
            index = (index,)
        thread = threading.current_thread()
        block, own = thread.blockIdx, thread.threadIdx
        places = [int(i) for i in index]
        self.touched.append(
            [self.name, what, [block.x, block.y], [own.x, own.y], places],
        )

    def __getitem__(self, index):
        self.note("read", index)
        return self.array[index]

    def __setitem__(self, index, value):
        self.note("write", index)
        self.array[index] = value


def record(launch, names):
    """What a launch touches in its arguments of those names, and in shared memory, in order.

    Shared arrays are called by the line they are made in, from 0.
    """
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    touched, made = [], {}
    make = FakeCUDAShared.array

    def array(self, shape, dtype):
        line = sys._getframe(1).f_lineno
        name = made.setdefault(line, f"shared {len(made)}")
        own = self._allocations.setdefault(line, np.zeros(shape, np.float32))  # one a block
        return Recorder(name, own, touched)

    arguments = [
        Recorder(name, argument, touched) if name else argument
        for name, argument in zip(names, launch.arguments, strict=True)
    ]
    FakeCUDAShared.array = array
    try:
        Launch(launch.kernel, launch.grid, launch.threads, tuple(arguments))(0)
    finally:
        FakeCUDAShared.array = make
    return touched


def launches():
    """The launches to record by name, and what of their arguments to write down."""
    W = np.zeros((pad32(N_IN + 1), pad32(N_OUT)), np.float32)
    h, y = np.zeros(N_IN, np.float32), np.zeros(N_OUT, np.float32)
    sums = np.zeros(forward.partial_shape(W.shape, N_IN), np.float32)
    back = np.zeros(backward.partial_shape(W.shape), np.float32)
    first, second = forward.propagate_forward(y, sums, W, h)
    third, fourth = backward.propagate_back(h, back, W, y, h)
    (last,) = update.update(W, h, y, 0.0)
    height, width = CONVOLVED
    region = listing1.KERNEL - 1
    field = np.zeros((height + region, pad32(width + region)), np.float32)
    kernel = np.zeros((listing1.KERNEL, pad32(listing1.KERNEL)), np.float32)
    out = np.zeros((height, pad32(width)), np.float32)
    n, n_in, n_out = BATCH
    states = [np.zeros((n, n_in), np.float32), np.zeros((n, n_out), np.float32)]
    product, _ = evaluate.evaluate(states, [np.zeros((pad32(n_in + 1), pad32(n_out)), np.float32)])
    images, matrices = np.zeros((1, 29, 29), np.float32), np.zeros((1, 2, 2), np.float32)
    weights, key = np.zeros(tiles.KERNEL, np.float32), (np.uint32(0),) * 3
    (deform,) = tiles.deform(images.copy(), images, matrices, weights, TABLE1, key, 0)
    return {
        "forward_partial": (first, ("", "W", "", "", "")),
        "forward_reduce": (second, ("", "partial")),
        "output_delta": (
            thread_maps.make_walk("output_delta", N_IN, N_OUT).launch,
            ("", "", "", "partial", "", ""),
        ),
        "delta_partial": (third, ("", "W", "", "")),
        "delta_reduce": (fourth, ("", "partial", "")),
        "update_weights": (last, ("W", "", "", "", "", "")),
        "convolve_field": (
            listing1.convolve(out, field, kernel, 1.0, width)[0],
            ("out", "", "", ""),
        ),
        "forward_batch": (product, ("Y", "", "", "", "", "")),
        "deform_tiles": (deform, ("out", *[""] * 9)),
        **{
            name: (
                mosaic.launch,
                ("out", "in" * any(mosaic.reads), *[""] * 7)[: len(mosaic.launch.arguments)],
            )
            for name, mosaic in MOSAICS.items()
        },
    }


@pytest.fixture(scope="module")
def touched(tmp_path_factory):
    """What each kernel touches: (array, what, block, thread), to the indices in order."""
    path = tmp_path_factory.mktemp("threads") / "touched.json"
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, __file__, path], env=environment, check=True)
    found = {}
    for kernel, rows in json.loads(path.read_text()).items():
        for name, what, block, thread, index in rows:
            key = name, what, tuple(block), tuple(thread)
            found.setdefault(kernel, {}).setdefault(key, []).append(tuple(index))
    return found


def cells_of(array):
    return [tuple(int(i) for i in row) for row in array]


@pytest.mark.parametrize("name", thread_maps.WORDS)
def test_walks_are_those_of_the_kernels(name, touched):
    walk = thread_maps.make_walk(name, N_IN, N_OUT)
    found = {
        (block, thread): cells
        for (own, what, block, thread), cells in touched[name].items()
        if own in ("W", "partial") and what == "read"
    }
    threads = range(walk.launch.threads)
    walks = {
        (block, (thread, 0)): cells_of(walk.cells(block, thread))
        for block in np.ndindex(walk.launch.grid)
        for thread in threads
    }
    assert {key: cells for key, cells in walks.items() if cells} == found


@pytest.mark.parametrize("name", ["forward_partial", "delta_partial", "update_weights"])
def test_each_weight_is_taken_once(name):
    walk = thread_maps.make_walk(name, N_IN, N_OUT)
    taken = np.zeros(walk.shape, int)
    for block in np.ndindex(walk.launch.grid):
        for thread in range(walk.launch.threads):
            np.add.at(taken, tuple(walk.cells(block, thread).T), 1)
    assert (taken[: N_IN + 1, :N_OUT] == 1).all()
    assert taken.max() == 1


def test_update_writes_what_it_read(touched):
    for (array, what, *who), cells in touched["update_weights"].items():
        if array == "W" and what == "read":
            assert touched["update_weights"]["W", "write", *who] == cells


def test_patch_cells_are_those_of_the_kernel(touched):
    """Also that no two words a warp wants at a step are in one bank: from the words it wanted."""
    found, words = touched["delta_partial"], []
    for thread in range(backward.PATCH):
        brought, added = thread_maps.patch_cells(thread)
        who = (2, 1), (thread, 0)
        assert found["shared 0", "write", *who] == [
            (backward.patch_index(*cell),) for cell in cells_of(brought)
        ]
        assert found["shared 0", "read", *who] == [
            (backward.patch_index(*cell),) for cell in cells_of(added)
        ]
        words.append(found["shared 0", "read", *who])
    banks = np.array(words)[:, :, 0] % BANKS
    assert all(len(set(step)) == BANKS for step in banks.T)


def test_strips_are_those_of_the_kernel(touched):
    found = touched["convolve_field"]
    for thread in np.ndindex(listing1.KERNEL, listing1.ROWS):
        # K is the first shared array, the region R the second.
        assert found["shared 1", "read", (1, 1), thread] == cells_of(
            thread_maps_deform.strip_cells(thread)
        )
    for column, block in np.ndindex(CONVOLVED[1], CONVOLVED[0] // listing1.ROWS):
        for y in range(listing1.ROWS):  # the first thread of each row makes a cell
            made = found["out", "write", (column, block), (0, y)]
            assert made == [(listing1.ROWS * block + y, column)]


def test_batch_cells_are_those_of_the_kernel(touched):
    n, _, n_out = BATCH
    made = Counter()
    for block in np.ndindex(1, 2):
        for thread in range(evaluate.SIDE**2):
            own = thread_maps.batch_cells(thread) + evaluate.TILE * np.array(block[::-1])
            own = [cell for cell in cells_of(own) if cell[0] < n and cell[1] < n_out]
            assert touched["forward_batch"].get(("Y", "write", block, (thread, 0)), []) == own
            made.update(own)
    assert made == Counter(np.ndindex(n, n_out))


def test_tile_cells_are_those_of_the_kernel(touched):
    found = touched["deform_tiles"]
    for thread in range(tiles.THREADS):
        own = thread_maps_deform.tile_cells(thread)
        who = (0, 0), (thread, 0)
        for array, name in (("shared 0", "drawn"), ("shared 1", "convolved"), ("out", "warped")):
            cells = found.get((array, "write", *who), [])
            cells = [cell[1:] for cell in cells if cell[0] == 0]  # the y axis; the one image
            assert sorted(cells) == sorted(cells_of(own[name])), name


def in_matrix(name, indices):
    """Indices into the array of a mosaic as (row, column), each once."""
    if name == "pick_image":
        indices = [(0, i) for (i,) in indices]
    if name == "draw_matrices":
        indices = [(i, 2 * row + column) for i, row, column in indices]
    if indices and len(indices[0]) == 4:  # batch, y or x, row, column
        ys, xs = ([index[2:] for index in indices if index[1] == axis] for axis in (0, 1))
        assert ys == xs
        indices = ys
    return [index[-2:] for index in dict.fromkeys(indices)]


@pytest.mark.parametrize("name", MOSAICS)
def test_mosaics_are_those_of_the_kernels(name, touched):
    mosaic, found, made = MOSAICS[name], touched[name], Counter()
    for block in np.ndindex(mosaic.launch.grid[:2]):
        for thread in np.ndindex(mosaic.threads):
            own = cells_of(mosaic.cells(block, thread))
            assert in_matrix(name, found.get(("out", "write", block, thread), [])) == own
            read = in_matrix(name, found.get(("in", "read", block, thread), []))
            assert read == cells_of(mosaic.read(block, thread))
            made.update(own)
    assert made == Counter(np.ndindex(mosaic.shape))


@pytest.mark.parametrize("name", MOSAICS)
def test_warps_of_mosaics_write_what_is_said(name, touched):
    """In the order of the threads' numbers, x first."""
    mosaic, block = MOSAICS[name], (0, 0)
    across, down = mosaic.threads
    threads = [(x, y) for y in range(down) for x in range(across)]
    for warp in np.array_split(threads, len(threads) // 32):
        written = [
            cell
            for thread in warp.tolist()
            for cell in in_matrix(
                name, touched[name].get(("out", "write", block, tuple(thread)), [])
            )[:1]
        ]
        step = mosaic.step(block, warp[5])
        assert written == cells_of(step)
        words = np.ravel_multi_index(step.T, mosaic.shape)
        assert (np.diff(words) == (mosaic.shape[1] if mosaic.down else 1)).all()


# --- the figures


def drawn(axes, label):
    """The cells (row, column) of that name."""
    (found,) = [own for own in axes.collections if own.get_label() == label]
    boxes = [path.get_extents().bounds for path in found.get_paths()]
    assert all(box[2:] == (1, 1) for box in boxes)
    return [(int(top), int(left)) for left, top, _, _ in boxes]


def boxes(axes, start):
    """(left, top, width, height) of the rectangles whose labels begin so, by the rest of it."""
    return {
        patch.get_label().removeprefix(start): patch.get_bbox().bounds
        for patch in axes.patches
        if patch.get_label().startswith(start)
    }


@pytest.mark.parametrize("name", thread_maps.WORDS)
def test_walks_are_drawn(name):
    walk, words = thread_maps.make_walk(name), thread_maps.WORDS[name]
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
    assert outlined.get_label() == "block {}, {}".format(*words.block)
    path = cells_of(walk.cells(words.block, words.thread))
    assert drawn(grid, f"thread {words.thread}") == path
    (rows, columns), (used_rows, used_columns) = walk.shape, walk.used
    hatched = {patch.get_bbox().bounds for patch in grid.patches if patch.get_hatch()}
    assert (used_columns, 0, columns - used_columns, rows) in hatched
    assert (0, used_rows, used_columns, rows - used_rows) in hatched
    if name == "delta_partial":
        brought, added = thread_maps.patch_cells(words.thread)
        assert drawn(warp, "brought") == cells_of(brought)
        ((row, left), *rest) = drawn(warp, "added")
        assert [(row, left + i) for i in range(1, 32)] == rest
        assert row == added[0, 0]
    else:
        first = words.block[0] * walk.launch.threads + words.thread // 32 * 32
        assert [first + column for _, column in drawn(warp, "own")] == [c for _, c in path]
        assert len(drawn(warp, "own")) == len(path)
        idle_columns = {column for _, column in drawn(warp, "idle")}
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
    assert drawn(cells, "own") == cells_of(thread_maps_deform.strip_cells((6, 3)))
    assert len(drawn(cells, "shared")) == 30 * 21
    assert drawn(sums, "own") == [(3, 6)]
    assert len(drawn(sums, "shared")) == 10 * 21


def test_batch_is_drawn():
    whole, part = thread_maps.draw_batch().axes
    found = boxes(whole, "block ")
    assert len(found) == 5 * 3
    assert found["4, 2"] == (256, 128, 64, 64)
    assert drawn(part, "own") == cells_of(thread_maps.batch_cells(37))


def test_tiles_are_drawn():
    panels = thread_maps_deform.draw_tiles().axes
    own = thread_maps_deform.tile_cells(70)
    for axes, name, shape in zip(panels, own, ("52 x 49", "30 x 49", "29 x 29"), strict=True):
        assert drawn(axes, name) == cells_of(own[name])
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
        mosaic, words = mosaics[name], module.PANELS[name]
        own = mosaic.cells(words.block, words.thread)
        assert drawn(axes, "own") == cells_of(own)
        assert len(own) == np.prod(mosaic.each)
        around = drawn(axes, "read")
        assert len(around) == np.prod(mosaic.reads)
        if around:
            assert (np.mean(around, axis=0) == own).all()
            assert (np.ptp(around, axis=0) + 1 == mosaic.reads).all()
        found = boxes(axes, "block ")
        assert len(found) == np.prod(mosaic.launch.grid)
        (outlined,) = [patch for patch in axes.patches if patch.get_linewidth() > 2]
        left, top, width, height = outlined.get_bbox().bounds
        every = [mosaic.cells(words.block, thread) for thread in np.ndindex(mosaic.threads)]
        every = np.vstack(every)
        assert tuple(every.min(axis=0)) == (top, left)
        assert (every.max(axis=0) < (top + height, left + width)).all()
        assert width * height == np.prod(mosaic.threads) * np.prod(mosaic.each)
        step = mosaic.step(words.block, words.thread)
        left, top, width, height = boxes(axes, "step")[""]
        assert ((step[0] == (top, left)) & (step[-1] == (top + height - 1, left + width - 1))).all()
        assert width * height == len(step)
        assert "{} x {} numbers".format(*mosaic.shape) in axes.get_title()
        assert "grid of {} x {} blocks".format(*mosaic.launch.grid) in axes.get_title()
        assert ("coalesced" in axes.get_title()) != mosaic.down


def test_every_kernel_is_drawn():
    """And named in the titles of a picture."""
    titles = []
    for draw in thread_maps.DRAWINGS.values():
        figure = draw()
        titles += [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    named = set(re.findall("[a-z]+_[a-z]+", " ".join(titles)))
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


if __name__ == "__main__":
    import simulator

    simulator.install()
    found = {name: record(*one) for name, one in launches().items()}
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
