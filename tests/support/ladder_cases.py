"""Shared by tests of the ladder: an epoch, a net that moves, and a record made by hand."""

import numpy as np
from factories import SESSION

from experiments.results.records import AccuracyRow, LadderRecord, ProgramTime, RungKernel
from mlp_gpu.ladder.net import Net

ROW = AccuracyRow(seed=0, epoch=2, wrong=49, n_test=1000, data="MNIST")
KERNEL = RungKernel(
    rung="naive",
    images_a_launch=1,
    kernel="k",
    blocks=2,
    threads=64,
    registers=9,
    read_bytes=4000,
    read_segments=250,
    write_bytes=0,
    write_segments=125,
    distance=1e-6,
    warps=4,
    **dict.fromkeys(("shared_accesses", "shared_passes", "shared_bytes", "flops"), 1),
    spill_bytes=1,
)
NAIVE = ProgramTime("naive", [5.0, 7.0, 6.0], 1, [1.5, 1.4, 1.6])
RECORD = LadderRecord("MNIST", 128, [], [], [], [ROW], SESSION)


def epoch(n=5, seed=0):
    """Images, labels and an order with repeats."""
    rng = np.random.default_rng(seed)
    images = (rng.random((n, 784)) < 0.2).astype(np.float32)
    return images, rng.integers(0, 10, n).astype(np.uint8), rng.integers(0, n, n + 2)


def moving(hidden):
    """A net whose velocities are not zero."""
    net = Net.initial(hidden, 3)
    rng = np.random.default_rng(4)
    velocities = [rng.normal(0, 0.01, W.shape).astype(np.float32) for W in (net.V1, net.V2)]
    return Net(net.W1, net.W2, *velocities)


def copy(net):
    return Net(*(W.copy() for W in net.arrays))
