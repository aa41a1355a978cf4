"""Time the engines, their kernels and their peers on this machine, in one run.

For nets 1 to 5, one image a step: microseconds an image and weight updates a second of each engine,
of a plain NumPy loop, and of PyTorch and JAX where they are installed; the bytes that an engine
must move a second, on the CPU beside a scaled copy of arrays of the same size. On a GPU also each
kernel of each layer beside a copy, and the evaluation of a batch; without one, what the kernels
take once compiled. Last the deformation, of the same images by ours and by its peers: SciPy, and
albumentations and kornia where they are installed.

Every figure is the median of several repeats in which what stands beside each other took turns.
Prints tables, and writes bench.csv and a plot, bench.png and bench.pdf, to results/<device>.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numba import njit

from deform_gpu import TABLE1
from deform_gpu.batches import deform_set
from deform_gpu.paper import PaperSet
from experiments.drawing import bench_plots
from experiments.drawing.plots import save_figure
from experiments.running import cli, provenance
from experiments.running.formatting import csv_text, markdown_table
from experiments.running.messages import tell
from experiments.timing import compiled, deform_peers, peers
from experiments.timing import deform as deform_timing
from experiments.timing import gpu as gpu_timing
from experiments.timing import report as timing_report
from mlp_gpu import files, gpu
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import NETS, Network
from mlp_gpu.training import Schedule

ETA = Schedule().eta
PEERS = ("torch", "jax", "albumentations", "kornia")  # packages whose versions count
SECONDS = 0.2  # least time of a repeat

# Images a call: some, so that what a call does once does not count; few, so that it ends.
ENGINE_IMAGES = 100
CPU_PEER_IMAGES = 20
GPU_PEER_IMAGES = 500
DEFORM_IMAGES = 6000
DEFORM_PEER_IMAGES = 600


@dataclass(frozen=True)
class Work:
    """Something to time on the host's clock.

    n_images: that a call trains or deforms; None if it does not. n_bytes: that it must move for
    an image, or else in a call.
    """

    call: Callable[[], object]
    n_images: int | None = None
    n_bytes: int | None = None


def time_works(works: dict[str, Work], repeats: int) -> dict[str, np.ndarray]:
    """Microseconds an image, or else a call, of each work, float64 (repeats,); all take turns."""
    calls = {}
    for name, work in works.items():
        work.call()  # compile, touch memory
        started = time.perf_counter()
        work.call()
        calls[name] = max(1, round(SECONDS / (time.perf_counter() - started)))
    us = {name: np.empty(repeats) for name in works}
    for repeat in range(repeats):
        for name, work in works.items():
            started = time.perf_counter()
            for _ in range(calls[name]):
                work.call()
            seconds = (time.perf_counter() - started) / calls[name]
            us[name][repeat] = 1e6 * seconds / (work.n_images or 1)
    return us


def measure(group: str, works: dict[str, Work], repeats: int, copy: str = "") -> list[dict]:
    """Measurements of works, as `bench_report.row` takes them. copy: which is a copy, if one is."""
    us = time_works(works, repeats)
    found = []
    for name, work in works.items():
        one = {"group": group, "name": name, "us": us[name], "images": work.n_images and 1}
        if work.n_bytes:
            one |= {"bytes": work.n_bytes, "copy_us": us[copy], "copy_bytes": works[copy].n_bytes}
        found.append(one)
    return found


def engine_bytes(network: Network) -> int:
    """Bytes of weights that the CPU engine must move for one image.

    One pass that updates and goes forward (read and write), and one backward (read), which the
    first layer does not need.
    """
    n_bytes = 4 * network.n_weights
    first = 4 * (network.sizes[0] + 1) * network.sizes[1]
    return 3 * n_bytes - first


@njit(nogil=True)
def scale(target: np.ndarray, source: np.ndarray, factor: np.float32) -> None:
    """target = factor * source, float32 (n,), in one thread. Modifies target."""
    for i in range(source.shape[0]):
        target[i] = factor * source[i]


def examples(n: int, n_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images, float32 (n, n_inputs), and labels, uint8 (n,)."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (n, n_inputs)).astype(np.float32)
    return images, rng.integers(0, 10, n).astype(np.uint8)


def engine_works(network: Network) -> dict[str, Work]:
    """The CPU engine, and a copy of its weights."""
    images, labels = examples(ENGINE_IMAGES, network.sizes[0])
    order = np.arange(ENGINE_IMAGES)
    engine = CpuEngine()
    engine.set_network(network)
    source = [W.ravel().copy() for W in network.weights]
    target = [W.ravel().copy() for W in network.weights]

    def copy() -> None:
        for to, what in zip(target, source, strict=True):
            scale(to, what, np.float32(0.5))

    return {
        "engine cpu": Work(
            lambda: engine.train(images, labels, order, ETA), ENGINE_IMAGES, engine_bytes(network)
        ),
        "scaled copy": Work(copy, None, 2 * sum(W.nbytes for W in source)),
    }


def without_fault(makers: dict[str, Callable[[], Callable]], n: int) -> dict[str, Work]:
    """Those works on n images, each made by its maker, that can be made and done."""
    works = {}
    for name, make in makers.items():
        try:
            work = make()
            work()
        except Exception as error:  # must not cost the figures of everything else
            tell(f"{name} fails, so it is not measured: {type(error).__name__}: {error}")
        else:
            works[name] = Work(work, n)
    return works


def peer_works(makers: dict[str, Callable], network: Network, n: int) -> dict[str, Work]:
    """Those peers that train the net on n images without a fault."""
    images, labels = examples(n, network.sizes[0])

    def maker(make: Callable) -> Callable[[], Callable]:
        return lambda: make(network, images, labels, ETA).train

    return without_fault({name: maker(make) for name, make in makers.items()}, n)


def measure_net(net: int, repeats: int, timer: gpu_timing.Timer | None) -> list[dict]:
    """Measurements of one net of Table 1. timer: None without a GPU."""
    network = Network.initial(NETS[net], seed=0)
    found = []
    if timer:
        found += on(gpu.name(), gpu_timing.measure_net(network, timer, repeats))
    works = engine_works(network) | peer_works(peers.on_cpu(), network, CPU_PEER_IMAGES)
    found += on(provenance.device("cpu"), measure("net", works, repeats, copy="scaled copy"))
    if timer:
        works = peer_works(peers.on_gpu(), network, GPU_PEER_IMAGES)
        found += on(gpu.name(), measure("net", works, repeats))
    (cpu_us,) = (one["us"] for one in found if one["name"] == "engine cpu")
    for one in found:
        one |= {"net": net, "weights": network.n_weights}
        if one["group"] == "net" and one["images"]:
            one["cpu_us"] = cpu_us
    return found


def deform_works(images: np.ndarray, labels: np.ndarray) -> dict[str, Work]:
    """The deformation on the CPU, in one thread, in two, and in as many as there are cores."""
    out = np.empty_like(images)
    return {
        f"CPU, {threads} thread{'s' * (threads > 1)}": Work(
            partial(deform_set, out, images, labels, TABLE1, seed=0, epoch=1, threads=threads),
            len(images),
        )
        for threads in sorted({1, 2, provenance.cores()})
    }


def deform_peer_works(
    makers: dict[str, Callable], images: np.ndarray, labels: np.ndarray
) -> dict[str, Work]:
    """Those peers that deform the images without a fault."""
    return without_fault(
        {name: partial(make, images, labels, TABLE1) for name, make in makers.items()}, len(images)
    )


def paper_work(images: np.ndarray, labels: np.ndarray) -> dict[str, Work]:
    """The papers' way: Listing 1 on the GPU, all else on the host."""
    there, out = PaperSet(images, labels, TABLE1, seed=0), np.empty_like(images)
    return {
        "Listing 1 on the GPU, the rest on the CPU": Work(lambda: there.deform(out, 1), len(out))
    }


