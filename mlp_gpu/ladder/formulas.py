"""The scalar formulas of the small net, plain Python that each engine compiles for its target.

Source: the blog names the sigmoid, a learning rate and a momentum. The sequential program that it
seems to build on, Neural-Network-MNIST-CPP, has a squared error and no biases.
"""

import math

import numpy as np

ONE = np.float32(1)

# Guesses: the blog does not print its constants. The sequential program has 1e-3 and 0.9, and takes
# up to 512 steps an image; the blog's times allow one. See docs/ladder.md for how eta was found.
ETA = np.float32(0.02)
MOMENTUM = np.float32(0.9)


def sigmoid(a):
    """State of a neuron, float32, from its activation a, float32."""
    return ONE / (ONE + math.exp(-a))


def slope(y):
    """The derivative of the sigmoid, float32, from the state y itself, float32."""
    return y * (ONE - y)


def output_delta(y, is_label):
    """Minus the derivative of half the squared error by the activation. is_label: 1 or 0."""
    return y * (ONE - y) * (is_label - y)


def velocity(v, delta, h, eta, momentum):
    """The next step of a weight from its last one, v; delta of its neuron, h the state it reads.

    eta: learning rate. All float32.
    """
    return momentum * v + eta * delta * h
