"""Time the engines, their kernels and their peers on this machine, in one run.

For nets 1 to 5 and 841-800-10, one image per step: microseconds per image and weight updates per
second of each engine, of a plain NumPy loop, and of PyTorch and JAX where they are installed; the
bytes per second that an engine must move, on the CPU beside a scaled copy and a read of as many
weights; operations per second of the CPU's engine, its kernel and the evaluation, beside a loop of
multiply-adds. On a GPU also each kernel of each layer beside a copy; without a GPU, what the
compiled kernels take of one. Last the deformation of the same images, by ours and by its peers:
SciPy, and albumentations and kornia where they are installed.

The convolutional nets of Table 1 of 2011 likewise, beside loops over connections and PyTorch, and
beside multiply-adds; on a GPU also each kernel of one of them.

Every time is the median of several repeats, in which what is compared takes turns. Prints tables,
and writes bench.csv and a plot, bench.png and bench.pdf, to results/<device>.

Without a GPU, a race at the end, a quarter of an hour: wrong digits of MNIST against seconds of
training, on-line and by mini-batches in NumPy and PyTorch; race.csv, race.png and race.pdf.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np

from cnn_gpu.network import ConvNetwork
from deform_gpu import TABLE1
from deform_gpu.batches import deform_set
from deform_gpu.paper import PaperSet
from experiments.running import cli, data, provenance
from experiments.running.errors import Problem
from experiments.running.formatting import csv_text, markdown_table, plural
from experiments.running.messages import tell
from experiments.scoring import cnn_tables
from experiments.timing import (
    cnn,
    compiled,
    deform_peers,
    host,
    mlp,
    peer_processes,
    peers,
    race,
)
from experiments.timing import deform as deform_timing
from experiments.timing import gpu as gpu_timing
from experiments.timing import report as timing_report
from experiments.timing.host import Workload, random_examples
from experiments.timing.measurement import Measurement
from mlp_gpu import files, gpu
from mlp_gpu.network import Network

CNN_NETS = tuple(cnn_tables.PAPER)
PEER_PACKAGES = ("torch", "jax", "albumentations", "kornia")

# Images per call: enough that the overhead of a call does not count, few enough that it ends soon.
DEFORM_IMAGES = 6000
DEFORM_PEER_IMAGES = 600


def measure_net(
    net: int | str,
    makers: dict[str, Callable[..., peers.Peer]],
    repeats: int,
    timer: gpu_timing.Timer | None,
) -> list[Measurement]:
    """Measurements of one of mlp.NETS.

    makers: of the peers on the CPU. timer: None without a GPU.
    """
    network = Network.initial(mlp.NETS[net], seed=0)
    measured = []
    if timer:
        measured += on_device(gpu.name(), gpu_timing.measure_net(network, timer, repeats))
    measured += on_device(provenance.device("cpu"), mlp.measure_on_cpu(network, makers, repeats))
    if timer:
        measured += on_device(
            gpu.name(), mlp.measure_peers_on_gpu(network, peers.on_gpu(), repeats)
        )
    return of_net(net, network, measured)


def measure_cnn(net: int, repeats: int, timer: gpu_timing.Timer | None) -> list[Measurement]:
    """Measurements of one net of Table 1 of 2011. timer: None without a GPU."""
    network = cnn.initial(net)
    measured = on_device(provenance.device("cpu"), cnn.measure_on_cpu(network, repeats))
    if timer:
        by_kernel = net == cnn.KERNELS_OF
        measured += on_device(gpu.name(), cnn.measure_on_gpu(network, timer, repeats, by_kernel))
    return of_net(net, network, measured)


def of_net(
    net: int | str, network: Network | ConvNetwork, measured: list[Measurement]
) -> list[Measurement]:
    """The measurements with the number of the net, its weights, and the CPU engine's time."""
    (cpu_engine_us,) = (one.us for one in measured if one.name == "engine cpu")
    return [
        replace(
            one,
            net=net,
            n_weights=network.n_weights,
            cpu_engine_us=cpu_engine_us if one.group in ("net", "cnn") and one.n_images else None,
        )
        for one in measured
    ]


def deform_workloads(images: np.ndarray, labels: np.ndarray) -> dict[str, Workload]:
    """The deformation on the CPU, in one thread, in two, and in as many as there are cores."""
    out = np.empty_like(images)
    return {
        f"CPU, {plural(threads, 'thread')}": Workload(
            partial(deform_set, out, images, labels, TABLE1, seed=0, epoch=1, threads=threads),
            len(images),
        )
        for threads in sorted({1, 2, provenance.cores()})
    }


def deform_peer_workloads(
    makers: dict[str, Callable], images: np.ndarray, labels: np.ndarray
) -> dict[str, Workload]:
    """Those peers that can deform the images."""
    return host.make_workloads(
        {name: partial(make, images, labels, TABLE1) for name, make in makers.items()}, len(images)
    )


def paper_workload(images: np.ndarray, labels: np.ndarray) -> dict[str, Workload]:
    """The papers' division of work: Listing 1 on the GPU, the rest on the host."""
    paper_set, out = PaperSet(images, labels, TABLE1, seed=0), np.empty_like(images)
    return {
        "Listing 1 on the GPU, the rest on the CPU": Workload(
            lambda: paper_set.deform(out, 1), len(out)
        )
    }


