"""The window's kernels against float64, on odd sizes, at the start of a block and in its middle.

Numbers that a kernel must not read are NaN, and so are those that it must not write.
"""
# ruff: noqa: F401, F811 - fixtures are imported

import numpy as np
import pytest
from executed import DEVICES, device, on_all_devices
from gpu_arrays import arrays, uniform
from reference import EPS, A, B

from deepbig_runtime import gpu
from mlp_gpu.network import pad32, padded_shapes
from mlp_gpu.tensor_cores import KERNELS, LOWEST_CC, fastest
from mlp_gpu.window import blocks, products, progress, sums
from mlp_gpu.window.progress import (
    ALL_TIMES,
    BLOCK,
    END,
    FIRST,
    SQUARE,
    START,
    SWEEPS,
    SWEPT,
    TIMES,
    WINDOW,
)
from mlp_gpu.window.workspace import Workspace
from mlp_gpu.window_rule import next_window

SIZES = [(1, 1), (31, 33), (32, 5), (97, 10), (33, 97), (130, 70)]
LAYERS = [pytest.param(*sizes, marks=pytest.mark.small) for sizes in SIZES]
LONG = [*LAYERS, (520, 5), (5, 520)]  # sums in several parts
WINDOWS = [
    pytest.param(0, 5, 2, id="start"),
    pytest.param(41, 73, 60, id="middle"),
    pytest.param(3, 75, 40, id="several groups"),
]
PLACES = pytest.mark.parametrize(("first", "end", "swept"), WINDOWS)
ETA = np.float32(0.25)
N_BLOCK, RING = 75, 128  # images; rows of `partial`, of which none is used twice


def in_window(first, end, swept=0, block=N_BLOCK, start=0):
    """Progress in the middle of a block, int32 (FIELDS,); -1 in fields that no test sets."""
    found = np.full(progress.FIELDS, -1, np.int32)
    found[[FIRST, END, SWEPT, BLOCK, START]] = first, end, swept, block, start
    return found


def ring_of(first, end):
    """The fewest rows of `partial` for such a window: the last images take the first rows."""
    return 1 << (end - first - 1).bit_length()


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


def groups(first, end):
    """The images that a thread block takes at most, from the first on."""
    return [(i, min(i + products.IMAGES, end)) for i in range(first, end, products.IMAGES)]


def assert_products(cc, found, rows, matrix, images_of_blocks):
    """The parts' sums are rows @ (matrix | rows^T), up to each block's last image; no more.

    Those of tensor cores have scalar products in the first part alone, and zeros for s >= t.
    """
    ring, columns, width = found.shape[1], matrix.shape[1], found.shape[2] - matrix.shape[1]
    h, written = rows.astype(np.float64), np.zeros(found.shape, bool)
    for first, end in images_of_blocks:
        images, n = np.arange(first, end) % ring, width if cc >= LOWEST_CC else end
        others = np.zeros((n, h.shape[1]))
        others[:end] = h[:end]
        before = np.arange(first, end)[:, None] > np.arange(n) if cc >= LOWEST_CC else 1
        terms = np.hstack((matrix, others.T))
        expected, size = h[first:end] @ terms, abs(h[first:end]) @ abs(terms)
        expected[:, columns:] *= before
        size[:, columns:] *= before
        written[:, images, :columns] = True
        written[: 1 if cc >= LOWEST_CC else None, images, columns : columns + n] = True
        total = np.nansum(found[:, images, : columns + n], axis=0, dtype=np.float64)
        assert (abs(total - expected) <= 4 * np.sqrt(h.shape[1]) * EPS * size + 1e-30).all()
    assert (np.isnan(found) == ~written).all()


@pytest.fixture
def cc(device):
    """Compute capability of the GPU, on which its kernels depend."""
    return gpu.compute_capability()


@pytest.fixture
def run(arrays, cc):
    """A function that launches the GPU's fastest kernels."""
    return lambda launches: arrays.run(fastest(launches, cc))


@pytest.mark.parametrize(("cc", "others"), [((7, 5), KERNELS.values()), ((8, 0), KERNELS)])
def test_a_block_runs_on_tensor_cores_from_compute_capability_8_on(device, cc, others):
    sizes = (3, 5, 2)
    weights = [gpu.device_array(shape, np.float32) for shape in padded_shapes(sizes)]
    workspace, eta = Workspace(sizes, weights, 32, cc), gpu.device_array((1,), np.float32)
    images, order = gpu.device_array((4, 3), np.float32), gpu.device_array((4,), np.int64)
    epoch = {"labels": order, "order": order, "losses": eta}
    launches = workspace.begin_block(images, order) + workspace.sweep(epoch, eta)
    launches += workspace.end_block(eta, 4)
    assert not {launch.kernel for launch in launches} & set(others)


