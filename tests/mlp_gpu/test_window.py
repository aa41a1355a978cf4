"""On-line back-propagation in NumPy, plainly and by windows, against the float64 reference."""

import numpy as np
import pytest
import reference

from experiments.benchmarks import window
from mlp_gpu.window_rule import GPU_ROUNDING, Rounding

SIZES = [(13, 7), (31, 33, 10), (97, 1, 5), (50, 37, 64, 33, 10), (7, *(9,) * 9, 3)]
ETA = 0.05  # large, so that corrections and steps show


def make(sizes, n=30, seed=0):
    """Random weights, float64 that are float32 numbers too, images and labels."""
    rng = np.random.default_rng(seed)
    weights = reference.random_weights(sizes, rng)
    images = rng.uniform(-1, 1, (n, sizes[0])).astype(np.float32)
    return weights, images, rng.integers(0, sizes[-1], n).astype(np.uint8)


def copies(weights, dtype=np.float64):
    return [W.astype(dtype) for W in weights]


def norm(one, other):
    return np.sqrt(sum(np.square(W - V).sum() for W, V in zip(one, other, strict=True)))


def distance(found, expected, start):
    """Of weights from those expected, as a part of the way that these went."""
    return norm(found, expected) / norm(expected, start)


def rounding(sizes):
    """The distance that the activation's constants make, float32's, a layer after another."""
    return len(sizes) * reference.EPS


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_plain_steps_match_the_reference(sizes):
    weights, images, labels = make(sizes)
    found = copies(weights)
    window.train_plainly(found, images, labels, ETA)
    expected, _ = reference.train(weights, images, labels, range(30), ETA)
    assert distance(found, expected, weights) < rounding(sizes)


@pytest.mark.parametrize("tolerated", [Rounding(np.float32(0), np.float32(0)), GPU_ROUNDING])
@pytest.mark.parametrize(("per_window", "per_block"), [(1, 1), (1, 8), (5, 11), (64, 7), (9, 100)])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_windows_match_the_reference(sizes, per_window, per_block, tolerated):
    weights, images, labels = make(sizes)
    order = np.random.default_rng(1).integers(0, 30, 30)  # some images several times
    found = copies(weights)
    steps = images[order], labels[order], ETA, per_window, per_block
    window.train_in_windows(found, *steps, rounding=tolerated)
    expected, _ = reference.train(weights, images, labels, order, ETA)
    # Of a later delta, an inner product of inputs up to 1 at most; a chain has nothing to tolerate.
    allowed = 0 if per_window == 1 else tolerated.corrections / ETA
    assert distance(found, expected, weights) < rounding(sizes) + allowed


@pytest.mark.parametrize(
    ("layer", "image", "change", "done"),
    [
        (0, 0, 9.0, 1),  # itself is exact, the others used what it was
        (0, 2, 1.01e-3, 3),  # of the largest delta of its own layer, which is 10
        (1, 3, -2.01e-4, 4),
        (1, 3, 1.99e-4, 5),
        (1, 1, np.nan, 2),
        (0, 4, 9.0, 5),  # no image follows
    ],
)
def test_count_done_ends_with_the_first_image_whose_deltas_changed(layer, image, change, done):
    deltas = [np.full((5, 3), 10.0), np.full((5, 2), -1.0)]
    before = copies(deltas)
    before[layer][image, 1] += change
    assert window._count_done(deltas, before, [1e-4, 2e-4]) == done


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_everything_has_the_precision_of_the_weights(dtype, monkeypatch):
    seen, activate = [], window.activate
    monkeypatch.setattr(window, "activate", lambda a: seen.append(a.dtype) or activate(a))
    weights, images, labels = make((31, 33, 10))
    for train, *more in ((window.train_plainly,), (window.train_in_windows, 4, 8)):
        train(copies(weights, dtype), images, labels, ETA, *more)
        assert set(seen) == {np.dtype(dtype)}
        seen.clear()


def test_large_outputs_do_not_overflow():
    weights, images, labels = make((13, 7))
    start = [1e4 * W for W in weights]
    found, plain = copies(start, np.float32), copies(start, np.float32)
    window.train_in_windows(found, images, labels, ETA, 4, 8)
    window.train_plainly(plain, images, labels, ETA)
    for weights in (found, plain):
        assert all(np.isfinite(W).all() for W in weights)
        assert norm(weights, start) > 1


@pytest.mark.parametrize("where", ["weights", "image"])
def test_nan_ends_too(where):
    weights, images, labels = make((13, 9, 5), 20)
    if where == "weights":
        weights[1][2, 3] = np.nan
    else:
        images[0, 4] = np.nan
    sweeps = window.train_in_windows(weights, images, labels, ETA, 4, 8)
    # In the first block all, later none of the deltas are numbers: nothing is ever the same.
    assert [first for first, _ in sweeps] == list(range(20))
    assert all(np.isnan(W).any() for W in weights)
