"""Training by windows is as exact as a float32 loop for inputs of any size and at any rate."""

import math
from functools import cache, partial

import numpy as np
import pytest

from experiments.benchmarks import window
from mlp_gpu import cpu
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network
from mlp_gpu.window.progress import FIRST_WINDOW, LIMITS

# Of inputs in [-1, 1]; the last: pixels of 0 to 255.
INPUTS = {
    "x 1": lambda x: x,
    "x 10": lambda x: 10 * x,
    "x 100": lambda x: 100 * x,
    "0..255": lambda x: 127.5 * (x + 1),
}
SETS = 4  # of images and initial weights
CHAOS = 1e-2  # distance from float64 from which on any rounding grows until it decides


@cache
def digits():
    from experiments.datasets import data

    dataset = data.load("digits")
    return dataset.train_images.reshape(len(dataset.train_images), -1), dataset.train_labels


def by_engine(weights, x, y, eta, single):
    """By the CPU engine; `single`: by windows of one image at any rate, else of several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "SINGLE_ETA", 0 if single else math.inf)
        engine, network = CpuEngine(), Network.blank((*(len(W) - 1 for W in weights), 10))
        for W, start in zip(network.unpadded(), weights, strict=True):
            W[:] = start
        engine.set_network(network)
        loss = engine.train(x, y, np.arange(len(y)), eta)
    for W, found in zip(weights, engine.get_network().unpadded(), strict=True):
        W[:] = found
    return loss


def by_gpu_windows(weights, x, y, eta, single):
    sizes = (1, 256) if single else (FIRST_WINDOW, 256, LIMITS)
    window.train_in_windows(weights, x, y, eta, *sizes)
    return math.nan


WAYS = {"cpu": (by_engine, 96), "gpu": (by_gpu_windows, 256)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sizes", [(841, 10), (841, 100, 10)], ids=str)
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("eta", [1e-2, 1e-3, 1e-4, 1e-5])
def test_windows_are_as_near_to_float64_as_a_loop(eta, kind, sizes, way):
    """A loop in float32, as the papers have it, or windows of one image, which tolerate nothing.

    Where large steps multiply all rounding, chance puts now the one, now the other further away.
    """
    train, n_steps = WAYS[way]
    ways = [window.train_plainly, partial(train, single=True), partial(train, single=False)]
    images, labels = digits()
    rows = []
    for seed in range(SETS):
        steps = slice(n_steps * seed, n_steps * (seed + 1))
        x, y = INPUTS[kind](images[steps]).astype(np.float32), labels[steps]
        start = Network.initial(sizes, seed).unpadded()
        exact = [W.astype(float) for W in start]
        exact_loss = window.train_plainly(exact, x, y, eta)
        moved = window.weight_distance(exact, start)
        for make in ways:
            weights = [W.copy() for W in start]
            loss = make(weights, x, y, eta)
            distance = window.weight_distance(weights, exact) / moved
            rows.append((distance, abs(loss / exact_loss - 1)))
    *others, (distance, loss) = np.reshape(rows, (SETS, 3, 2)).max(axis=0)
    farthest, farthest_loss = np.nanmax(others, axis=0)
    if farthest < CHAOS:
        assert distance <= 2 * farthest
        assert way == "gpu" or loss <= 2 * max(farthest, farthest_loss)
