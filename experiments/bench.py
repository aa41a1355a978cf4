"""Time the CPU engine and the deformations against what else this machine can do.

For nets 1 and 4: microseconds an image, and the bytes the engine moves a second against a scaled
copy of arrays of the same size. For net 1: against a plain NumPy loop and PyTorch eager, one image
a step. Everything is timed in one run, in turn, and the median of several repeats counts; prints
the table and writes it to results/<device>/bench.csv.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from numba import njit

from deform_gpu import TABLE1, deform
from experiments import cli, provenance, tables
from mlp_gpu import files
from mlp_gpu.activation import SLOPE, A, B
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import NETS, Network

ETA = 1e-3
SECONDS = 0.2  # least time of a repeat


def measure(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds a call of each work, `repeats` of them, all works taking turns in each repeat."""
    calls = {}
    for name, work in works.items():
        work()  # compile, touch memory
        started = time.perf_counter()
        work()
        calls[name] = max(1, round(SECONDS / (time.perf_counter() - started)))
    seconds = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            started = time.perf_counter()
            for _ in range(calls[name]):
                work()
            seconds[name].append((time.perf_counter() - started) / calls[name])
    return seconds


def engine_bytes(network: Network) -> int:
    """Bytes of weights that the CPU engine must move for one image.

    One pass that updates and goes forward (read and write), and one backward (read), which the
    first layer does not need.
    """
    n_bytes = 4 * network.n_weights
    first = 4 * (network.sizes[0] + 1) * network.sizes[1]
    return 3 * n_bytes - first


@njit(nogil=True)
def scale(target, source, factor):
    """target = factor * source, float32 (n,), in one thread. Modifies target."""
    for i in range(source.shape[0]):
        target[i] = factor * source[i]


def numpy_work(network: Network, images: np.ndarray, labels: np.ndarray) -> Callable[[], None]:
    """The same on-line steps as a person would write them in NumPy, float32."""
    weights = [
        W[: n_in + 1, :n_out].copy()
        for W, (n_in, n_out) in zip(network.weights, pairwise(network.sizes), strict=True)
    ]

    def work() -> None:
        for image, label in zip(images, labels, strict=True):
            states = [np.concatenate(([np.float32(1)], image))]
            for W in weights[:-1]:
                y = A * np.tanh(B * (states[-1] @ W))
                states.append(np.concatenate(([np.float32(1)], y)))
            a = states[-1] @ weights[-1]
            delta = np.exp(a - a.max())
            delta /= delta.sum()
            delta[label] -= 1
            deltas = [delta]
            for W, h in zip(weights[:0:-1], states[:0:-1], strict=True):
                deltas.insert(0, (W[1:] @ deltas[0]) * SLOPE * (A - h[1:]) * (A + h[1:]))
            for W, h, delta in zip(weights, states, deltas, strict=True):
                W -= np.outer(np.float32(ETA) * h, delta)

    return work


def torch_work(network: Network, images: np.ndarray, labels: np.ndarray) -> Callable[[], None]:
    """The same net in PyTorch eager: forward, autograd, SGD, one image a step."""
    import torch

    class ScaledTanh(torch.nn.Module):
        def forward(self, a):
            return float(A) * torch.tanh(float(B) * a)

    layers = []
    for n_in, n_out in pairwise(network.sizes):
        layers += [torch.nn.Linear(n_in, n_out), ScaledTanh()]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=ETA)
    x, y = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))

    def work() -> None:
        for i in range(len(x)):
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
            optimizer.step()

    return work


def bench_net(net: int, repeats: int, peers: bool) -> list[dict]:
    """Rows for one net of Table 1: the engine, the copy, and the peers if asked for."""
    network = Network.initial(NETS[net], seed=0)
    rng = np.random.default_rng(0)
    n = max(1, round(5e7 / network.n_weights))  # images a call: some 10 ms
    images = rng.uniform(-1, 1, (n, network.sizes[0])).astype(np.float32)
    labels = rng.integers(0, 10, n).astype(np.uint8)
    engine = CpuEngine()
    engine.set_network(network)
    source = [W.ravel().copy() for W in network.weights]
    target = [W.ravel().copy() for W in network.weights]

    def copy() -> None:
        for to, what in zip(target, source, strict=True):
            scale(to, what, np.float32(0.5))

    works = {
        "engine cpu": lambda: engine.train(images, labels, np.arange(n), ETA),
        "scaled copy": copy,
    }
    if peers:
        works["NumPy loop"] = numpy_work(network, images, labels)
        if importlib.util.find_spec("torch"):
            works["PyTorch eager"] = torch_work(network, images, labels)
        else:
            print(
                "PyTorch is not installed, so it is not measured: pip install torch",
                file=sys.stderr,
            )

    moved = {name: engine_bytes(network) * n for name in works}
    moved["scaled copy"] = sum(W.nbytes for W in source) * 2
    rows = []
    seconds = measure(works, repeats)
    for name, times in seconds.items():
        is_copy = name == "scaled copy"
        per_image = [1 if is_copy else n][0]
        ratios = {
            "time_over_engine": np.median(np.divide(times, seconds["engine cpu"])) / per_image * n,
            "rate_over_copy": np.median(np.divide(seconds["scaled copy"], times))
            * moved[name]
            / moved["scaled copy"],
        }
        rows.append(make_row(f"net {net}", name, times, per_image, moved[name], ratios))
    return rows
