"""The net and its on-line training in plain float64, and how far float32 may stray from it.

Weights are unpadded here: a list of float64 (n_in + 1, n_out), row 0 the bias.
"""

from itertools import pairwise

import numpy as np

A, B = 1.7159, 0.6666
EPS = np.finfo(np.float32).eps


def off(n, terms):
    """What a sum of n float32 products, whose absolute values add up to terms, may be off by.

    Four standard deviations.
    """
    return 4 * np.sqrt(n) * EPS * terms


def random_weights(sizes, rng):
    """Uniform weights, float32 numbers, small enough that no state or delta saturates or grows."""
    return [
        (rng.uniform(-2, 2, (n_in + 1, n_out)) / np.sqrt(n_in + n_out))
        .astype(np.float32)
        .astype(np.float64)
        for n_in, n_out in pairwise(sizes)
    ]


def forward(weights, x):
    """What each layer reads, a leading 1 for the bias included, and the class probabilities."""
    states = [np.concatenate(([1.0], x))]
    for W in weights[:-1]:
        states.append(np.concatenate(([1.0], A * np.tanh(B * (W.T @ states[-1])))))
    a = weights[-1].T @ states[-1]
    p = np.exp(a - a.max())
    return states, p / p.sum()


def loss(weights, x, label):
    return -np.log(forward(weights, x)[1][label])


def deltas(weights, states, p, label):
    """Derivatives of the loss by the activations of each layer."""
    delta = p - np.eye(len(p))[label]
    found = [delta]
    for W, h in zip(weights[:0:-1], states[:0:-1], strict=True):
        delta = (W[1:] @ delta) * (B / A) * (A - h[1:]) * (A + h[1:])
        found.insert(0, delta)
    return found


def gradients(weights, x, label):
    states, p = forward(weights, x)
    return [
        np.outer(h, delta)
        for h, delta in zip(states, deltas(weights, states, p, label), strict=True)
    ]


def train(weights, images, labels, order, eta):
    """Weights after one step for each image of order, and the mean loss."""
    weights = [W.copy() for W in weights]
    total = 0.0
    for image in order:
        total += loss(weights, images[image], labels[image])
        # All deltas first, with the old weights; then all weights.
        for W, gradient in zip(
            weights, gradients(weights, images[image], labels[image]), strict=True
        ):
            W -= eta * gradient
    return weights, total / len(order)


def train_bounds(weights, images, labels, order, eta):
    """How far float32 may stray from float64 in every weight after `train`, and in the mean loss.

    First-order error analysis along the reference's own trajectory. A sum of n products is
    rounded by at most sqrt(n) eps sum|terms|; errors that come in from different numbers are
    independent, so their squares add up.
    """
    weights = [W.copy() for W in weights]
    e_weights = [np.zeros_like(W) for W in weights]  # they start as float32 numbers
    e_total = 0.0
    for image in order:
        states, p = forward(weights, images[image])
        e_states = [np.zeros_like(states[0])]
        for W, e_W, h in zip(weights, e_weights, states, strict=True):
            e_a = _product_error(h, e_states[-1], W, e_W)
            if len(e_states) < len(states):  # y' <= A B, and a few roundings of a value <= A
                e_states.append(np.concatenate(([0.0], A * B * e_a + 4 * EPS * A)))
        e_p = p * (e_a + p @ e_a + (len(p) + 4) * EPS)
        e_total += e_a[labels[image]] + p @ e_a + 4 * EPS * (1 + abs(np.log(p)).max())

        found = deltas(weights, states, p, labels[image])
        e_found = [e_p + EPS]
        for layer in range(len(weights) - 1, 0, -1):
            W, e_W, y, e_y = (
                weights[layer][1:],
                e_weights[layer][1:],
                states[layer][1:],
                e_states[layer][1:],
            )
            slope = (B / A) * (A - y) * (A + y)
            e_slope = 2 * (B / A) * abs(y) * e_y + 4 * EPS * A * B
            e_s = _product_error(found[layer], e_found[0], W.T, e_W.T)
            e_found.insert(0, np.hypot(e_s * slope, (W @ found[layer]) * e_slope))

        for W, e_W, h, e_h, delta, e_delta in zip(
            weights, e_weights, states, e_states, found, e_found, strict=True
        ):
            W -= eta * np.outer(h, delta)
            e_step = eta * np.hypot(np.outer(e_h, delta), np.outer(h, e_delta))
            rounding = EPS * (abs(W) + 3 * eta * abs(np.outer(h, delta)))
            e_W[:] = np.sqrt(e_W**2 + e_step**2 + rounding**2)
    return e_weights, e_total / len(order)


def _product_error(h, e_h, W, e_W):
    """Error of W^T h from the errors of both and from rounding."""
    rounding = np.sqrt(len(h)) * EPS * (abs(h) @ abs(W))
    return np.sqrt(e_h**2 @ W**2 + h**2 @ e_W**2 + rounding**2)
