"""The window's kernels against float64, on odd sizes, at the start of a block and in its middle.

Numbers that a kernel must not read are NaN, and so are those that it must not write.
"""
# ruff: noqa: F401, F811 - fixtures are imported

from dataclasses import replace

import numpy as np
import pytest
from executed import HAS_GPU, device
from gpu_arrays import arrays, assert_launched_with, uniform
from reference import EPS, A, B

from experiments.drawing import launches
from mlp_gpu.network import pad32
from mlp_gpu.window import SIGNATURES, blocks, products, progress, sums
from mlp_gpu.window.progress import (
    ALL_TIMES,
    BLOCK,
    END,
    FIRST,
    START,
    SWEEPS,
    SWEPT,
    TIMES,
    WINDOW,
)
from mlp_gpu.window_rule import next_window

SIZES = [(1, 1), (31, 33), (32, 5), (97, 10), (33, 97), (130, 70)]
LAYERS = [pytest.param(*sizes, marks=pytest.mark.small) for sizes in SIZES]
WINDOWS = [pytest.param(0, 5, 2, id="start"), pytest.param(41, 73, 60, id="middle")]
PLACES = pytest.mark.parametrize(("first", "end", "swept"), WINDOWS)
ETA = np.float32(0.25)
N_BLOCK = 75  # images


def in_window(first, end, swept=0, block=N_BLOCK, start=0):
    """Progress in the middle of a block, int32 (FIELDS,); -1 in fields that no test sets."""
    found = np.full(progress.FIELDS, -1, np.int32)
    found[[FIRST, END, SWEPT, BLOCK, START]] = first, end, swept, block, start
    return found


def small(*numbers):
    return [pytest.param(n, marks=pytest.mark.small) for n in numbers]


def layer(n_in, n_out):
    """W, H and D, with padding of zeros and a leading 1 in H."""
    rng = np.random.default_rng([n_in, n_out])
    W = np.zeros((pad32(n_in + 1), pad32(n_out)), np.float32)
    H = np.zeros((N_BLOCK, pad32(n_in + 1)), np.float32)
    D = np.zeros((N_BLOCK, pad32(n_out)), np.float32)
    W[: n_in + 1, :n_out] = uniform(rng, n_in + 1, n_out)
    H[:, : n_in + 1], H[:, 0] = uniform(rng, N_BLOCK, n_in + 1), 1
    D[:, :n_out] = uniform(rng, N_BLOCK, n_out)
    return W, H, D


def until(end, matrix):
    """A copy whose rows from `end` on are NaN."""
    matrix = matrix.copy()
    matrix[end:] = np.nan
    return matrix


def assert_products(found, rows, matrix, windows):
    """The parts' sums are rows @ (matrix | rows^T) of the windows' images, and nothing else."""
    ring, columns = found.shape[1], matrix.shape[1]
    h, written = rows.astype(np.float64), np.zeros(found.shape, bool)
    for first, end in windows:
        terms = np.hstack((matrix, h[:end].T))
        expected, size = h[first:end] @ terms, abs(h[first:end]) @ abs(terms)
        images = np.arange(first, end) % ring
        written[:, images, : columns + end] = True
        total = found[:, images, : columns + end].sum(axis=0, dtype=np.float64)
        assert (abs(total - expected) <= 4 * np.sqrt(h.shape[1]) * EPS * size + 1e-30).all()
    assert (np.isnan(found) == ~written).all()


@PLACES
@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_forward_products(arrays, n_in, n_out, first, end, swept):
    W, H, _ = layer(n_in, n_out)
    partial = arrays.nans(*products.partial_shape(*W.shape, N_BLOCK, progress.MAX_WINDOW))
    now = arrays.put(in_window(first, end, swept))
    arrays.run(products.forward(partial, now, arrays.put(until(end, H)), arrays.put(W)))
    assert_products(arrays.get(partial), H, W, [(first, end)])