def measure_deformation(repeats: int, timer: gpu_timing.Timer | None) -> list[Measurement]:
    """Measurements of the deformation, ours and its peers'. timer: None without a GPU."""
    images, labels = random_examples(deform_timing.N_IMAGES if timer else DEFORM_IMAGES, 29 * 29)
    images = images.reshape(-1, 29, 29)
    some, few = slice(DEFORM_IMAGES), slice(DEFORM_PEER_IMAGES)
    workloads = deform_workloads(images[some], labels[some])
    workloads |= deform_peer_workloads(deform_peers.on_cpu(), images[few], labels[few])
    measured = on_device(provenance.device("cpu"), host.measure("deformation", workloads, repeats))
    if timer:
        measured += on_device(gpu.name(), deform_timing.measure(images, labels, timer, repeats))
        workloads = paper_workload(images[some], labels[some])
        workloads |= deform_peer_workloads(deform_peers.on_gpu(), images[some], labels[some])
        measured += on_device(gpu.name(), host.measure("deformation", workloads, repeats))
    return measured


def on_device(device: str, measured: list[Measurement]) -> list[Measurement]:
    """The measurements with the device that they ran on."""
    return [replace(one, ran_on=device) for one in measured]


def measure_all(repeats: int, timer: gpu_timing.Timer | None) -> list[Measurement]:
    """All measurements; tells the progress. timer: None without a GPU."""
    n_parts = len(mlp.NETS) + len(CNN_NETS) + 1
    measured = []
    with peer_processes.started(peers.on_cpu()) as makers:
        for part, net in enumerate(mlp.NETS, start=1):
            title = timing_report.net_title(net)
            tell(f"measuring {title} ... (part {part} of {n_parts})")
            measured += measure_net(net, makers, repeats, timer)
    for part, net in enumerate(CNN_NETS, start=len(mlp.NETS) + 1):
        tell(f"measuring convolutional net {net} ... (part {part} of {n_parts})")
        measured += measure_cnn(net, repeats, timer)
    tell(f"measuring the deformation ... (part {n_parts} of {n_parts})")
    return measured + measure_deformation(repeats, timer)


def compiled_kernels() -> str:
    """What the compiled kernels take of a GPU, as Markdown, or why they cannot be compiled here."""
    return compiled.missing_toolkit() or markdown_table(compiled.table(compiled.compile_all()))


def run_race(folder: Path, source: dict) -> None:
    """Measure wrong digits against seconds; write and print them. source: the provenance."""
    try:
        dataset = data.load("mnist", None)
    except Problem as problem:
        tell(f"wrong digits against seconds are not measured: {problem}")
        return
    points = race.measure(dataset)
    rows = [asdict(point) | provenance.columns(source) for point in points]
    files.replace(folder / "race.csv", csv_text(rows).encode())

    def draw() -> None:
        from experiments.drawing import bench_plots, figures  # imports matplotlib

        figures.save_figure(bench_plots.draw_race(points), folder / "race")

    cli.add_picture(draw)
    print("\n" + markdown_table(race.table(points)))
    tell(f"written to {folder}: race.csv, race.png, race.pdf")


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("bench", __doc__)
    parser.add_argument(
        "--repeats",
        type=cli.integer(7, gpu_timing.MAX_REPEATS),
        default=9,
        metavar="N",
        help="repeats of each measurement, at least 7 (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for bench.csv and the pictures (default: results/<this device>)",
    )
    arguments = parser.parse_args(argv)
    reason = gpu.missing(gpu_timing.NEEDED_GPU_BYTES)
    if reason:
        tell(f"no GPU is measured: {reason}")
    for module in (peers, deform_peers):
        for sentence in module.missing(gpu=reason is None):
            tell(sentence)
    source = provenance.collect("cpu" if reason else "cuda")
    source["versions"] |= provenance.versions(PEER_PACKAGES)
    folder = arguments.out or provenance.device_folder(source["device"])
    files.make_folder(folder)

    measured = measure_all(arguments.repeats, None if reason else gpu_timing.Timer())
    rows = [timing_report.row(one) | provenance.columns(source) for one in measured]
    files.replace(folder / "bench.csv", csv_text(rows).encode())

    def draw() -> None:
        from experiments.drawing import bench_plots, figures  # imports matplotlib

        figures.save_figure(bench_plots.draw_times(rows), folder / "bench")

    cli.add_picture(draw)
    print(markdown_table(timing_report.net_table(rows)))
    print("\n" + markdown_table(timing_report.evaluation_table(rows)))
    print("\n" + markdown_table(timing_report.cnn_table(rows)))
    print("\n" + markdown_table(timing_report.deform_table(rows)))
    if reason:
        print("\n" + compiled_kernels())
    else:
        print("\n" + markdown_table(timing_report.kernel_table(rows, mlp.NETS)))
        print("\n" + markdown_table(timing_report.kernel_table(rows, CNN_NETS, "cnn kernel")))
    tell(f"written to {folder}: bench.csv, bench.png, bench.pdf")
    if reason:
        run_race(folder, source)


if __name__ == "__main__":
    cli.run(main)