@on_all_devices
@PLACES
@pytest.mark.parametrize(("n_in", "n_out"), LONG)
def test_forward_products(arrays, cc, run, n_in, n_out, first, end, swept):
    W, H, _ = layer(n_in, n_out)
    splits, _, width = products.partial_shape(*W.shape, N_BLOCK, N_BLOCK)
    partial = arrays.nans(splits, ring_of(first, end), width)
    now = arrays.put(in_window(first, end, swept))
    run(products.forward(partial, now, arrays.put(until(end, H)), arrays.put(W)))
    assert_products(cc, arrays.get(partial), H, W, groups(first, end))


@on_all_devices
@PLACES
@pytest.mark.parametrize(("n_in", "n_out"), LONG)
def test_backward_products(arrays, cc, run, n_in, n_out, first, end, swept):
    W, _, D = layer(n_in, n_out)
    partial = arrays.nans(*products.partial_shape(*W.shape[::-1], N_BLOCK, N_BLOCK))
    now = arrays.put(in_window(first, end, swept))
    run(products.backward(partial, now, arrays.put(until(end, D)), arrays.put(W)))
    assert_products(cc, arrays.get(partial), D, W.T, groups(first, end))


@on_all_devices
@pytest.mark.parametrize(("n", "swept"), [(75, 0), (40, 0), (33, 0), (1, 0), (40, 3)])
@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_forward_products_of_a_whole_block_only_before_its_first_sweep(
    arrays, cc, run, n_in, n_out, n, swept
):
    W, H, _ = layer(n_in, n_out)
    partial = arrays.nans(*products.partial_shape(*W.shape, N_BLOCK, N_BLOCK))
    now = arrays.put(in_window(0, 5, swept, block=n))
    run(products.forward(partial, now, arrays.put(until(n, H)), arrays.put(W), whole=True))
    assert_products(cc, arrays.get(partial), H, W, [] if swept else groups(0, n))


def product_errors(arrays, cc, way, n_in, n_out):
    """Errors of 32 images' products, root mean square, as a part of the largest product.

    Of a layer's real inputs, and 64 columns.
    """
    inner, n = pad32(n_in if way == "forward" else n_out), 32
    rng = np.random.default_rng(n_in)
    M, R = uniform(rng, inner, products.COLUMNS), uniform(rng, n, inner)
    partial = arrays.nans(*products.partial_shape(inner, products.COLUMNS, n, n))
    matrix = arrays.put(M if way == "forward" else np.ascontiguousarray(M.T))
    now = arrays.put(in_window(0, n))
    launches = getattr(products, way)(partial, now, arrays.put(R), matrix)
    arrays.run(fastest(launches, cc))
    found = np.nansum(arrays.get(partial), axis=0, dtype=np.float64)
    exact = R.astype(np.float64) @ np.hstack((M, R.T))
    before = np.tri(n, k=-1, dtype=bool)  # the scalar products that are needed
    is_needed = np.hstack((np.ones((n, products.COLUMNS), bool), before))
    return np.sqrt(np.mean((found - exact)[is_needed] ** 2)) / abs(exact).max()


@pytest.mark.parametrize("device", DEVICES[-1:], indirect=True)
@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize(("n_in", "n_out"), [(1001, 500), (2501, 2000)], ids=["net 1", "net 4"])
def test_tensor_products_are_nearly_as_exact_as_those_of_float32(arrays, way, n_in, n_out):
    errors = [product_errors(arrays, cc, way, n_in, n_out) for cc in (LOWEST_CC, (7, 5))]
    # Each factor loses at most 2**-23; a product in float32 2**-24, and so does each sum.
    assert errors[0] < 3 * errors[1]