@PLACES
@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_backward_products(arrays, n_in, n_out, first, end, swept):
    W, _, D = layer(n_in, n_out)
    partial = arrays.nans(*products.partial_shape(*W.shape[::-1], N_BLOCK, progress.MAX_WINDOW))
    now = arrays.put(in_window(first, end, swept))
    arrays.run(products.backward(partial, now, arrays.put(until(end, D)), arrays.put(W)))
    assert_products(arrays.get(partial), D, W.T, [(first, end)])


@pytest.mark.parametrize(("n", "swept"), [(75, 0), (40, 0), (33, 0), (1, 0), (40, 3)])
@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_forward_products_of_a_whole_block_only_before_its_first_sweep(
    arrays, n_in, n_out, n, swept
):
    W, H, _ = layer(n_in, n_out)
    partial = arrays.nans(*products.partial_shape(*W.shape, N_BLOCK, N_BLOCK))
    now = arrays.put(in_window(0, 5, swept, block=n))
    arrays.run(products.forward(partial, now, arrays.put(until(n, H)), arrays.put(W), whole=True))
    groups = [(i, min(i + 32, n)) for i in range(0, n, 32)]
    assert_products(arrays.get(partial), H, W, [] if swept else groups)


def partial_sums(n_columns, first, end, ring):
    """Random products in three parts, and of the window's images their sums: A, and G (s < t)."""
    rng = np.random.default_rng(n_columns + end)
    partial = np.full((3, ring, n_columns + N_BLOCK), np.nan, np.float32)
    A, G = np.zeros((N_BLOCK, n_columns)), np.zeros((N_BLOCK, N_BLOCK))
    for t in range(first, end):
        row = uniform(rng, 3, n_columns + t)
        partial[:, t % ring, : n_columns + t] = row
        total = row.sum(axis=0, dtype=np.float64)
        A[t], G[t, :t] = total[:n_columns], total[n_columns:]
    return partial, A, G


@PLACES
@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("ring", [progress.MAX_WINDOW, N_BLOCK])
@pytest.mark.parametrize("n_out", small(1, 33, 97))
def test_forward_states(arrays, n_out, ring, hidden, first, end, swept):
    _, _, D = layer(5, n_out)
    partial, totals, G = partial_sums(pad32(n_out), first, end, ring)
    H_next = arrays.nans(N_BLOCK, pad32(n_out + 1))
    deltas = arrays.put(until(swept, D))  # others are not known yet
    now, eta = arrays.put(in_window(first, end, swept)), arrays.put(np.full(1, ETA))
    arrays.run(sums.forward(H_next, arrays.put(partial), now, deltas, eta, n_out, hidden))
    found = arrays.get(H_next)
    known = min(swept, end)
    correction = G[first:end, :known] @ D[:known, :n_out].astype(np.float64)
    a = totals[first:end, :n_out] - ETA * correction
    expected = A * np.tanh(B * a) if hidden else a
    states = found[first:end, 1 : n_out + 1]
    assert (abs(states - expected) <= 40 * EPS * (3 + ETA * 3 * known)).all()
    states[:] = np.nan
    assert np.isnan(found).all()


