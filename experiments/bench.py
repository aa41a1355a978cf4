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
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numba import njit

from deform_gpu import TABLE1, deform
from experiments import cli, provenance, tables
from mlp_gpu import files, training
from mlp_gpu.activation import SLOPE, A, B
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import NETS, Network

ETA = 1e-3
SECONDS = 0.2  # least time of a repeat


@dataclass(frozen=True)
class Work:
    """Something to time: images that a call trains or deforms, and bytes that it must move."""

    call: Callable[[], object]
    n_images: int | None = None
    n_bytes: int | None = None


def measure(works: dict[str, Work], repeats: int) -> dict[str, np.ndarray]:
    """Seconds a call, float64 (repeats,), of each work; in each repeat all take turns."""
    calls = {}
    for name, work in works.items():
        work.call()  # compile, touch memory
        started = time.perf_counter()
        work.call()
        calls[name] = max(1, round(SECONDS / (time.perf_counter() - started)))
    seconds = {name: np.empty(repeats) for name in works}
    for repeat in range(repeats):
        for name, work in works.items():
            started = time.perf_counter()
            for _ in range(calls[name]):
                work.call()
            seconds[name][repeat] = (time.perf_counter() - started) / calls[name]
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


def numpy_work(network: Network, images: np.ndarray, labels: np.ndarray) -> Callable[[], list]:
    """The same on-line steps as a person would write them in NumPy, float32.

    The function returned trains once on all images, and returns its weights, (n_in + 1, n_out).
    """
    weights = [
        W[: n_in + 1, :n_out].copy()
        for W, (n_in, n_out) in zip(network.weights, pairwise(network.sizes), strict=True)
    ]

    def work() -> list[np.ndarray]:
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
        return weights

    return work


def torch_work(network: Network, images: np.ndarray, labels: np.ndarray) -> Callable[[], list]:
    """The same steps in PyTorch eager: forward, autograd, SGD, one image a step.

    The function returned is as that of `numpy_work`.
    """
    import torch

    class ScaledTanh(torch.nn.Module):
        def forward(self, a):
            return float(A) * torch.tanh(float(B) * a)

    layers = []
    for W, (n_in, n_out) in zip(network.weights, pairwise(network.sizes), strict=True):
        layer = torch.nn.Linear(n_in, n_out)
        with torch.no_grad():
            layer.bias.copy_(torch.from_numpy(W[0, :n_out]))
            layer.weight.copy_(torch.from_numpy(W[1 : n_in + 1, :n_out].T))
        layers += [layer, ScaledTanh()]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=ETA)
    x, y = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))

    def work() -> list[np.ndarray]:
        for i in range(len(x)):
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
            optimizer.step()
        with torch.no_grad():
            return [torch.vstack((layer.bias, layer.weight.T)).numpy() for layer in layers[::2]]

    return work


def bench_net(net: int, repeats: int, peers: bool) -> list[dict]:
    """Rows for one net of Table 1: the engine, a copy, and the peers if asked for."""
    network = Network.initial(NETS[net], seed=0)
    rng = np.random.default_rng(0)
    n = training.CHUNK  # images a call, as in training
    images = rng.uniform(-1, 1, (n, network.sizes[0])).astype(np.float32)
    labels = rng.integers(0, 10, n).astype(np.uint8)
    engine = CpuEngine()
    engine.set_network(network)
    order = np.arange(n)
    source = [W.ravel().copy() for W in network.weights]
    target = [W.ravel().copy() for W in network.weights]

    def copy() -> None:
        for to, what in zip(target, source, strict=True):
            scale(to, what, np.float32(0.5))

    works = {
        "engine cpu": Work(
            lambda: engine.train(images, labels, order, ETA), n, engine_bytes(network) * n
        ),
        "scaled copy": Work(copy, None, 2 * sum(W.nbytes for W in source)),
    }
    if peers:
        works["NumPy loop"] = Work(numpy_work(network, images, labels), n)
        if importlib.util.find_spec("torch"):
            works["PyTorch eager"] = Work(torch_work(network, images, labels), n)
        else:
            print(
                "PyTorch is not installed, so it is not measured; 'pip install torch' brings it",
                file=sys.stderr,
            )
    return rows(f"net {net}, one image a step", works, repeats, compare="scaled copy")


