"""A net with random weights, for an engine and for the reference, with images to train it on."""

import numpy as np
import reference

from mlp_gpu.network import Network


def make(engine, sizes, seed=0, n=12):
    """The engine with random weights, the same as unpadded float64, images and labels."""
    rng = np.random.default_rng(seed)
    weights = reference.random_weights(sizes, rng)
    network = Network.blank(sizes)
    for V, W in zip(network.unpadded(), weights, strict=True):
        V[:] = W
    engine.set_network(network)
    images = rng.uniform(-1, 1, (n, sizes[0])).astype(np.float32)
    labels = rng.integers(0, sizes[-1], n).astype(np.uint8)
    return engine, weights, images, labels


def assert_padding_is_zero(network):
    for W, n_in, n_out in zip(network.weights, network.sizes[:-1], network.sizes[1:], strict=True):
        assert (W[n_in + 1 :] == 0).all()
        assert (W[:, n_out:] == 0).all()


def assert_trained(network, loss, weights, images, labels, order, eta):
    """See that the network and the mean loss are what float64 comes to, starting from weights."""
    expected, expected_loss = reference.train(weights, images, labels, order, eta)
    bounds, loss_bound = reference.train_bounds(weights, images, labels, order, eta)
    assert abs(loss - expected_loss) <= 4 * loss_bound  # four standard deviations
    for found, before, W, bound in zip(network.unpadded(), weights, expected, bounds, strict=True):
        assert (abs(found - W) <= 4 * bound).all()
        # The bound would notice a missing step: all steps moved the weights by far more.
        assert np.linalg.norm(bound) < 0.01 * np.linalg.norm(W - before)


def assert_predicts(outputs, weights, images):
    """See that class probabilities, float32, are what float64 comes to."""
    assert outputs.dtype == np.float32
    expected = np.array([reference.forward(weights, x)[1] for x in images.astype(np.float64)])
    # Errors of the activations, added up from layer to layer; see reference.train_bounds.
    error = 0.0
    for W in weights:
        column = abs(W).sum(axis=0).max()
        error = column * (reference.A * reference.B * error + 4 * reference.EPS * reference.A)
        error += np.sqrt(len(W)) * reference.EPS * column * reference.A
    assert (abs(outputs - expected) <= 2 * error + 20 * reference.EPS).all()
