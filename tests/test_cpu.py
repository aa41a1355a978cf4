"""The CPU engine against the float64 reference, on odd sizes."""

import numpy as np
import pytest
import reference

from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network, padded_shapes

SIZES = [(13, 7), (31, 33, 10), (97, 1, 5), (50, 37, 64, 33, 10), (33, 501, 97, 10)]


def make(sizes, seed=0, n=12):
    """An engine with random weights, the same as unpadded float64, and images to train on."""
    rng = np.random.default_rng(seed)
    weights = reference.random_weights(sizes, rng)
    padded = []
    for W, shape in zip(weights, padded_shapes(sizes), strict=True):
        padded.append(np.zeros(shape, np.float32))
        padded[-1][: W.shape[0], : W.shape[1]] = W
    engine = CpuEngine()
    engine.set_network(Network(sizes, tuple(padded)))
    images = rng.uniform(-1, 1, (n, sizes[0])).astype(np.float32)
    labels = rng.integers(0, sizes[-1], n).astype(np.uint8)
    return engine, weights, images, labels


def unpadded(network):
    return [
        W[: n_in + 1, :n_out]
        for W, n_in, n_out in zip(
            network.weights, network.sizes[:-1], network.sizes[1:], strict=True
        )
    ]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_ten_steps_match_the_reference(sizes):
    engine, weights, images, labels = make(sizes)
    order = np.array([3, 1, 4, 1, 5, 9, 2, 6, 11, 0])
    eta = float(np.float32(0.05))  # large, so that each step shows
    loss = engine.train(images, labels, order, eta)
    expected, expected_loss = reference.train(weights, images, labels, order, eta)
    bounds, loss_bound = reference.train_bounds(weights, images, labels, order, eta)
    assert abs(loss - expected_loss) <= 4 * loss_bound
    for found, before, W, bound in zip(
        unpadded(engine.get_network()), weights, expected, bounds, strict=True
    ):
        assert (abs(found - W) <= 4 * bound).all()  # four standard deviations
        # The bound would notice a missing step: all steps moved the weights by far more.
        assert np.linalg.norm(bound) < 0.01 * np.linalg.norm(W - before)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_padding_stays_zero(sizes):
    engine, _, images, labels = make(sizes)
    engine.train(images, labels, np.arange(12), 0.05)
    for W, n_in, n_out in zip(engine.get_network().weights, sizes[:-1], sizes[1:], strict=True):
        assert (W[n_in + 1 :] == 0).all()
        assert (W[:, n_out:] == 0).all()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_prediction_matches_the_reference(sizes):
    engine, weights, images, _ = make(sizes, n=1003)  # more than a batch
    outputs = engine.predict(images)
    assert outputs.dtype == np.float32
    expected = np.array([reference.forward(weights, x)[1] for x in images.astype(np.float64)])
    # Errors of the activations, added up from layer to layer; see reference.train_bounds.
    error = 0.0
    for W in weights:
        column = abs(W).sum(axis=0).max()
        error = column * (reference.A * reference.B * error + 4 * reference.EPS * reference.A)
        error += np.sqrt(len(W)) * reference.EPS * column * reference.A
    assert (abs(outputs - expected) <= 2 * error + 20 * reference.EPS).all()


def test_training_goes_on_where_it_stopped():
    sizes = (33, 21, 10)
    whole, weights, images, labels = make(sizes)
    parts, *_ = make(sizes)
    order = np.arange(12)
    whole.train(images, labels, order, 0.05)
    for start in (0, 5, 6):
        parts.train(images, labels, order[start : {0: 5, 5: 6, 6: 12}[start]], 0.05)
    bounds, _ = reference.train_bounds(weights, images, labels, order, 0.05)
    for W, V, bound in zip(
        unpadded(whole.get_network()), unpadded(parts.get_network()), bounds, strict=True
    ):
        assert (abs(W - V) <= 4 * bound).all()


def test_same_input_gives_the_same_bits():
    results = []
    for _ in range(3):
        engine, _, images, labels = make((97, 65, 33, 10))
        loss = engine.train(images, labels, np.arange(12), 0.05)
        weights = [W.tobytes() for W in engine.get_network().weights]
        results.append((loss, weights, engine.predict(images).tobytes()))
    assert results[0] == results[1] == results[2]


def test_network_is_copied_in_and_out():
    engine, _, images, labels = make((13, 7))
    before = engine.get_network()
    kept = [W.copy() for W in before.weights]
    engine.set_network(before)
    engine.train(images, labels, np.arange(12), 0.05)
    assert all((W == V).all() for W, V in zip(before.weights, kept, strict=True))
    assert not all((W == V).all() for W, V in zip(engine.get_network().weights, kept, strict=True))


@pytest.mark.parametrize(
    "bad", ["label", "int64", "labels", "index", "negative", "empty", "floats", "pixels", "float64"]
)
def test_bad_input_is_refused(bad):
    engine, _, images, labels = make((13, 7))
    order = np.arange(12)
    if bad == "label":
        labels[3] = 7
    elif bad == "int64":
        labels = labels.astype(np.int64) - 1
    elif bad == "labels":
        labels = labels[:-1]
    elif bad == "floats":
        order = order.astype(float)
    elif bad == "index":
        order[2] = 12
    elif bad == "negative":
        order[2] = -1
    elif bad == "empty":
        order = order[:0]
    elif bad == "pixels":
        images = images[:, 1:].copy()
    elif bad == "float64":
        images = images.astype(np.float64)
    with pytest.raises(ValueError, match="expected"):
        engine.train(images, labels, order, 0.1)


def test_nan_is_seen_in_the_loss():
    engine, _, images, labels = make((13, 9, 7))
    images[4, 2] = np.nan
    assert np.isnan(engine.train(images, labels, np.arange(12), 0.1))
