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
and writes bench.csv and a plot, bench.png and bench.pdf, to results/<device>: each row as soon as
it is measured, so a fault or a signal costs no other; with --nets, --gpu-only or --minutes the rows
of what is not measured stay.

Without a GPU, a race at the end, a quarter of an hour: wrong digits of MNIST against seconds of
training, on-line and by mini-batches in NumPy and PyTorch; race.csv, race.png and race.pdf.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from cnn_gpu.network import ConvNetwork
from cuda_on_cpu import missing_toolkit
from deepbig_runtime import files, gpu
from deform_gpu import TABLE1
from deform_gpu.batches import deform_set
from deform_gpu.paper import PaperSet
from experiments.running import cli, data, provenance
from experiments.running.errors import Problem
from experiments.running.formatting import markdown_table, plural
from experiments.running.messages import tell
from experiments.running.provenance import Source
from experiments.scoring import cnn_tables
from experiments.scoring.rows import BenchRow, read_rows, rows_text, source_columns
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
from experiments.timing.window_kernels import window_kernels
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
    on_cpu: bool = True,
) -> Iterator[Measurement]:
    """Measurements of one of mlp.NETS.

    makers: of the peers on the CPU. timer: None without a GPU. on_cpu: whether the CPU is measured.
    """
    network = mlp.trained(Network.initial(mlp.NETS[net], seed=0))
    cpu, named = provenance.device("cpu"), partial(of_net, net, network)
    if timer:
        yield from named(gpu.name(), gpu_timing.measure_net(network, timer, repeats))
        yield from named(gpu.name(), measure_window_kernels(network, timer, repeats))
    if on_cpu:
        yield from named(cpu, mlp.measure_on_cpu(network, makers, repeats))
    if timer:
        peers_on_gpu = partial(mlp.measure_peers_on_gpu, network, peers.on_gpu(), repeats)
        yield from named(gpu.name(), host.attempts([peers_on_gpu]))


def measure_window_kernels(
    network: Network, timer: gpu_timing.Timer, repeats: int
) -> Iterator[Measurement]:
    """Measurements of the kernels of the schedule `window`."""

    def measure() -> Iterator[Measurement]:
        kernels = list(window_kernels(network, timer.stream))
        return gpu_timing.measure_kernels(kernels, timer, repeats)

    return host.attempts([measure])


def measure_cnn(
    net: int, repeats: int, timer: gpu_timing.Timer | None, on_cpu: bool = True
) -> Iterator[Measurement]:
    """Measurements of one net of Table 1 of 2011. Arguments as of `measure_net`."""
    network = cnn.initial(net)
    if on_cpu:
        cpu = provenance.device("cpu")
        yield from of_net(net, network, cpu, cnn.measure_on_cpu(network, repeats))
    if timer:
        by_kernel = net == cnn.KERNELS_OF
        on_gpu = cnn.measure_on_gpu(network, timer, repeats, by_kernel)
        yield from of_net(net, network, gpu.name(), on_gpu)


def of_net(
    net: int | str, network: Network | ConvNetwork, device: str, found: Iterable[Measurement]
) -> Iterator[Measurement]:
    """The measurements with the number of the net, its weights, and the device they ran on."""
    for one in found:
        yield replace(one, net=net, n_weights=network.n_weights, ran_on=device)