def partial_sums(cc, n_columns, first, end, ring):
    """Random products, and of the window's images their sums: A, and G (s < t).

    In one part if the ring is tight, so that nothing lies behind its last row; otherwise in three.
    Those of tensor cores have G in the first part, and zeros for s >= t.
    """
    n_parts = 3 if ring == RING else 1
    rng = np.random.default_rng(n_columns + end)
    partial = np.full((n_parts, ring, n_columns + pad32(N_BLOCK)), np.nan, np.float32)
    A, G = np.zeros((N_BLOCK, n_columns)), np.zeros((N_BLOCK, N_BLOCK))
    for t in range(first, end):
        row = uniform(rng, n_parts, n_columns + t)
        partial[:, t % ring, : n_columns + t] = row
        if cc >= LOWEST_CC:
            partial[1:, t % ring, n_columns:], row[1:, n_columns:] = np.nan, 0
            partial[0, t % ring, n_columns + t :] = 0
        total = row.sum(axis=0, dtype=np.float64)
        A[t], G[t, :t] = total[:n_columns], total[n_columns:]
    return partial, A, G


@on_all_devices
@PLACES
@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("is_tight", [True, False])
@pytest.mark.parametrize("n_out", small(1, 33, 97))
def test_forward_states(arrays, cc, run, n_out, is_tight, hidden, first, end, swept):
    _, _, D = layer(5, n_out)
    ring = ring_of(first, end) if is_tight else RING
    partial, totals, G = partial_sums(cc, pad32(n_out), first, end, ring)
    H_next = arrays.nans(N_BLOCK, pad32(n_out + 1))
    deltas = arrays.put(until(swept, D))  # others are not known yet
    now, eta = arrays.put(in_window(first, end, swept)), arrays.put(np.full(1, ETA))
    run(sums.forward(H_next, arrays.put(partial), now, deltas, eta, n_out, hidden))
    found = arrays.get(H_next)
    known = min(swept, end)
    correction = G[first:end, :known] @ D[:known, :n_out].astype(np.float64)
    a = totals[first:end, :n_out] - ETA * correction
    expected = A * np.tanh(B * a) if hidden else a
    states = found[first:end, 1 : n_out + 1]
    assert (abs(states - expected) <= 40 * EPS * (3 + ETA * 3 * known)).all()
    states[:] = np.nan
    assert np.isnan(found).all()


def no_changes(n_layers):
    return np.zeros(progress.changes_shape(n_layers), np.int32)


def assert_changes(changes, layer, now, before, scale):
    """The largest change and delta of each image of the window in a layer; zero elsewhere.

    changes: from the GPU, modified. scale: bound of the deltas, in which the kernel rounds; None
    for each image's largest.
    """
    noted = changes.view(np.float32)[layer, :, : len(now)]
    change, size = abs(now - before).max(axis=1), abs(now).max(axis=1)
    assert (abs(noted[0] - change) <= EPS * (size if scale is None else scale)).all()
    assert (noted[1] == size).all()
    noted[:] = 0
    assert not changes.any()


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
    deltas, changes = arrays.put(D), arrays.put(no_changes(3))
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
    assert_changes(changed, 2, now, deltas_before(D, first, end, swept, n_out), scale=1)
    assert np.isnan(found[max(end, swept) :]).all()
    assert (found[:first, :n_out] == D[:first, :n_out]).all()


@on_all_devices
@PLACES
@pytest.mark.parametrize("n", small(1, 33, 97))
def test_backward_deltas(arrays, cc, run, n, first, end, swept):
    _, H, _ = layer(n, 5)
    partial, totals, G = partial_sums(cc, pad32(n + 1), first, end, ring_of(first, end))
    D = np.full((N_BLOCK, pad32(n)), np.nan, np.float32)
    D[:swept, :n] = uniform(np.random.default_rng(n), swept, n)
    deltas, changes = arrays.put(D), arrays.put(no_changes(3))
    there = arrays.put(in_window(first, end, swept)), arrays.put(until(end, H))
    eta = arrays.put(np.full(1, ETA))
    run(sums.backward(deltas, changes, arrays.put(partial), *there, eta, 1, n))
    found, changed = arrays.get(deltas), arrays.get(changes)
    y = H[:, 1 : n + 1].astype(np.float64)
    e = totals[first:end, 1 : n + 1] - ETA * G[first:end] @ y
    expected = e * (B / A) * (A - y[first:end]) * (A + y[first:end])
    now = found[first:end, :n]
    assert (abs(now - expected) <= 100 * EPS * (3 + ETA * 3 * end)).all()
    before = deltas_before(D, first, end, swept, n)
    assert_changes(changed, 1, now, before, scale=None)
    assert np.isnan(found[max(end, swept) :]).all()


