"""The window's kernels against float64, on odd sizes, for two nets that stand at different places.

What a kernel must not read is NaN, and so is what it must not write.
"""
# ruff: noqa: F401, F811 - fixtures are imported

from dataclasses import replace

import numpy as np
import pytest
import window_cases
from executed import HAS_GPU, device
from gpu_arrays import arrays, uniform
from numba.core import sigutils
from reference import EPS, A, B
from test_window_progress import N_BLOCK, WINDOWS, in_windows

from mlp_gpu.network import pad32
from mlp_gpu.window import SIGNATURES, blocks, products, progress, sums

SIZES = [(1, 1), (31, 33), (32, 5), (97, 10), (33, 97), (130, 70)]
LAYERS = [pytest.param(*sizes, marks=pytest.mark.small) for sizes in SIZES]
ETA = np.float32(0.25)


def layer(n_in, n_out):
    """W, H and D of two nets, with padding of zeros and a leading 1 in H."""
    rng = np.random.default_rng([n_in, n_out])
    W = np.zeros((2, pad32(n_in + 1), pad32(n_out)), np.float32)
    H = np.zeros((2, N_BLOCK, pad32(n_in + 1)), np.float32)
    D = np.zeros((2, N_BLOCK, pad32(n_out)), np.float32)
    W[:, : n_in + 1, :n_out] = uniform(rng, 2, n_in + 1, n_out)
    H[:, :, : n_in + 1], H[:, :, 0] = uniform(rng, 2, N_BLOCK, n_in + 1), 1
    D[:, :, :n_out] = uniform(rng, 2, N_BLOCK, n_out)
    return W, H, D


def without(matrix, windows):
    """A copy whose rows from the ends of the windows on are NaN."""
    matrix = matrix.copy()
    for rows, (_, end) in zip(matrix, windows, strict=True):
        rows[end:] = np.nan
    return matrix


def assert_products(found, rows, matrix, windows):
    """The parts' sums are rows @ (matrix | rows^T) of the windows' images, and nothing else.

    windows: of each net, those that are at work.
    """
    ring, columns = found.shape[2], matrix.shape[2]
    for net, some in enumerate(windows):
        h, written = rows[net].astype(np.float64), np.zeros(found.shape[1:], bool)
        for first, end in some:
            terms = np.hstack((matrix[net], h[:end].T))
            expected, size = h[first:end] @ terms, abs(h[first:end]) @ abs(terms)
            images = np.arange(first, end) % ring
            written[:, images, : columns + end] = True
            total = found[net][:, images, : columns + end].sum(axis=0, dtype=np.float64)
            assert (abs(total - expected) <= 4 * np.sqrt(h.shape[1]) * EPS * size + 1e-30).all()
        assert (np.isnan(found[net]) == ~written).all()


@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_forward_products(arrays, n_in, n_out):
    W, H, _ = layer(n_in, n_out)
    shape = products.partial_shape(2, *W.shape[1:], N_BLOCK, progress.MAX_WINDOW)
    partial = arrays.nans(*shape)
    there = arrays.put(in_windows()), arrays.put(without(H, WINDOWS)), arrays.put(W)
    arrays.run(products.forward(partial, *there))
    assert_products(arrays.get(partial), H, W, [[window] for window in WINDOWS])


@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_backward_products(arrays, n_in, n_out):
    W, _, D = layer(n_in, n_out)
    shape = products.partial_shape(2, *W.shape[:0:-1], N_BLOCK, progress.MAX_WINDOW)
    partial = arrays.nans(*shape)
    there = arrays.put(in_windows()), arrays.put(without(D, WINDOWS)), arrays.put(W)
    arrays.run(products.backward(partial, *there))
    turned = W.swapaxes(1, 2)
    assert_products(arrays.get(partial), D, turned, [[window] for window in WINDOWS])


