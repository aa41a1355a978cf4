"""Training by windows is as exact as a float32 loop for inputs of any size and at any rate."""

import math
from functools import partial

import numpy as np
import pytest

from experiments.benchmarks import window
from mlp_gpu import cpu
from mlp_gpu.network import Network
from mlp_gpu.window.progress import FIRST_WINDOW, LIMITS
from mlp_gpu.window.sums import MAX_BLOCK

# Factor of inputs in [-1, 1], and the number added before; the last: pixels of 0 to 255.
INPUTS = {"x 1": (1, 0), "x 10": (10, 0), "x 100": (100, 0), "0..255": (127.5, 1)}
SETS = 4  # of images and initial weights
# Rates and inputs that the tolerances were chosen for; a looser one fails at one of them.
QUICK = [(1e-2, "x 1"), (1e-4, "x 1"), (1e-4, "x 10"), (1e-5, "x 100")]
CASES = [
    pytest.param(eta, kind, marks=[] if (eta, kind) in QUICK else pytest.mark.slow)
    for eta in (1e-2, 1e-4, 1e-5)
    for kind in INPUTS
]
CHAOS = 1e-2  # distance from float64 from which on any rounding grows until it decides


def by_loop(net, *steps):
    weights = net.unpadded()
    return weights, window.train_plainly(weights, *steps)


def by_engine(net, x, y, eta, single):
    """By the CPU engine; `single`: by windows of one image at any rate, else of several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "SINGLE_ETA", 0 if single else math.inf)
        engine = cpu.CpuEngine()
        engine.set_network(net)
        loss = engine.train(x, y, np.arange(len(y)), eta)
    return engine.get_network().unpadded(), loss


def by_gpu_windows(net, *steps, single):
    weights, sizes = net.unpadded(), (1, MAX_BLOCK) if single else (FIRST_WINDOW, MAX_BLOCK, LIMITS)
    window.train_in_windows(weights, *steps, *sizes)
    return weights, math.nan


WAYS = {"cpu": (by_engine, 96), "gpu": (by_gpu_windows, MAX_BLOCK)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sizes", [(841, 10), (841, 100, 10)], ids=str)
@pytest.mark.parametrize(("eta", "kind"), CASES)
def test_windows_are_as_near_to_float64_as_a_loop(eta, kind, sizes, way, digits):
    """A loop in float32, as the papers have it, or windows of one image, which tolerate nothing.

    Where large steps multiply all rounding, chance puts now the one, now the other further away:
    the medians of the sets are compared, unless a loop itself ends far from float64.
    """
    train, n_steps = WAYS[way]
    ways = by_loop, partial(train, single=True), partial(train, single=False)
    (factor, shift), rows = INPUTS[kind], []
    for seed in range(SETS):
        steps = np.arange(n_steps * seed, n_steps * (seed + 1)) % len(digits.train_labels)
        x = factor * (digits.train_images[steps].reshape(n_steps, -1) + shift)
        y, start = digits.train_labels[steps], Network.initial(sizes, seed).unpadded()
        exact = [W.astype(float) for W in start]
        exact_loss = window.train_plainly(exact, x, y, eta)
        moved = window.weight_distance(exact, start)
        for make in ways:
            weights, loss = make(Network.initial(sizes, seed), x, y, eta)
            distance = window.weight_distance(weights, exact) / moved
            rows.append((distance, abs(loss / exact_loss - 1)))
    found = np.reshape(rows, (SETS, 3, 2))
    *others, (distance, loss) = np.median(found, axis=0)
    farthest, farthest_loss = np.nanmax(others, axis=0)
    if found[:, :2, 0].max() < CHAOS:
        assert distance <= 2 * farthest
        assert way == "gpu" or loss <= 2 * max(farthest, farthest_loss)