@on_all_devices
def test_backward_deltas_nan_is_the_largest_change(arrays, cc, run):
    n, first, end = 70, 41, 73
    _, H, _ = layer(n, 5)
    partial, _, _ = partial_sums(cc, pad32(n + 1), first, end, RING)
    partial[1, 45 % RING, 69] = np.nan
    deltas = arrays.put(np.zeros((N_BLOCK, pad32(n)), np.float32))
    changes = arrays.put(no_changes(1))
    there = arrays.put(in_window(first, end, 60)), arrays.put(H), arrays.put(np.full(1, ETA))
    run(sums.backward(deltas, changes, arrays.put(partial), *there, 0, n))
    found = np.isnan(arrays.get(changes).view(np.float32)[0])
    assert found[:, 45 - first].all()
    assert found.sum() == 2


@pytest.mark.parametrize("swept", [0, 5])
@pytest.mark.parametrize("n_in", small(1, 33, 257))
def test_gather_images_only_before_the_first_sweep(arrays, n_in, swept):
    rng = np.random.default_rng(n_in)
    images, order = uniform(rng, 9, n_in), rng.integers(0, 9, 200)
    H = arrays.nans(20, pad32(n_in + 1))
    now = arrays.put(in_window(0, 5, swept, block=13, start=100))
    arrays.run(blocks.gather(H, now, arrays.put(images), arrays.put(order)))
    found, square = arrays.get(H), arrays.get(now)[[SQUARE]]
    if swept:
        assert square == -1
    else:
        expected = 1 + np.square(images[order[100:113]].astype(float)).sum(axis=1).max()
        assert abs(square.view(np.float32) - expected) <= np.sqrt(n_in) * EPS * expected
        assert (found[:13, 1 : n_in + 1] == images[order[100:113]]).all()
        found[:13, 1 : n_in + 1] = np.nan
    assert np.isnan(found).all()


@on_all_devices
@pytest.mark.parametrize("n", [1, 17, 75])
@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_update_of_a_block_only_when_all_images_are_done(arrays, run, n_in, n_out, n):
    W, H, D = layer(n_in, n_out)
    D[:, n_out:] = H[:, n_in + 1 :] = 7  # must not reach the padding of W
    there = arrays.put(W)
    more = arrays.put(until(n, H)), arrays.put(until(n, D)), arrays.put(np.full(1, ETA))
    run(blocks.update(there, arrays.put(in_window(n - 1, n, n, n)), *more, n_in, n_out))
    assert (arrays.get(there) == W).all()
    run(blocks.update(there, arrays.put(in_window(n, n, n, n)), *more, n_in, n_out))
    found = arrays.get(there)
    h, d = H[:n, : n_in + 1].astype(np.float64), D[:n, :n_out]
    expected = W[: n_in + 1, :n_out] - ETA * h.T @ d
    size = abs(W[: n_in + 1, :n_out]) + np.sqrt(n) * ETA * abs(h.T) @ abs(d)
    assert (abs(found[: n_in + 1, :n_out] - expected) <= 4 * EPS * size).all()
    found[: n_in + 1, :n_out] = 0
    assert (found == 0).all()


def slid(arrays, changes, first, end, window=16, eta=1e-3, square=1, inputs=(1, 1, 1)):
    """How far a window slides after a sweep with these changes. float32 (layers, 2, images).

    square: the largest |h|^2 in layer 1. inputs: of each layer.
    """
    now = in_window(first, end)
    now[[WINDOW, TIMES, ALL_TIMES, SWEEPS]] = window, 1000, 2000, 7
    now[SQUARE] = np.float32(square).view(np.int32)
    there, noted, sizes = map(arrays.put, (now, changes.view(np.int32), np.int32(inputs)))
    arrays.run(progress.slide(there, noted, sizes, arrays.put(np.full(1, eta, np.float32))))
    found, n = arrays.get(there), end - first
    if n == 0:
        assert (found == now).all()
        return 0
    assert not arrays.get(noted).any()  # for the next sweep
    assert found[[TIMES, ALL_TIMES, SWEEPS, SWEPT]].tolist() == [1000 + n, 2000 + n, 8, end]
    assert found[END] == min(found[FIRST] + window, N_BLOCK)
    return found[FIRST] - first