def with_cpu_times(measured: Sequence[Measurement]) -> list[Measurement]:
    """The measurements with the CPU engine's time on the same net, where there is one."""
    times = {(one.group, one.net): one.us for one in measured if one.name == "engine cpu"}
    return [
        replace(one, cpu_engine_us=times.get((one.group, one.net)) if one.n_images else None)
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


def measure_deformation(
    repeats: int, timer: gpu_timing.Timer | None, on_cpu: bool = True
) -> Iterator[Measurement]:
    """Measurements of the deformation, ours and its peers'. Arguments as of `measure_net`."""
    images, labels = random_examples(deform_timing.N_IMAGES if timer else DEFORM_IMAGES, 29 * 29)
    images = images.reshape(-1, 29, 29)
    some, few = slice(DEFORM_IMAGES), slice(DEFORM_PEER_IMAGES)

    def by_host(make: Callable[[], dict[str, Workload]]) -> list[Measurement]:
        return host.measure("deformation", make(), repeats)

    def cpu_workloads() -> dict[str, Workload]:
        workloads = deform_workloads(images[some], labels[some])
        return workloads | deform_peer_workloads(deform_peers.on_cpu(), images[few], labels[few])

    def gpu_workloads() -> dict[str, Workload]:
        workloads = paper_workload(images[some], labels[some])
        return workloads | deform_peer_workloads(deform_peers.on_gpu(), images[some], labels[some])

    if on_cpu:
        yield from on_device(provenance.device("cpu"), by_host(cpu_workloads))
    if timer:
        ours = partial(deform_timing.measure, images, labels, timer, repeats)
        found = host.attempts([ours, partial(by_host, gpu_workloads)])
        yield from on_device(gpu.name(), found)


def on_device(device: str, found: Iterable[Measurement]) -> Iterator[Measurement]:
    """The measurements with the device that they ran on."""
    return (replace(one, ran_on=device) for one in found)


def measure_all(
    arguments: argparse.Namespace, timer: gpu_timing.Timer | None
) -> Iterator[Measurement]:
    """All measurements that the command line asks for; tells the progress.

    timer: None without a GPU.
    """
    repeats, on_cpu = arguments.repeats, not arguments.gpu_only
    end = time.monotonic() + 60 * (arguments.minutes or math.inf)
    with peer_processes.started(peers.on_cpu() if on_cpu else {}) as makers:
        parts: dict[str, Callable[[], Iterator[Measurement]]] = {
            timing_report.net_title(net): partial(measure_net, net, makers, repeats, timer, on_cpu)
            for net in arguments.nets or mlp.NETS
        }
        if not arguments.nets:
            for net in CNN_NETS:
                part = partial(measure_cnn, net, repeats, timer, on_cpu)
                parts[f"convolutional net {net}"] = part
            parts["the deformation"] = partial(measure_deformation, repeats, timer, on_cpu)
        for number, (title, measure) in enumerate(parts.items(), start=1):
            if time.monotonic() > end:
                tell(f"{title} is not measured any more, after {arguments.minutes:g} minutes")
                continue
            tell(f"measuring {title} ... (part {number} of {len(parts)})")
            yield from measure()


def key_of(row: BenchRow) -> tuple:
    """The columns that tell a row of bench.csv from all others."""
    return row.group, row.net, row.name, row.layer, row.state


def is_whole(arguments: argparse.Namespace) -> bool:
    """Whether the command line asks for all there is to measure."""
    return not (arguments.nets or arguments.minutes or arguments.gpu_only)


def measure_into(
    path: Path, arguments: argparse.Namespace, timer: gpu_timing.Timer | None, source: Source
) -> list[BenchRow]:
    """Measure, and write bench.csv anew with each row. Returns its rows.

    Until everything is measured rows of before stay, and those that are not asked for stay then.
    """
    columns, before = source_columns(source), {}
    if path.exists():
        with suppress(files.FileFault):
            before = {key_of(row): row for row in read_rows(path, BenchRow)}
    measured: list[Measurement] = []
    new: dict[tuple, BenchRow] = {}
    for one in measure_all(arguments, timer):
        measured.append(one)
        rows = [timing_report.row(one, columns) for one in with_cpu_times(measured)]
        new = {key_of(row): row for row in rows}
        files.replace(path, rows_text((before | new).values()).encode())
    rows = list(new.values() if is_whole(arguments) else (before | new).values())
    files.replace(path, rows_text(rows).encode())
    return rows


def compiled_kernels() -> str:
    """What the compiled kernels take of a GPU, as Markdown, or why they cannot be compiled here."""
    return missing_toolkit() or markdown_table(compiled.table(compiled.compile_all()))


def run_race(folder: Path, source: Source) -> None:
    """Measure wrong digits against seconds; write and print them."""
    try:
        dataset = data.load("mnist", None)
    except Problem as problem:
        tell(f"wrong digits against seconds are not measured: {problem}")
        return
    points = race.measure(dataset, source_columns(source))
    files.replace(folder / "race.csv", rows_text(points).encode())

    def draw() -> None:
        from experiments.drawing import bench_plots, figures  # imports matplotlib

        figures.save_figure(bench_plots.draw_race(points), folder / "race")

    cli.add_picture(draw)
    print("\n" + markdown_table(race.table(points)))
    tell(f"written to {folder}: race.csv, race.png, race.pdf")


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = cli.Parser("bench", __doc__)
    parser.add_argument(
        "--repeats",
        type=cli.integer(7, gpu_timing.MAX_REPEATS),
        default=9,
        metavar="N",
        help="repeats of each measurement, at least 7 (default: %(default)s)",
    )
    parser.add_argument(
        "--nets",
        type=cli.integers(1, 5),
        metavar="N,N",
        help="nets of Table 1 to measure, and nothing else (default: all there is)",
    )
    parser.add_argument("--gpu-only", action="store_true", help="measure nothing on the CPU")
    parser.add_argument(
        "--minutes",
        type=cli.number(0.01, 10_000),
        metavar="N",
        help="begin no further net after that time (default: no limit)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for bench.csv and the pictures (default: results/<this device>)",
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    reason = gpu.missing(gpu_timing.NEEDED_GPU_BYTES)
    if reason:
        tell(f"no GPU is measured: {reason}")
    for module in (peers, deform_peers):
        for sentence in module.missing(gpu=reason is None):
            tell(sentence)
    source = provenance.collect("cpu" if reason else "cuda")
    source.versions |= provenance.versions(PEER_PACKAGES)
    folder = arguments.out or provenance.device_folder(source.device)
    files.make_folder(folder)

    timer = None if reason else gpu_timing.Timer()
    rows = measure_into(folder / "bench.csv", arguments, timer, source)

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
    if reason and is_whole(arguments):
        run_race(folder, source)


if __name__ == "__main__":
    cli.run(main)