def measure_deformation(repeats: int, timer: gpu_timing.Timer | None) -> list[dict]:
    """Measurements of the deformation, ours and its peers'. timer: None without a GPU."""
    images, labels = examples(deform_timing.IMAGES if timer else DEFORM_IMAGES, 29 * 29)
    images = images.reshape(-1, 29, 29)
    some, few = slice(DEFORM_IMAGES), slice(DEFORM_PEER_IMAGES)
    works = deform_works(images[some], labels[some])
    works |= deform_peer_works(deform_peers.on_cpu(), images[few], labels[few])
    found = on(provenance.device("cpu"), measure("deformation", works, repeats))
    if timer:
        found += on(gpu.name(), deform_timing.measure(images, labels, timer, repeats))
        works = paper_work(images[some], labels[some])
        works |= deform_peer_works(deform_peers.on_gpu(), images[some], labels[some])
        found += on(gpu.name(), measure("deformation", works, repeats))
    return found


def on(device: str, found: list[dict]) -> list[dict]:
    """The measurements with what they ran on."""
    return [one | {"ran_on": device} for one in found]


def measure_all(repeats: int, timer: gpu_timing.Timer | None) -> list[dict]:
    """All measurements. Tells how far it is."""
    parts = len(NETS) + 1
    found = []
    for part, net in enumerate(NETS, start=1):
        tell(f"measuring net {net} ... (part {part} of {parts})")
        found += measure_net(net, repeats, timer)
    tell(f"measuring the deformation ... (part {parts} of {parts})")
    return found + measure_deformation(repeats, timer)


def compiled_kernels() -> str:
    """What the kernels take of a GPU once compiled, or why they cannot be compiled here."""
    return compiled.missing_toolkit() or markdown_table(compiled.table(compiled.compile_all()))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--repeats",
        type=cli.integer(7, gpu_timing.MOST_REPEATS),
        default=9,
        metavar="N",
        help="repeats that the medians are of, at least 7 (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for bench.csv and the pictures (default: results/<this device>)",
    )
    arguments = parser.parse_args(argv)
    reason = gpu.missing(gpu_timing.NEEDED_BYTES)
    if reason:
        tell(f"no GPU is measured: {reason}")
    for module in (peers, deform_peers):
        for sentence in module.missing(gpu=reason is None):
            tell(sentence)
    source = provenance.collect("cpu" if reason else "cuda")
    source["versions"] |= provenance.versions(PEERS)
    folder = arguments.out or provenance.device_folder(source["device"])
    files.make_folder(folder)

    measured = measure_all(arguments.repeats, None if reason else gpu_timing.Timer())
    rows = [timing_report.row(one) | provenance.columns(source) for one in measured]
    files.replace(folder / "bench.csv", csv_text(rows).encode())
    save_figure(bench_plots.draw_times(rows), folder / "bench")
    print(markdown_table(timing_report.net_table(rows)))
    print("\n" + markdown_table(timing_report.deform_table(rows)))
    if reason:
        print("\n" + compiled_kernels())
    else:
        print("\n" + markdown_table(timing_report.kernel_table(rows, NETS)))
        print("\n" + markdown_table(timing_report.evaluation_table(rows)))
    tell(f"written to {folder}: bench.csv, bench.png, bench.pdf")


if __name__ == "__main__":
    cli.run(main)
