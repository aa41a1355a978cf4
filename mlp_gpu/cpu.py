"""The CPU engine: on-line back-propagation in one thread, bound by memory and not by arithmetic.

Each image needs, for every layer, W^T h forward, W delta backward, and W -= eta h delta^T. In the
papers each of the three is a pass over W. Here the update of one image waits for the forward pass
of the next, so that one pass over W does both: 4 |W| bytes per image become 3 |W|. The sequence of
updates is that of the papers, to the last weight.

Evaluation needs no update between images, so it is a matrix product for many images at once.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from mlp_gpu import activation
from mlp_gpu.checks import check_training, flat_images
from mlp_gpu.jit import njit
from mlp_gpu.network import Network

# Lets sums be vectorised and multiply-adds be fused. NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "nsz"}

IMAGES_PER_TICK = 250  # a second or two of the largest net
PREDICT_BATCH = 500  # images per matrix product, so that states take little memory

scaled_tanh = njit(activation.scaled_tanh)
scaled_tanh_derivative = njit(activation.scaled_tanh_derivative)


@njit(nogil=True, fastmath=FASTMATH)
def update_forward(a, W, h, h_last, delta_last, eta):
    """W -= eta h_last delta_last^T, then a = W^T h, in one pass over W. Modifies a and W.

    All float32: a and delta_last (n_out,), W (pad32(n_in + 1), pad32(n_out)), h and h_last
    (n_in + 1,), with zeros appended up to a multiple of four. Four rows are taken together, so that
    a is loaded and stored once for four rows.
    """
    n_out = a.shape[0]
    a[:] = 0
    for i in range(0, h.shape[0], 4):
        # Slices start at 0: only so does the inner loop vectorise.
        w0, w1, w2, w3 = W[i, :n_out], W[i + 1, :n_out], W[i + 2, :n_out], W[i + 3, :n_out]
        h0, h1, h2, h3 = h[i], h[i + 1], h[i + 2], h[i + 3]
        g0, g1, g2, g3 = (
            eta * h_last[i],
            eta * h_last[i + 1],
            eta * h_last[i + 2],
            eta * h_last[i + 3],
        )
        for j in range(n_out):
            d = delta_last[j]
            t0 = w0[j] - g0 * d
            t1 = w1[j] - g1 * d
            t2 = w2[j] - g2 * d
            t3 = w3[j] - g3 * d
            w0[j] = t0
            w1[j] = t1
            w2[j] = t2
            w3[j] = t3
            a[j] += h0 * t0 + h1 * t1 + h2 * t2 + h3 * t3


@njit(nogil=True, fastmath=FASTMATH)
def update(W, h, delta, eta):
    """W -= eta h delta^T. Modifies W. Shapes as in `update_forward`."""
    n_out = delta.shape[0]
    for i in range(h.shape[0]):
        w = W[i, :n_out]
        g = eta * h[i]
        for j in range(n_out):
            w[j] -= g * delta[j]


@njit(nogil=True, fastmath=FASTMATH)
def backward(delta_in, W, delta, h):
    """delta_in = (W delta) y'(h), without the bias row. Modifies delta_in.

    All float32: delta_in (n_in,), W (pad32(n_in + 1), pad32(n_out)), delta (n_out,), h as in
    `update_forward`. h[i + 1] is the state of the neuron that delta_in[i] belongs to.
    """
    n_out = delta.shape[0]
    totals = np.empty_like(h)
    for i in range(0, h.shape[0], 4):
        w0, w1, w2, w3 = W[i, :n_out], W[i + 1, :n_out], W[i + 2, :n_out], W[i + 3, :n_out]
        t0 = t1 = t2 = t3 = np.float32(0)
        for j in range(n_out):
            d = delta[j]
            t0 += w0[j] * d
            t1 += w1[j] * d
            t2 += w2[j] * d
            t3 += w3[j] * d
        totals[i] = t0
        totals[i + 1] = t1
        totals[i + 2] = t2
        totals[i + 3] = t3
    for i in range(delta_in.shape[0]):
        delta_in[i] = totals[i + 1] * scaled_tanh_derivative(h[i + 1])


@njit(nogil=True)
def softmax_delta(delta, a, label):
    """delta = softmax(a) - one_hot(label) and the cross-entropy of the two. Modifies delta.

    Guess: the papers name the softmax (2012, section 3) and no loss.
    """
    highest = a[0]
    for j in range(1, a.shape[0]):
        highest = max(highest, a[j])
    total = np.float32(0)
    for j in range(a.shape[0]):
        delta[j] = math.exp(a[j] - highest)
        total += delta[j]
    for j in range(a.shape[0]):
        delta[j] /= total
    delta[label] -= np.float32(1)
    return math.log(total) - (a[label] - highest)


@njit(nogil=True)
def train_images(weights, states, last_states, activations, deltas, images, labels, order, eta):
    """One on-line step for each image of `order`; returns the summed loss, float64.

    Modifies weights; states, last_states, activations and deltas are scratch. These are tuples of
    one array per layer: weights (pad32(n_in + 1), pad32(n_out)); states and last_states, what the
    layer reads for this image and what it read for the last one, at first zero but for a leading 1;
    activations and deltas (n_out,). images (n, 841), labels (n,), order (m,), indices of images;
    eta float32.
    """
    n_layers = len(weights)
    for layer in range(n_layers):
        deltas[layer][:] = 0  # nothing is left to be updated
    loss = 0.0
    for image in order:
        states[0][1 : 1 + images.shape[1]] = images[image]
        for layer in range(n_layers):
            a = activations[layer]
            update_forward(a, weights[layer], states[layer], last_states[layer], deltas[layer], eta)
            if layer + 1 < n_layers:
                h = states[layer + 1]
                for j in range(a.shape[0]):
                    h[j + 1] = scaled_tanh(a[j])
        loss += softmax_delta(deltas[-1], activations[-1], labels[image])
        for layer in range(n_layers - 1, 0, -1):
            backward(deltas[layer - 1], weights[layer], deltas[layer], states[layer])
        states, last_states = last_states, states
    for layer in range(n_layers):
        update(weights[layer], last_states[layer], deltas[layer], eta)
    return loss


@njit(nogil=True)
def activate(a):
    """The scaled tanh of every element of a (n, n_out), float32, in place."""
    for row in a:
        for j in range(row.shape[0]):
            row[j] = scaled_tanh(row[j])


def train_in_chunks(
    train: Callable[[np.ndarray], float], order: np.ndarray, tick: Callable[[int, float], None]
) -> float:
    """The mean loss of a training on images in this order, with a tick after each chunk of it.

    train: makes the steps of a chunk and returns their summed loss. order, tick: see
    `mlp_gpu.engines`.
    """
    total = 0.0
    for start in range(0, len(order), IMAGES_PER_TICK):
        chunk = order[start : start + IMAGES_PER_TICK]
        loss = train(chunk)
        total += loss
        tick(len(chunk), loss / len(chunk))
    return total / len(order)


def predict_in_threads(
    activations: Callable[[np.ndarray], np.ndarray], images: np.ndarray, n_classes: int
) -> np.ndarray:
    """Class probabilities of images, float32 (n, n_classes).

    activations: of the output layer for some of the images. Called in several threads at once.
    """
    outputs = np.empty((len(images), n_classes), np.float32)
    starts = range(0, len(images), PREDICT_BATCH)
    # Our own threads, one each for BLAS: how BLAS rounds depends on how many threads it has.
    with (
        threadpool_limits(1, user_api="blas"),
        ThreadPoolExecutor(numba.config.NUMBA_NUM_THREADS) as executor,
    ):
        parts = executor.map(lambda n: activations(images[n : n + PREDICT_BATCH]), starts)
        for start, part in zip(starts, parts, strict=True):
            outputs[start : start + len(part)] = part
    outputs -= outputs.max(axis=1, keepdims=True)
    np.exp(outputs, out=outputs)
    outputs /= outputs.sum(axis=1, keepdims=True)
    return outputs


class CpuEngine:
    """On-line training and batched prediction on the CPU. See `mlp_gpu.engines` for the methods."""

    name = "cpu"
    schedule = None

    def set_network(self, network: Network) -> None:
        self._sizes = network.sizes
        self._weights = tuple(W.copy() for W in network.weights)
        self._states = tuple(self._new_state(n_in) for n_in in self._sizes[:-1])
        self._last_states = tuple(h.copy() for h in self._states)
        self._activations = tuple(np.zeros(n_out, np.float32) for n_out in self._sizes[1:])
        self._deltas = tuple(a.copy() for a in self._activations)

    @staticmethod
    def _new_state(n_in: int) -> np.ndarray:
        h = np.zeros(-(-(n_in + 1) // 4) * 4, np.float32)  # rows of W go in fours
        h[0] = 1  # the bias neuron
        return h

    def get_network(self) -> Network:
        return Network(self._sizes, tuple(W.copy() for W in self._weights))

    def train(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        order: np.ndarray,
        eta: float,
        tick: Callable[[int, float], None] = lambda n_images, loss: None,
    ) -> float:
        images = flat_images(images, self._sizes[0])
        check_training(labels, order, len(images), self._sizes[-1])

        def train(chunk: np.ndarray) -> float:
            return train_images(
                self._weights,
                self._states,
                self._last_states,
                self._activations,
                self._deltas,
                images,
                labels,
                chunk,
                np.float32(eta),
            )

        return train_in_chunks(train, order, tick)

    def predict(self, images: np.ndarray) -> np.ndarray:
        images = flat_images(images, self._sizes[0])
        return predict_in_threads(self._last_activations, images, self._sizes[-1])

    def _last_activations(self, h: np.ndarray) -> np.ndarray:
        for layer, W in enumerate(self._weights):
            n_in, n_out = self._sizes[layer : layer + 2]
            if layer > 0:
                activate(h)
            h = h @ W[1 : n_in + 1, :n_out]
            h += W[0, :n_out]
        return h
