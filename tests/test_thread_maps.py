"""The drawn maps of threads to data are what the compiled kernels do when they are executed."""

from collections import Counter

import numpy as np
import pytest
import touches
from drawn import cells_of

from cuda_on_cpu import missing_toolkit
from cuda_on_cpu.access_stats import BANKS
from deform_gpu import TABLE1
from deform_gpu.kernels import listing1, tiles
from experiments.drawing import thread_maps, thread_maps_deform
from mlp_gpu.kernels import backward, evaluate, forward, update
from mlp_gpu.network import pad32

N_IN, N_OUT = 40, 270  # smaller than what is drawn
CONVOLVED = 20, 2  # rows and columns of the result of Listing 1
BATCH = 66, 5, 10  # images, inputs and neurons
MOSAICS = thread_maps.make_mosaics(130, 300) | thread_maps_deform.make_mosaics(130, 2, 10)


def launches():
    """The launches to record by name, and what of their arguments to write down."""
    W = np.zeros((pad32(N_IN + 1), pad32(N_OUT)), np.float32)
    h, y = np.zeros(N_IN, np.float32), np.zeros(N_OUT, np.float32)
    sums = np.zeros(forward.partial_shape(W.shape, N_IN), np.float32)
    back = np.zeros(backward.partial_shape(W.shape), np.float32)
    first, second = forward.propagate_forward(y, sums, W, h)
    third, fourth = backward.propagate_back(h, back, W, y, h)
    (last,) = update.update(W, h, y, np.zeros(1, np.float32))
    height, width = CONVOLVED
    region = listing1.KERNEL - 1
    field = np.zeros((height + region, pad32(width + region)), np.float32)
    kernel = np.zeros((listing1.KERNEL, pad32(listing1.KERNEL)), np.float32)
    out = np.zeros((height, pad32(width)), np.float32)
    n, n_in, n_out = BATCH
    states = [np.zeros((n, n_in), np.float32), np.zeros((n, n_out), np.float32)]
    product, _ = evaluate.evaluate(states, [np.zeros((pad32(n_in + 1), pad32(n_out)), np.float32)])
    images, matrices = np.zeros((1, 29, 29), np.float32), np.zeros((1, 2, 3), np.float32)
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


# Shapes of the kernels' shared arrays.
SHARED = {
    "convolve_field": [
        (listing1.KERNEL, listing1.KERNEL),
        (listing1.REGION, listing1.KERNEL),
        (listing1.ROWS, listing1.KERNEL),
    ],
    "deform_tiles": [
        (2, tiles.FIELD_ROWS, tiles.REGION),
        (2, tiles.ROWS, tiles.REGION),
    ],
}


@pytest.fixture(scope="module")
def touched():
    """What each kernel touches: (array, what, block, thread), to the indices in order."""
    if reason := missing_toolkit():
        pytest.skip(reason)
    return {
        name: touches.touched(launch, names, SHARED.get(name, 2 * [(1 << 12,)]))
        for name, (launch, names) in launches().items()
    }


@pytest.mark.parametrize("name", thread_maps.CAPTIONS)
def test_walks_are_those_of_the_kernels(name, touched):
    """But for the order of a thread's reads, which is the compiler's."""
    walk = thread_maps.make_walk(name, N_IN, N_OUT)
    found = {
        (block, thread): sorted(cells)
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
            assert sorted(touched["update_weights"]["W", "write", *who]) == sorted(cells)


def test_patch_cells_are_those_of_the_kernel(touched):
    """Also that no two words a warp wants at a step are in one bank: from the words it wanted."""
    found, words = touched["delta_partial"], []
    for thread in range(backward.PATCH):
        loaded, summed = thread_maps.patch_cells(thread)
        who = (2, 1), (thread, 0)
        assert found["shared 0", "write", *who] == [
            (backward.patch_index(*cell),) for cell in cells_of(loaded)
        ]
        assert found["shared 0", "read", *who] == [
            (backward.patch_index(*cell),) for cell in cells_of(summed)
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
        indices = [(i, 3 * row + column) for i, row, column in indices]
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
        addresses = np.ravel_multi_index(step.T, mosaic.shape)
        assert (np.diff(addresses) == (mosaic.shape[1] if mosaic.down else 1)).all()
