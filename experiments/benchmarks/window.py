"""On-line back-propagation in NumPy: image after image, and in blocks by a window of images.

The truth that the CPU's window (`mlp_gpu.cpu_window`) and the GPU's kernels are held against: see
docs/online-in-blocks.md. A net here is a list of matrices W, (n_in + 1, n_out), row 0 the bias, in
float32 or float64, whose precision everything else then has.
"""

from collections.abc import Sequence

import numpy as np

from mlp_gpu.activation import SLOPE, A, B
from mlp_gpu.window_rule import GPU_ROUNDING, Limits, Rounding, next_window, tolerance


def weight_distance(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> float:
    """The Euclidean distance between two nets' weights, all layers together, in float64."""
    pairs = zip(some, others, strict=True)
    return float(np.linalg.norm([np.linalg.norm(W.astype(np.float64) - V) for W, V in pairs]))


def train_plainly(
    weights: Sequence[np.ndarray], images: np.ndarray, labels: np.ndarray, eta: float
) -> float:
    """A step for each image, written as the papers say it; returns the mean loss.

    images: float32 (n, n_in), in the order of the steps. labels: uint8 (n,). eta: learning rate.
    Modifies weights.
    """
    kind, losses = weights[0].dtype.type, []
    for image, label in zip(images.astype(kind, copy=False), labels, strict=True):
        states = [np.concatenate(([kind(1)], image))]
        for W in weights[:-1]:
            states.append(np.concatenate(([kind(1)], activate(states[-1] @ W))))
        a = states[-1] @ weights[-1]
        delta = np.exp(a - a.max())
        losses.append(np.log(delta.sum()) - (a[label] - a.max()))
        delta /= delta.sum()
        delta[label] -= 1
        deltas = [delta]
        for W, h in zip(weights[:0:-1], states[:0:-1], strict=True):
            deltas.insert(0, (W[1:] @ deltas[0]) * slope(h[1:]))
        for W, h, delta in zip(weights, states, deltas, strict=True):
            W -= np.outer(np.float32(eta) * h, delta)
    return float(np.mean(losses, dtype=np.float64))


def train_in_windows(
    weights: Sequence[np.ndarray],
    images: np.ndarray,
    labels: np.ndarray,
    eta: float,
    per_window: int,
    per_block: int,
    limits: Limits | None = None,
    rounding: Rounding = GPU_ROUNDING,
) -> list[tuple[int, int]]:
    """The same steps in blocks, each solved by a window that slides over it. Modifies weights.

    per_window, per_block: how many images, at least 1; with one in a window it is the chain.
    limits: within which windows become larger or smaller from block to block, per_window being the
    first block's; None: they do not. rounding: see `mlp_gpu.window_rule`. Other arguments: as
    `train_plainly`. Returns of each sweep the first image that went forward and backward, and the
    one after the last. No image goes more often than a window has images.
    """
    sweeps = []
    for start in range(0, len(images), per_block):
        block = slice(start, start + per_block)
        found = _train_block(
            weights, images[block], labels[block], np.float32(eta), per_window, rounding
        )
        sweeps += [(start + first, start + end) for first, end in found]
        if limits and len(images[block]) == per_block:
            times = sum(end - first for first, end in found)
            per_window = next_window(per_window, times, per_block, limits)
    return sweeps


def _train_block(
    weights: Sequence[np.ndarray],
    images: np.ndarray,
    labels: np.ndarray,
    eta: np.float32,
    per_window: int,
    rounding: Rounding,
) -> list[tuple[int, int]]:
    """The steps of a block of m images; its sweeps, counted from its first image."""
    m, H = len(images), [_with_one(images, weights)]  # H: what each layer reads, (m, n_in + 1)
    H += [_with_one(np.zeros((m, W.shape[1])), weights) for W in weights[:-1]]
    D = [np.zeros((m, W.shape[1]), W.dtype) for W in weights]  # its deltas; no guess: zero
    first_product, first_gram = H[0] @ weights[0], H[0] @ H[0].T
    inputs = [np.float32(len(W)) for W in weights]
    squares = [np.float32(first_gram.diagonal().max()), *inputs[1:]]  # of states, about 1 each
    least = [tolerance(eta, *pair, rounding) for pair in zip(inputs, squares, strict=True)]
    sweeps, first = [], 0
    while first < m:
        end = min(first + per_window, m)
        now, before = slice(first, end), [deltas[first:end].copy() for deltas in D]
        for layer, W in enumerate(weights):
            h = H[layer]
            a = h[now] @ W if layer else first_product[now]
            gram = h[now] @ h[:end].T if layer else first_gram[now, :end]
            a = a - eta * _of_images_before(gram, first) @ D[layer][:end]
            if layer + 1 < len(weights):
                H[layer + 1][now, 1:] = activate(a)
        delta = output_delta(a, labels[now])
        for layer in range(len(weights) - 1, -1, -1):
            D[layer][now] = delta
            if layer:
                y, gram = H[layer][:end, 1:], delta @ D[layer][:end].T
                e = delta @ weights[layer][1:].T - eta * _of_images_before(gram, first) @ y
                delta = e * slope(y[now])
        sweeps.append((first, end))
        first += _count_done([deltas[now] for deltas in D], before, least)
    for W, h, deltas in zip(weights, H, D, strict=True):
        W -= eta * h.T @ deltas
    return sweeps


def _count_done(
    deltas: Sequence[np.ndarray], before: Sequence[np.ndarray], tolerances: Sequence[np.float32]
) -> int:
    """How many images at the front of a window are done: all before them kept their deltas.

    deltas: of this sweep, a matrix a layer with a row for each image; before: of the sweep before,
    by which this sweep corrected the images that follow. tolerances: of each layer.
    """
    same = np.ones(len(deltas[0]), bool)
    for new, old, least in zip(deltas, before, tolerances, strict=True):
        same &= abs(new - old).max(axis=1) <= least * abs(new).max()
    # An image whose deltas changed is done itself, those behind it are not.
    return len(same) if same.all() else int(same.argmin()) + 1


def _of_images_before(gram: np.ndarray, first: int) -> np.ndarray:
    """Scalar products of images first, first + 1, ... with all; zero but for those before each."""
    return np.tril(gram, first - 1)


def _with_one(states: np.ndarray, weights: Sequence[np.ndarray]) -> np.ndarray:
    """What a layer reads of images: a 1, then their states, (m, n), in the weights' precision."""
    return np.insert(states.astype(weights[0].dtype), 0, 1, axis=1)


def activate(a: np.ndarray) -> np.ndarray:
    """The scaled tanh."""
    return A * np.tanh(B * a)


def slope(y: np.ndarray) -> np.ndarray:
    """The activation's derivative, from its value."""
    return SLOPE * (A - y) * (A + y)


def output_delta(a: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """softmax(a) - one_hot(labels), a row for each image."""
    p = np.exp(a - a.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(a)), labels] -= 1
    return p