@pytest.mark.parametrize("block", [(75, 40), (1, 33)], ids=str)
@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_products_of_a_block_that_has_just_begun(arrays, n_in, n_out, block):
    W, H, _ = layer(n_in, n_out)
    ends = [(0, n) for n in block]
    groups = [[(i, min(i + 32, n)) for i in range(0, n, 32)] for n in block]
    shape = products.partial_shape(2, *W.shape[1:], N_BLOCK, N_BLOCK)
    for swept in ((0, 0), (0, 3)):
        partial = arrays.nans(*shape)
        now = arrays.put(in_windows(swept=swept, block=block))
        there = now, arrays.put(without(H, ends)), arrays.put(W)
        arrays.run(products.forward(partial, *there, whole=True))
        assert_products(arrays.get(partial), H, W, [groups[0], [] if swept[1] else groups[1]])


def test_sums_over_long_sides_have_parts():
    depths = {inner: products.depth_of(inner, 512, 128) for inner in (32, 64, 128, 1024, 2528)}
    assert depths == {32: 32, 64: 64, 128: 64, 1024: 64, 2528: 128}
    assert products.depth_of(2528, 2016, 128) == 384
    assert products.depth_of(1024, 100_000, 128) == 1024


def partial_sums(n_columns, windows, ring, seed):
    """Random products in three parts, and of each window's images their sums: A, and G (s < t)."""
    rng = np.random.default_rng(seed)
    partial = np.full((2, 3, ring, n_columns + N_BLOCK), np.nan, np.float32)
    A, G = [], []
    for net, (first, end) in enumerate(windows):
        A.append(np.zeros((N_BLOCK, n_columns)))
        G.append(np.zeros((N_BLOCK, N_BLOCK)))
        for t in range(first, end):
            row = uniform(rng, 3, n_columns + t)
            partial[net, :, t % ring, : n_columns + t] = row
            total = row.sum(axis=0, dtype=np.float64)
            A[net][t], G[net][t, :t] = total[:n_columns], total[n_columns:]
    return partial, A, G


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("ring", [progress.MAX_WINDOW, N_BLOCK])
@pytest.mark.parametrize("n_out", [pytest.param(n, marks=pytest.mark.small) for n in (1, 33, 97)])
def test_states(arrays, n_out, ring, hidden):
    swept = 2, 60
    _, _, D = layer(5, n_out)
    partial, sums_, G = partial_sums(pad32(n_out), WINDOWS, ring, n_out)
    H_next = arrays.nans(2, N_BLOCK, pad32(n_out + 1))
    deltas = without(D, [(0, n) for n in swept])  # others are not known yet
    there = arrays.put(in_windows(swept=swept)), arrays.put(deltas)
    eta = arrays.put(np.full(1, ETA))
    arrays.run(sums.forward(H_next, arrays.put(partial), *there, eta, n_out, hidden))
    found = arrays.get(H_next)
    for net, (first, end) in enumerate(WINDOWS):
        known = min(swept[net], end)
        correction = G[net][first:end, :known] @ D[net, :known, :n_out].astype(np.float64)
        a = sums_[net][first:end, :n_out] - ETA * correction
        size = 3 + ETA * 3 * known
        expected = A * np.tanh(B * a) if hidden else a
        own = found[net, first:end, 1 : n_out + 1]
        assert (abs(own - expected) <= 40 * EPS * size).all()
        found[net, first:end, 1 : n_out + 1] = np.nan
    assert np.isnan(found).all()


