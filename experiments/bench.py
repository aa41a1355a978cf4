"""Time the engines, their kernels and the baselines on this machine, in one run.

For nets 1 to 5 and 841-800-10, one image per step: microseconds per image and weight updates per
second of each engine, of a plain NumPy loop, and of PyTorch (on a GPU) and JAX where they are
installed; the bytes per second that an engine must move, on the CPU next to a scaled copy and a
read of as many weights; operations per second of the CPU's engine, its kernel and the evaluation,
next to a loop of multiply-adds. On a GPU also each kernel of each layer next to a copy. Last the
deformation of the same images, by ours and by baselines: SciPy, and kornia where it is installed.

The convolutional nets of Table 1 of 2011 likewise, next to NumPy, to PyTorch on a GPU, and to
multiply-adds; on a GPU also each kernel of one of them.

Every time is the median of several repeats, in which all that is compared takes turns. Prints
tables, and writes bench.csv and a plot, bench.png and bench.pdf, to results/<device>: each row as
soon as it is measured, so a fault or a signal costs no other; with --nets, --gpu-only or --minutes
the rows of other measurements are kept.

Without a GPU, a race at the end, a quarter of an hour: wrong digits of MNIST against seconds of
training, on-line and by mini-batches in NumPy and PyTorch; race.csv, race.png and race.pdf.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from deepbig_runtime import files, gpu
from deepbig_runtime.errors import Problem, tell
from experiments.benchmarks import (
    baselines,
    cnn_times,
    columns,
    deform_times,
    gpu_times,
    host,
    mlp_times,
    race,
)
from experiments.benchmarks.baselines import Trainer
from experiments.benchmarks.processes import in_processes
from experiments.datasets import data
from experiments.results import cnn_tables
from experiments.results.rows import BenchRow, read_rows, rows_text
from experiments.training import cli, provenance
from experiments.training.formatting import markdown_table
from experiments.training.provenance import Source
from mlp_gpu.network import Network

CNN_NETS = tuple(cnn_tables.PAPER)


def measure_net(
    net: int | str,
    makers: dict[str, Callable[..., Trainer]],
    repeats: int,
    timer: gpu_times.Timer | None,
    on_cpu: bool = True,
) -> Iterator[BenchRow]:
    """Rows of one of mlp_times.NETS.

    makers: of the baselines on the CPU. timer: None without a GPU. on_cpu: whether the CPU is
    measured.
    """
    network = mlp_times.trained(Network.initial(mlp_times.NETS[net], seed=0))
    named = partial(columns.of_net, net, network.n_weights)
    if timer:
        yield from named(gpu.name(), gpu_times.measure_net(network, timer, repeats))
    if on_cpu:
        cpu = provenance.device("cpu")
        yield from named(cpu, mlp_times.measure_on_cpu(network, makers, repeats))
    if timer:
        others = partial(mlp_times.measure_baselines_on_gpu, network, repeats)
        yield from named(gpu.name(), host.attempts([others]))


def measure_cnn(
    net: int, repeats: int, timer: gpu_times.Timer | None, on_cpu: bool = True
) -> Iterator[BenchRow]:
    """Rows of one net of Table 1 of 2011. Arguments as of `measure_net`."""
    network = cnn_times.initial(net)
    named = partial(columns.of_net, net, network.n_weights)
    if on_cpu:
        cpu = provenance.device("cpu")
        yield from named(cpu, cnn_times.measure_on_cpu(network, repeats))
    if timer:
        by_kernel = net == cnn_times.KERNELS_OF
        on_gpu = cnn_times.measure_on_gpu(network, timer, repeats, by_kernel)
        yield from named(gpu.name(), on_gpu)


def measure_all(arguments: argparse.Namespace, timer: gpu_times.Timer | None) -> Iterator[BenchRow]:
    """All rows that the command line asks for; logs the progress.

    timer: None without a GPU.
    """
    repeats, on_cpu = arguments.repeats, not arguments.gpu_only
    end = time.monotonic() + 60 * (arguments.minutes or math.inf)
    makers = baselines.available("net", baselines.CPU) if on_cpu else {}
    with in_processes(makers) as fastest:
        parts: dict[str, Callable[[], Iterator[BenchRow]]] = {
            columns.net_title(net): partial(measure_net, net, fastest, repeats, timer, on_cpu)
            for net in arguments.nets or mlp_times.NETS
        }
        if not arguments.nets:
            for net in CNN_NETS:
                part = partial(measure_cnn, net, repeats, timer, on_cpu)
                parts[f"convolutional net {net}"] = part
            parts["the deformation"] = partial(deform_times.measure, repeats, timer, on_cpu)
        for number, (title, measure) in enumerate(parts.items(), start=1):
            if number > 1 and time.monotonic() > end:
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
    path: Path, arguments: argparse.Namespace, timer: gpu_times.Timer | None, source: Source
) -> list[BenchRow]:
    """Measure, and write bench.csv anew with each row. Returns its rows.

    Earlier rows stay in it until they are measured anew; at the end they go if all was asked for.
    """
    origin = source.columns()
    before = {key_of(row): row for row in read_rows(path, BenchRow)} if path.exists() else {}
    measured: list[BenchRow] = []
    new: dict[tuple, BenchRow] = {}
    for row in measure_all(arguments, timer):
        measured.append(replace(row, source=origin))
        new = {key_of(row): row for row in columns.with_cpu_times(measured)}
        files.replace(path, rows_text((before | new).values()).encode())
    rows = list(new.values() if is_whole(arguments) else (before | new).values())
    files.replace(path, rows_text(rows).encode())
    return rows


def save_picture(plot: Callable[[Any], Any], path: Path) -> None:
    """Save a figure as PNG and PDF. plot: makes it, given the module `bench_plots`."""

    def save() -> None:
        from experiments.drawing import bench_plots, figures  # imports matplotlib

        figures.save_figure(plot(bench_plots), path)

    cli.add_picture(save)


def run_race(folder: Path, source: Source) -> None:
    """Measure wrong digits against seconds; write and print them."""
    try:
        dataset = data.load("mnist", None)
    except Problem as problem:
        tell(f"wrong digits against seconds are not measured: {problem}")
        return
    points = race.measure(dataset, source.columns())
    files.replace(folder / "race.csv", rows_text(points).encode())
    save_picture(lambda plots: plots.plot_race(points), folder / "race")
    print("\n" + markdown_table(race.table(points)))
    tell(f"written to {folder}: race.csv, race.png, race.pdf")


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = cli.Parser("bench", __doc__)
    parser.add_argument(
        "--repeats",
        type=cli.integer(3, gpu_times.MAX_REPEATS),
        default=9,
        metavar="N",
        help="repeats of each measurement, at least 3 (default: %(default)s)",
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
    cli.add_out_argument(parser, "folder for tables and pictures (default: results/<this device>)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    reason = gpu.missing(gpu_times.NEEDED_GPU_BYTES)
    if reason:
        tell(f"no GPU is measured: {reason}")
    for sentence in baselines.missing(gpu=reason is None):
        tell(sentence)
    source = provenance.collect("cpu" if reason else "cuda")
    source.versions |= provenance.versions(tuple(baselines.PACKAGES))
    folder: Path = arguments.out or provenance.device_folder(source.device)
    files.make_folder(folder)
    timer = None if reason else gpu_times.Timer()
    rows = measure_into(folder / "bench.csv", arguments, timer, source)
    save_picture(lambda plots: plots.plot_times(rows), folder / "bench")
    tables = [columns.net_table(rows), columns.evaluation_table(rows), columns.cnn_table(rows)]
    tables += [columns.deform_table(rows), columns.kernel_table(rows, mlp_times.NETS)]
    tables.append(columns.kernel_table(rows, CNN_NETS, "cnn kernel"))
    print("\n\n".join(map(markdown_table, filter(None, tables))))
    tell(f"written to {folder}: bench.csv, bench.png, bench.pdf")
    if reason and is_whole(arguments):
        run_race(folder, source)


if __name__ == "__main__":
    cli.run(main)
