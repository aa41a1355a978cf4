"""The small net on the CPU: what all rungs compute, in one thread, compiled."""

import numpy as np

from deepbig_runtime.jit import njit
from mlp_gpu.ladder import formulas
from mlp_gpu.ladder.net import Net

# Lets sums be vectorised and multiply-adds be fused. NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "nsz"}

sigmoid = njit(formulas.sigmoid, error_model="numpy")
slope = njit(formulas.slope)
output_delta = njit(formulas.output_delta)
velocity = njit(formulas.velocity)


@njit(nogil=True, fastmath=FASTMATH)
def activate(y, W, h):
    """y = sigmoid(W h). Modifies y."""
    for j in range(y.shape[0]):
        total = np.float32(0)
        for i in range(h.shape[0]):
            total += W[j, i] * h[i]
        y[j] = sigmoid(total)


@njit(nogil=True, fastmath=FASTMATH)
def update(W, V, delta, h, eta, momentum):
    """One step of gradient descent with momentum. Modifies W and V."""
    for j in range(delta.shape[0]):
        w, v, d = W[j], V[j], delta[j]
        for i in range(h.shape[0]):
            v[i] = velocity(v[i], d, h[i], eta, momentum)
            w[i] += v[i]


@njit(nogil=True)
def train_images(W1, W2, V1, V2, images, labels, order, eta, momentum):
    """One step for each image of order. Modifies the weights and velocities.

    images float32 (n, 784), labels uint8 (n,), order integers (m,), indices of images. eta and
    momentum float32.
    """
    y1, delta1 = np.empty(len(W1), np.float32), np.empty(len(W1), np.float32)
    y2, delta2 = np.empty(len(W2), np.float32), np.empty(len(W2), np.float32)
    for image in order:
        h = images[image]
        activate(y1, W1, h)
        activate(y2, W2, y1)
        for k in range(len(y2)):
            delta2[k] = output_delta(y2[k], np.float32(labels[image] == k))
        for j in range(len(y1)):
            total = np.float32(0)
            for k in range(len(y2)):
                total += W2[k, j] * delta2[k]
            delta1[j] = slope(y1[j]) * total
        update(W2, V2, delta2, y1, eta, momentum)
        update(W1, V1, delta1, h, eta, momentum)


def train(
    net: Net,
    images: np.ndarray,
    labels: np.ndarray,
    order: np.ndarray,
    eta: np.float32 = formulas.ETA,
    momentum: np.float32 = formulas.MOMENTUM,
) -> None:
    """One step for each image of order, with the arguments of `train_images`. Modifies the net."""
    train_images(*net.arrays, images, labels, order, eta, momentum)


def predict(net: Net, images: np.ndarray) -> np.ndarray:
    """The outputs for images (n, 784), float32 (n, 10)."""
    with np.errstate(over="ignore"):  # exp of a large number is infinite, and its state 0
        hidden = formulas.ONE / (formulas.ONE + np.exp(-(images @ net.W1.T)))
        return formulas.ONE / (formulas.ONE + np.exp(-(hidden @ net.W2.T)))
