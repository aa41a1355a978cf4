"""CPU engine with squared error, for studies: weights are updated after every image."""

import math
from collections.abc import Callable

import numpy as np

from deepbig_runtime.arrays import check_training, flat_images
from deepbig_runtime.jit import njit
from mlp_gpu import activation
from mlp_gpu.cpu import CpuEngine, train_in_chunks
from mlp_gpu.network import Network

CHUNK = 2000  # images between two ticks

scaled_tanh, slope = njit(activation.scaled_tanh), njit(activation.scaled_tanh_derivative)


class SquaredErrorEngine(CpuEngine):
    """As CpuEngine, one image after another, on half the squared error instead of cross-entropy.

    is_tanh: outputs are scaled hyperbolic tangents, as hidden states are, their targets 1 and -1.
    Otherwise they are softmax's, their targets 1 and 0. `predict` gives softmax's class
    probabilities in both cases; the most likely class is the same.
    """

    def __init__(self, is_tanh: bool):
        super().__init__()
        self._is_tanh = is_tanh

    def train(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        order: np.ndarray,
        eta: float,
        tick: Callable[[int, float], None] = lambda n_images, loss: None,
    ) -> float:
        network = self.get_network()
        sizes, weights = network.sizes, network.weights
        images = flat_images(images, sizes[0])
        check_training(labels, order, len(images), sizes[-1])
        states = tuple(np.zeros(W.shape[0], np.float32) for W in weights)
        deltas = tuple(np.zeros(W.shape[1], np.float32) for W in weights)
        for state in states:
            state[0] = 1

        def train(chunk: np.ndarray) -> float:
            return _train(
                sizes,
                weights,
                states,
                deltas,
                images,
                labels,
                chunk,
                np.float32(eta),
                self._is_tanh,
            )

        loss = train_in_chunks(train, order, CHUNK, CHUNK, tick)
        self.set_network(Network(sizes, weights))
        return loss


@njit(nogil=True)
def _train(sizes, weights, states, deltas, images, labels, order, eta, is_tanh):
    """A step for each image, as the papers write it; returns the sum of losses, float64.

    weights: padded as in `mlp_gpu.network`, modified. states, deltas: of each layer its inputs, a 1
    first, and its activations, later its deltas; scratch, zero beyond what a layer has.
    """
    total, last, n_out = 0.0, len(weights) - 1, sizes[-1]
    for index in order:
        states[0][1 : sizes[0] + 1] = images[index]
        for layer in range(len(weights)):
            W, h, a = weights[layer], states[layer], deltas[layer]
            a[:] = 0
            for i in range(sizes[layer] + 1):
                for j in range(len(a)):
                    a[j] += h[i] * W[i, j]
            if layer < last:
                for j in range(sizes[layer + 1]):
                    states[layer + 1][j + 1] = scaled_tanh(a[j])
        total += _output_deltas(deltas[last][:n_out], labels[index], is_tanh)
        for layer in range(last, -1, -1):
            W, h, d = weights[layer], states[layer], deltas[layer]
            for i in range(sizes[layer] + 1):
                if layer and i:
                    e = np.float32(0)
                    for j in range(len(d)):
                        e += W[i, j] * d[j]
                    deltas[layer - 1][i - 1] = e * slope(h[i])
                step = eta * h[i]
                for j in range(len(d)):
                    W[i, j] -= step * d[j]
    return total


@njit(nogil=True)
def _output_deltas(a, label, is_tanh):
    """Make the deltas of the outputs of their activations a, float32 (n,); returns the loss."""
    loss, mean, largest = 0.0, 0.0, a.max()
    low = np.float32(-1 if is_tanh else 0)
    for j in range(len(a)):
        a[j] = scaled_tanh(a[j]) if is_tanh else math.exp(a[j] - largest)
    whole = np.float32(1) if is_tanh else a.sum()
    for j in range(len(a)):
        a[j] /= whole
        error = a[j] - (np.float32(1) if j == label else low)
        loss += 0.5 * error * error
        mean += error * a[j]
    for j in range(len(a)):
        y = a[j]
        error = y - (np.float32(1) if j == label else low)
        a[j] = error * slope(y) if is_tanh else y * (error - np.float32(mean))
    return loss