def bench_deformation(repeats: int) -> list[dict]:
    """Rows for the deformation of 6,000 images, in one thread and in as many as there are cores."""
    rng = np.random.default_rng(0)
    n = 6000
    images = rng.uniform(-1, 1, (n, 29, 29)).astype(np.float32)
    labels = rng.integers(0, 10, n).astype(np.uint8)
    out = np.empty_like(images)
    works = {
        f"deform, {threads} threads": Work(
            lambda threads=threads: deform(images, labels, TABLE1, out=out, threads=threads), n
        )
        for threads in sorted({1, provenance.cores()})
    }
    return rows("deformation", works, repeats)


def rows(
    title: str, works: dict[str, Work], repeats: int, compare: str | None = None
) -> list[dict]:
    """Tidy rows of one group. Ratios are medians over repeats in which all works took turns."""
    seconds = measure(works, repeats)
    first = next(iter(works))
    found = []
    for name, work in works.items():
        low, middle, high = np.percentile(seconds[name], [20, 50, 80])
        row = {"group": title, "name": name, "images": work.n_images, "repeats": repeats}
        row |= {"seconds_p20": low, "seconds": middle, "seconds_p80": high}
        row["us_an_image"] = row["images_a_second"] = row["times_first"] = None
        if work.n_images:
            row["us_an_image"] = 1e6 * middle / work.n_images
            row["images_a_second"] = work.n_images / middle
            row["times_first"] = np.median(seconds[name] / seconds[first])
        row["gb_a_second"] = row["of_copy"] = None
        if work.n_bytes:
            row["gb_a_second"] = work.n_bytes / middle / 1e9
            row["of_copy"] = (
                np.median(seconds[compare] / seconds[name]) * work.n_bytes / works[compare].n_bytes
            )
        found.append(row)
    return found


def table(found: list[dict]) -> str:
    """The rows as a Markdown table for people."""

    def number(value: float | None, form: str) -> str:
        return "" if value is None or value == "" else form.format(float(value))

    return tables.markdown(
        [
            {
                "": row["group"],
                "what": row["name"],
                "us an image": number(row["us_an_image"], "{:.4g}"),
                "images/s": number(row["images_a_second"], "{:,.0f}"),
                "time, times the first": number(row["times_first"], "{:.2f}"),
                "GB/s": number(row["gb_a_second"], "{:.1f}"),
                "of the copy's": number(row["of_copy"], "{:.2f}"),
            }
            for row in found
        ]
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--repeats",
        type=cli.integer(7),
        default=9,
        metavar="N",
        help="repeats that the medians are of, at least 7 (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=provenance.device_folder(provenance.device()),
        metavar="DIR",
        help="folder for bench.csv (default: results/<this device>)",
    )
    arguments = parser.parse_args(argv)
    files.make_folder(arguments.out)
    found = []
    for net in (1, 4):
        print(f"measuring net {net} ...", file=sys.stderr, flush=True)
        found += bench_net(net, arguments.repeats, peers=net == 1)
    print("measuring the deformation ...", file=sys.stderr, flush=True)
    found += bench_deformation(arguments.repeats)
    print(table(found))
    versions = provenance.versions((*provenance.PACKAGES, "torch"))
    source = provenance.columns(provenance.collect() | {"versions": versions})
    path = arguments.out / "bench.csv"
    files.replace(path, tables.csv_text([row | source for row in found]).encode())
    print(f"written to {path}", file=sys.stderr)


if __name__ == "__main__":
    cli.run(main)