@pytest.mark.parametrize("n_out", [pytest.param(n, marks=pytest.mark.small) for n in (1, 10, 71)])
def test_output_deltas(arrays, n_out):
    rng = np.random.default_rng(n_out)
    swept = 2, 60
    a = np.full((2, N_BLOCK, pad32(n_out + 1)), np.nan, np.float32)
    D = np.full((2, N_BLOCK, pad32(n_out)), np.nan, np.float32)
    for net, (first, end) in enumerate(WINDOWS):
        a[net, first:end, 1 : n_out + 1] = 30 * uniform(rng, end - first, n_out)
        D[net, : swept[net], :n_out] = uniform(rng, swept[net], n_out)
    labels = rng.integers(0, n_out, (2, 200)).astype(np.uint8)
    order = np.stack([rng.permutation(200) for _ in range(2)])
    there = {"labels": arrays.put(labels), "order": arrays.put(order)}
    epoch = there | {"losses": arrays.nans(2, 200)}
    deltas, changes = arrays.put(D), arrays.nans(2, 3, 2, 4, progress.MAX_WINDOW)
    now = arrays.put(in_windows(swept=swept))
    arrays.run(sums.outputs(deltas, changes, now, arrays.put(a), epoch, n_out))
    found, changed, losses = map(arrays.get, (deltas, changes, epoch["losses"]))
    for net, (first, end) in enumerate(WINDOWS):
        own = a[net, first:end, 1 : n_out + 1].astype(np.float64)
        p = np.exp(own - own.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        steps = slice(first + 100 * net, end + 100 * net)
        label = labels[net, order[net, steps]]
        expected = p - np.eye(n_out)[label]
        assert (abs(found[net, first:end, :n_out] - expected) <= 100 * EPS).all()
        loss = -np.log(p[np.arange(end - first), label])
        assert (abs(losses[net, steps] - loss) <= 200 * EPS).all()
        losses[net, steps] = np.nan
        before = np.zeros((end - first, n_out))
        n = max(0, min(swept[net], end) - first)
        before[:n] = D[net, first : first + n, :n_out]
        now = found[net, first:end, :n_out]
        last = changed[net, 2, :, 0, : end - first]
        change = abs(now - before.astype(np.float32)).max(axis=1)
        assert (abs(last[0] - change) <= EPS).all()  # of a delta that was not rounded, perhaps
        assert (last[1] == abs(now).max(axis=1)).all()
        last[:] = np.nan
        rest = slice(max(end, swept[net]), None)
        assert np.isnan(found[net, rest]).all()
        assert (found[net, :first, :n_out] == D[net, :first, :n_out]).all()
    assert np.isnan(changed).all()
    assert np.isnan(losses).all()


@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.small) for n in (1, 33, 97)])
def test_deltas(arrays, n):
    rng = np.random.default_rng(n)
    swept = 2, 60
    _, H, _ = layer(n, 5)
    partial, sums_, G = partial_sums(pad32(n + 1), WINDOWS, progress.MAX_WINDOW, n)
    D = np.full((2, N_BLOCK, pad32(n)), np.nan, np.float32)
    for net in range(2):
        D[net, : swept[net], :n] = uniform(rng, swept[net], n)
    deltas, changes = arrays.put(D), arrays.nans(2, 3, 2, 4, progress.MAX_WINDOW)
    there = arrays.put(in_windows(swept=swept)), arrays.put(without(H, WINDOWS))
    eta = arrays.put(np.full(1, ETA))
    arrays.run(sums.backward(deltas, changes, arrays.put(partial), *there, eta, 1, n))
    found, changed = arrays.get(deltas), arrays.get(changes)
    tiles = -(-n // sums.NEURONS)
    for net, (first, end) in enumerate(WINDOWS):
        y = H[net, :, 1 : n + 1].astype(np.float64)
        e = sums_[net][first:end, 1 : n + 1] - ETA * G[net][first:end] @ y
        expected = e * (B / A) * (A - y[first:end]) * (A + y[first:end])
        now = found[net, first:end, :n]
        assert (abs(now - expected) <= 100 * EPS * (3 + ETA * 3 * end)).all()
        before = np.zeros((end - first, n), np.float32)
        known = max(0, min(swept[net], end) - first)
        before[:known] = D[net, first : first + known, :n]
        for tile in range(tiles):
            columns = slice(tile * sums.NEURONS, (tile + 1) * sums.NEURONS)
            own = changed[net, 1, :, tile, : end - first]
            change = abs(now - before)[:, columns].max(axis=1)
            size = abs(now)[:, columns].max(axis=1)
            assert (abs(own[0] - change) <= EPS * size).all()  # see test_output_deltas
            assert (own[1] == size).all()
            own[:] = np.nan
        assert (found[net, :first, :n] == D[net, :first, :n]).all()
        assert np.isnan(found[net, max(end, swept[net]) :]).all()
    assert np.isnan(changed).all()


def test_nan_is_the_largest_change(arrays):
    n = 70
    _, H, _ = layer(n, 5)
    partial, _, _ = partial_sums(pad32(n + 1), WINDOWS, progress.MAX_WINDOW, n)
    partial[1, 1, 45 % progress.MAX_WINDOW, 69] = np.nan
    deltas, changes = (
        arrays.put(np.zeros((2, N_BLOCK, pad32(n)), np.float32)),
        arrays.nans(2, 1, 2, 2, progress.MAX_WINDOW),
    )
    there = arrays.put(in_windows()), arrays.put(H), arrays.put(np.full(1, ETA))
    arrays.run(sums.backward(deltas, changes, arrays.put(partial), *there, 0, n))
    found = np.isnan(arrays.get(changes)[1, 0])[:, :, : 73 - 41]
    assert found[:, 1, 45 - 41].all()
    assert found.sum() == 2


@pytest.mark.parametrize("n_in", [pytest.param(n, marks=pytest.mark.small) for n in (1, 33, 257)])
def test_gather(arrays, n_in):
    rng = np.random.default_rng(n_in)
    images = uniform(rng, 2, 9, n_in)
    order = rng.integers(0, 9, (2, 200))
    H = arrays.nans(2, 20, pad32(n_in + 1))
    for swept in ((5, 5), (0, 5)):
        now = arrays.put(in_windows(swept=swept, block=(20, 13)))
        arrays.run(blocks.gather(H, now, arrays.put(images), arrays.put(order)))
        found = arrays.get(H)
        if swept[0] == 0:
            assert (found[0, :, 1 : n_in + 1] == images[0, order[0, :20]]).all()
            found[0, :, 1 : n_in + 1] = np.nan
        assert np.isnan(found).all()


@pytest.mark.parametrize("n", [1, 17, 75])
@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_update(arrays, n_in, n_out, n):
    W, H, D = layer(n_in, n_out)
    ends = [(0, n), (0, n)]
    D[:, :, n_out:] = H[:, :, n_in + 1 :] = 7  # must not reach the padding of W
    there = arrays.put(W)
    now = arrays.put(in_windows([(n, n), (n - 1, n)], block=n))  # of the second, one is not done
    more = arrays.put(without(H, ends)), arrays.put(without(D, ends)), arrays.put(np.full(1, ETA))
    arrays.run(blocks.update(there, now, *more, n_in, n_out))
    found = arrays.get(there)
    assert (found[1] == W[1]).all()
    h, d = H[0, :n, : n_in + 1].astype(np.float64), D[0, :n, :n_out]
    expected = W[0, : n_in + 1, :n_out] - ETA * h.T @ d
    size = abs(W[0, : n_in + 1, :n_out]) + np.sqrt(n) * ETA * abs(h.T) @ abs(d)
    assert (abs(found[0, : n_in + 1, :n_out] - expected) <= 4 * EPS * size).all()
    found[0, : n_in + 1, :n_out] = 0
    assert (found[0] == 0).all()


def test_the_launches_are_of_all_kernels():
    assert {launch.kernel for launch in window_cases.launches().values()} == set(SIGNATURES)


@pytest.mark.skipif(not HAS_GPU, reason="the executor compiles for the signatures: needs a GPU")
def test_kernels_are_launched_with_their_signatures(arrays):
    for launch in window_cases.launches().values():
        there = [arrays.put(a) if isinstance(a, np.ndarray) else a for a in launch.arguments]
        arrays.run([replace(launch, arguments=tuple(there))])
    for kernel, text in SIGNATURES.items():
        expected, _ = sigutils.normalize_signature(text)
        assert set(kernel.overloads) == {expected}, kernel