def assert_changes(changes, now, before, width, scale):
    """The largest change and delta of each image, in tiles of this width; NaN elsewhere.

    scale: bound of the deltas, in which the kernel rounds; None for the largest of the tile.
    Modifies changes.
    """
    for tile in range(-(-now.shape[1] // width)):
        columns = slice(tile * width, (tile + 1) * width)
        noted = changes[:, tile, : len(now)]
        change, size = abs(now - before)[:, columns].max(axis=1), abs(now)[:, columns].max(axis=1)
        assert (abs(noted[0] - change) <= EPS * (size if scale is None else scale)).all()
        assert (noted[1] == size).all()
        noted[:] = np.nan
    assert np.isnan(changes).all()


def deltas_before(D, first, end, swept, n):
    """Deltas of the window's images after the sweep before; zero for images not yet swept."""
    before = np.zeros((end - first, n), np.float32)
    known = max(0, min(swept, end) - first)
    before[:known] = D[first : first + known, :n]
    return before


@PLACES
@pytest.mark.parametrize("n_out", small(1, 10, 71))
def test_output_deltas(arrays, n_out, first, end, swept):
    rng = np.random.default_rng(n_out)
    a = np.full((N_BLOCK, pad32(n_out + 1)), np.nan, np.float32)
    D = np.full((N_BLOCK, pad32(n_out)), np.nan, np.float32)
    a[first:end, 1 : n_out + 1] = 30 * uniform(rng, end - first, n_out)
    D[:swept, :n_out] = uniform(rng, swept, n_out)
    labels, order = rng.integers(0, n_out, 200).astype(np.uint8), rng.permutation(200)
    epoch = {"labels": arrays.put(labels), "order": arrays.put(order), "losses": arrays.nans(200)}
    deltas, changes = arrays.put(D), arrays.nans(3, 2, 4, progress.MAX_WINDOW)
    now = arrays.put(in_window(first, end, swept, start=100))
    arrays.run(sums.outputs(deltas, changes, now, arrays.put(a), epoch, n_out))
    found, changed, losses = map(arrays.get, (deltas, changes, epoch["losses"]))
    z = a[first:end, 1 : n_out + 1].astype(np.float64)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    steps = slice(first + 100, end + 100)
    label = labels[order[steps]]
    now = found[first:end, :n_out]
    assert (abs(now - (p - np.eye(n_out)[label])) <= 100 * EPS).all()
    loss = -np.log(p[np.arange(end - first), label])
    assert (abs(losses[steps] - loss) <= 200 * EPS).all()
    losses[steps] = np.nan
    assert np.isnan(losses).all()
    assert_changes(changed[2], now, deltas_before(D, first, end, swept, n_out), n_out, scale=1)
    assert np.isnan(changed[:2]).all()
    assert np.isnan(found[max(end, swept) :]).all()
    assert (found[:first, :n_out] == D[:first, :n_out]).all()


@PLACES
@pytest.mark.parametrize("n", small(1, 33, 97))
def test_backward_deltas(arrays, n, first, end, swept):
    _, H, _ = layer(n, 5)
    partial, totals, G = partial_sums(pad32(n + 1), first, end, progress.MAX_WINDOW)
    D = np.full((N_BLOCK, pad32(n)), np.nan, np.float32)
    D[:swept, :n] = uniform(np.random.default_rng(n), swept, n)
    deltas, changes = arrays.put(D), arrays.nans(3, 2, 4, progress.MAX_WINDOW)
    there = arrays.put(in_window(first, end, swept)), arrays.put(until(end, H))
    eta = arrays.put(np.full(1, ETA))
    arrays.run(sums.backward(deltas, changes, arrays.put(partial), *there, eta, 1, n))
    found, changed = arrays.get(deltas), arrays.get(changes)
    y = H[:, 1 : n + 1].astype(np.float64)
    e = totals[first:end, 1 : n + 1] - ETA * G[first:end] @ y
    expected = e * (B / A) * (A - y[first:end]) * (A + y[first:end])
    now = found[first:end, :n]
    assert (abs(now - expected) <= 100 * EPS * (3 + ETA * 3 * end)).all()
    before = deltas_before(D, first, end, swept, n)
    assert_changes(changed[1], now, before, sums.NEURONS, scale=None)
    assert np.isnan(changed[[0, 2]]).all()
    assert np.isnan(found[max(end, swept) :]).all()


def test_backward_deltas_nan_is_the_largest_change(arrays):
    n, first, end = 70, 41, 73
    _, H, _ = layer(n, 5)
    partial, _, _ = partial_sums(pad32(n + 1), first, end, progress.MAX_WINDOW)
    partial[1, 45 % progress.MAX_WINDOW, 69] = np.nan
    deltas = arrays.put(np.zeros((N_BLOCK, pad32(n)), np.float32))
    changes = arrays.nans(1, 2, 2, progress.MAX_WINDOW)
    there = arrays.put(in_window(first, end, 60)), arrays.put(H), arrays.put(np.full(1, ETA))
    arrays.run(sums.backward(deltas, changes, arrays.put(partial), *there, 0, n))
    found = np.isnan(arrays.get(changes)[0])[:, :, : end - first]
    assert found[:, 1, 45 - first].all()
    assert found.sum() == 2


@pytest.mark.parametrize("swept", [0, 5])
@pytest.mark.parametrize("n_in", small(1, 33, 257))
def test_gather_images_only_before_the_first_sweep(arrays, n_in, swept):
    rng = np.random.default_rng(n_in)
    images, order = uniform(rng, 9, n_in), rng.integers(0, 9, 200)
    H = arrays.nans(20, pad32(n_in + 1))
    now = arrays.put(in_window(0, 5, swept, block=13, start=100))
    arrays.run(blocks.gather(H, now, arrays.put(images), arrays.put(order)))
    found = arrays.get(H)
    if not swept:
        assert (found[:13, 1 : n_in + 1] == images[order[100:113]]).all()
        found[:13, 1 : n_in + 1] = np.nan
    assert np.isnan(found).all()


@pytest.mark.parametrize("n", [1, 17, 75])
@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_update_weights_of_block_only_when_all_images_are_done(arrays, n_in, n_out, n):
    W, H, D = layer(n_in, n_out)
    D[:, n_out:] = H[:, n_in + 1 :] = 7  # must not reach the padding of W
    there = arrays.put(W)
    more = arrays.put(until(n, H)), arrays.put(until(n, D)), arrays.put(np.full(1, ETA))
    arrays.run(blocks.update(there, arrays.put(in_window(n - 1, n, n, n)), *more, n_in, n_out))
    assert (arrays.get(there) == W).all()
    arrays.run(blocks.update(there, arrays.put(in_window(n, n, n, n)), *more, n_in, n_out))
    found = arrays.get(there)
    h, d = H[:n, : n_in + 1].astype(np.float64), D[:n, :n_out]
    expected = W[: n_in + 1, :n_out] - ETA * h.T @ d
    size = abs(W[: n_in + 1, :n_out]) + np.sqrt(n) * ETA * abs(h.T) @ abs(d)
    assert (abs(found[: n_in + 1, :n_out] - expected) <= 4 * EPS * size).all()
    found[: n_in + 1, :n_out] = 0
    assert (found == 0).all()


def slid(arrays, changes, first, end, window=16):
    """How far a window slides after a sweep with these changes. float32 (layers, 2, tiles, 32)."""
    now = in_window(first, end)
    now[[WINDOW, TIMES, ALL_TIMES, SWEEPS]] = window, 1000, 2000, 7
    there = arrays.put(now)
    arrays.run(progress.slide(there, arrays.put(changes)))
    found, n = arrays.get(there), end - first
    if n == 0:
        assert (found == now).all()
        return 0
    assert found[[TIMES, ALL_TIMES, SWEEPS, SWEPT]].tolist() == [1000 + n, 2000 + n, 8, end]
    assert found[END] == min(found[FIRST] + window, N_BLOCK)
    return found[FIRST] - first


def quiet(n_layers=2, tiles=11):
    """Changes of a sweep in which none was as large as 1e-4 of the largest delta."""
    changes = np.zeros((n_layers, 2, tiles, progress.MAX_WINDOW), np.float32)
    changes[:, 1] = 0.5
    changes[:, 1, tiles - 1, 0] = 10  # the largest, of an image that every window has
    changes[:, 0] = 0.99e-3
    return changes


@pytest.mark.parametrize("n", small(1, 5, 32))
def test_slide_window_passes_images_whose_deltas_stayed(arrays, n):
    changes = quiet()
    assert slid(arrays, changes, 3, 3 + n) == n  # all at once
    for image in range(n):
        one = changes.copy()
        one[image % 2, 0, image % 11, image] = 1.01e-3
        assert slid(arrays, one, 3, 3 + n) == (image or n)  # the first is always done
    changes[1, 0, 7] = 1
    assert slid(arrays, changes, 3, 3 + n) == 1  # one by one


def test_slide_window_of_a_block_that_is_done_changes_nothing(arrays):
    assert slid(arrays, quiet(), 40, 40) == 0


@pytest.mark.parametrize("image", [0, 1])
@pytest.mark.parametrize(("value", "kind"), [(np.nan, 0), (np.nan, 1), (np.inf, 0), (np.inf, 1)])
def test_slide_window_stops_at_numbers_that_are_not_finite(arrays, value, kind, image):
    changes = quiet()
    changes[1, kind, 5, image] = value
    # No change is large beside an infinite delta, and the first image is always done.
    passes = (np.isinf(value) and kind == 1) or (kind == 0 and image == 0)
    assert slid(arrays, changes, 0, 20) == (20 if passes else 1)


@pytest.mark.parametrize("n", [16, 20])
def test_slide_window_ignores_images_beyond_the_window(arrays, n):
    changes = quiet()
    changes[:, 1, 10, 0] = 0.5  # now 0.99e-3 is a change
    changes[:, 1, 0, 20:] = 100
    assert slid(arrays, changes, 0, n) == 1


@pytest.mark.parametrize(("first", "end"), [(0, 9), (70, 75)])
def test_slide_window_passes_deltas_that_are_all_zero(arrays, first, end):
    changes = np.zeros((1, 2, 1, progress.MAX_WINDOW), np.float32)
    assert slid(arrays, changes, first, end) == end - first


@pytest.mark.parametrize(
    ("window", "times", "after"),
    [(16, 601, 8), (16, 600, 16), (16, 300, 16), (16, 299, 32), (8, 999, 8), (32, 1, 32)],
)
def test_next_block_begins_when_all_images_are_done(arrays, window, times, after):
    for first in (75, 74):
        now = in_window(first, 75, start=150)
        now[[WINDOW, TIMES, SWEEPS]] = window, times, 9
        there = arrays.put(now)
        arrays.run(progress.end_block(there, 75, 275))
        expected = now
        if first == 75:
            expected = in_window(0, after, 0, block=50, start=225)
            expected[[WINDOW, TIMES, SWEEPS]] = after, 0, 9
        assert (arrays.get(there) == expected).all()
    assert next_window(window, times, 75, progress.LIMITS) == after


def test_next_block_after_the_last_one_is_empty(arrays):
    now = progress.at_start(75, 40)
    assert now[[BLOCK, END, WINDOW]].tolist() == [40, 16, 16]
    now[[FIRST, END, TIMES]] = 40, 40, 999
    there = arrays.put(now)
    arrays.run(progress.end_block(there, 75, 40))
    found = arrays.get(there)
    assert found[[START, BLOCK, FIRST, END]].tolist() == [40, 0, 0, 0]
    assert found[WINDOW] == 16  # a short block says nothing of windows
    arrays.run(progress.end_block(there, 75, 40))
    assert (arrays.get(there) == found).all()


def test_every_kernel_of_the_window_is_launched():
    assert {launch.kernel for launch in launches.window().values()} == set(SIGNATURES)


@pytest.mark.skipif(not HAS_GPU, reason="the executor compiles for the signatures: needs a GPU")
def test_kernels_are_launched_with_their_signatures(arrays):
    for launch in launches.window().values():
        there = [arrays.put(a) if isinstance(a, np.ndarray) else a for a in launch.arguments]
        arrays.run([replace(launch, arguments=tuple(there))])
    assert_launched_with(SIGNATURES)