def quiet(n):
    """Changes of n images in a sweep in which none was as large as 1e-4 of the largest delta."""
    changes = no_changes(3).view(np.float32)
    changes[:, 1, :n] = 0.5
    changes[:, 1, n - 1] = 10
    changes[:, 0, :n] = 0.99e-3
    return changes


@pytest.mark.parametrize("n", small(1, 5, 72))
def test_slide_window_passes_images_before_which_all_deltas_stayed(arrays, n):
    changes = quiet(n)
    assert slid(arrays, changes, 3, 3 + n) == n  # all at once
    for image in range(n):
        one = changes.copy()
        one[image % 3, 0, image] = 1.01e-3
        assert slid(arrays, one, 3, 3 + n) == image + 1
    changes[1, 0, :n] = 1
    assert slid(arrays, changes, 3, 3 + n) == 1  # one by one


@pytest.mark.parametrize(
    ("eta", "layer", "square", "limit"),
    [
        *((0, 1, 1, 0.1), (1e-5, 1, 1, 3e-3), (1e-3, 1, 1, 1e-4), (1e-2, 1, 1, 1e-4)),
        # 6e-8 sqrt(n) / (eta^2 |h|^3): layer 1 reads 25 numbers, layer 2 reads 400, about 1 each.
        *((0.1, 1, 1, 1.5e-8), (0.1, 0, 1, 3e-5), (0.1, 0, 25, 2.4e-7), (0.1, 0, 100, 3e-8)),
    ],
)
def test_slide_window_tolerates_more_the_less_a_change_does(arrays, eta, layer, square, limit):
    changes, inputs = quiet(20), (25, 400 if eta == 0.1 else 1, 1)
    changes[:, 0] = 0
    for factor, passed in ((0.99, 20), (1.01, 8)):
        changes[layer, 0, 7] = factor * limit * 10  # the largest delta is 10
        assert slid(arrays, changes, 3, 23, 16, eta, square, inputs) == passed


def test_slide_window_of_a_block_that_is_done_changes_nothing(arrays):
    assert slid(arrays, quiet(1), 40, 40) == 0


@pytest.mark.parametrize("image", [0, 1])
@pytest.mark.parametrize(("value", "kind"), [(np.nan, 0), (np.nan, 1), (np.inf, 0), (np.inf, 1)])
def test_slide_window_stops_at_numbers_that_are_not_finite(arrays, value, kind, image):
    changes = quiet(20)
    changes[1, kind, image] = value
    # No change is large beside an infinite delta, and each is beside NaN.
    expected = image + 1 if kind == 0 else 20 if np.isinf(value) else 1
    assert slid(arrays, changes, 0, 20) == expected


@pytest.mark.parametrize(("first", "end"), [(0, 9), (70, 75)])
def test_slide_window_passes_deltas_that_are_all_zero(arrays, first, end):
    changes = no_changes(1).view(np.float32)
    assert slid(arrays, changes, first, end) == end - first


@pytest.mark.parametrize(
    ("window", "times", "after"),
    [(16, 601, 8), (16, 600, 16), (16, 300, 16), (16, 299, 32), (8, 999, 8), (512, 1, 512)],
)
def test_next_block_begins_when_all_images_are_done(arrays, window, times, after):
    for first in (75, 74):
        now = in_window(first, 75, start=150)
        now[[WINDOW, TIMES, SWEEPS]] = window, times, 9
        there = arrays.put(now)
        arrays.run(progress.end_block(there, 75, 275))
        expected = now
        if first == 75:
            expected = in_window(0, min(after, 50), 0, block=50, start=225)
            expected[[WINDOW, TIMES, SWEEPS, SQUARE]] = after, 0, 9, 0
        assert (arrays.get(there) == expected).all()
    assert next_window(window, times, 75, progress.LIMITS) == after


def test_next_block_after_the_last_one_is_empty(arrays):
    now = progress.at_start(75, 40)
    assert now[[BLOCK, END, WINDOW]].tolist() == [40, 40, 128]
    now[[FIRST, END, TIMES]] = 40, 40, 999
    there = arrays.put(now)
    arrays.run(progress.end_block(there, 75, 40))
    found = arrays.get(there)
    assert found[[START, BLOCK, FIRST, END]].tolist() == [40, 0, 0, 0]
    assert found[WINDOW] == 128  # a short block says nothing of windows
    arrays.run(progress.end_block(there, 75, 40))
    assert (arrays.get(there) == found).all()
