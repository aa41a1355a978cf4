"""Measurements as rows of bench.csv, and such rows as the tables of `make bench` and the README."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import numpy as np

from experiments.scoring import cnn_tables
from experiments.scoring.rows import BenchRow, SourceColumns
from experiments.timing.measurement import Measurement

NOT_MEASURED = "Not measured yet."

# Training in the papers: weight updates per second, at most, and speedup over their CPU.
PAPER = {"2010, GTX 280": (5e9, 40), "2012, GTX 480": (7.5e9, 50)}

# Seconds to deform 60,000 images in the papers: on their CPU, and with a GPU for the convolution.
PAPER_DEFORM_SECONDS = {
    "2010, on a CPU": 93,
    "2010, convolution on a GPU": 9,
    "2012, on a CPU": 83,
    "2012, convolution on a GPU": 6.5,
    "2010, the displacement field alone": 3,
    "2012, the displacement field alone": 1.5,
}
EPOCH_IMAGES = 60_000


def row(measured: Measurement, source: SourceColumns) -> BenchRow:
    """A measurement as a row of bench.csv."""
    us, n_images, n_bytes, flops = measured.us, measured.n_images, measured.n_bytes, measured.flops
    low, median, high = map(float, np.percentile(us, [20, 50, 80]))
    rate = 1e6 * n_images / median if n_images else None
    weights = measured.n_weights if measured.group in ("net", "cnn") else None
    cpu_us, copy = measured.cpu_engine_us, measured.copy
    read, peak = measured.read, measured.peak
    return BenchRow(
        group=measured.group,
        net=str(measured.net or ""),
        weights=measured.n_weights,
        name=measured.name,
        settings=measured.settings or "",
        layer=measured.layer,
        n_in=measured.n_in,
        n_out=measured.n_out,
        state=measured.state or "",
        ran_on=measured.ran_on or "",
        repeats=len(us),
        us_p20=low,
        us=median,
        us_p80=high,
        images=n_images,
        images_a_second=rate,
        updates_a_second=weights * rate if weights and rate else None,
        times_cpu=float(np.median(cpu_us)) / median if rate and cpu_us is not None else None,
        bytes=n_bytes,
        gb_a_second=n_bytes / median / 1e3 if n_bytes else None,
        copy_gb_a_second=copy.n_bytes / float(np.median(copy.us)) / 1e3 if copy else None,
        percent_of_copy=_percent(n_bytes, copy.n_bytes, copy.us / us) if copy else None,
        percent_of_read=_percent(n_bytes, read.n_bytes, read.us / us) if read else None,
        tflop_a_second=flops / median / 1e6 if flops else None,
        paper_gb_a_second=measured.paper_gb_per_second,
        flops=flops,
        percent_of_peak=_percent(flops, peak.flops, peak.us / us) if peak else None,
        source=source,
    )


def _percent(work: float | None, of_ceiling: float, times: np.ndarray) -> float | None:
    """How near a rate of work comes to that of its ceiling. times: of both, as quotients."""
    return 100 * work / of_ceiling * float(np.median(times)) if work else None


def net_title(net: int | str) -> str:
    """What a net is called in sentences: 'net 1', or its sizes."""
    return f"net {net}" if str(net).isdigit() else str(net)


def format_number(value: float | None, form: str, unit: float = 1) -> str:
    """A cell of a row in multiples of the unit; nothing if the cell is empty."""
    return "" if value is None else form.format(value / unit)


def format_us(row: BenchRow) -> str:
    """Median and percentiles of a row, microseconds: '12.3 (12.1-12.6)'."""
    form = "{:,.0f}" if row.us >= 1000 else "{:.1f}" if row.us >= 100 else "{:.2f}"
    return f"{form.format(row.us)} ({form.format(row.us_p20)}-{form.format(row.us_p80)})"


def format_epoch(us_per_image: float) -> str:
    """How long 60,000 images take: '1.23 s', '4.56 ms'."""
    seconds = us_per_image * EPOCH_IMAGES / 1e6
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"


def net_table(rows: Collection[BenchRow]) -> list[dict[str, str]]:
    """Engines and their peers, as lines of a table, below the papers' figures."""
    lines = [
        {
            "net": "paper",
            "engine": year,
            "1e9 updates/s": f"up to {updates / 1e9:g}",
            "speedup over CPU": f"{speedup}",
        }
        for year, (updates, speedup) in PAPER.items()
    ]
    lines += [
        {
            "net": row.net,
            "engine": row.name + (f" ({row.settings})" if row.settings else ""),
            "us per image (p20-p80)": format_us(row) if row.images else "",
            "images/s": format_number(row.images_a_second, "{:,.0f}"),
            "1e9 updates/s": format_number(row.updates_a_second, "{:.3g}", 1e9),
            "speedup over CPU": format_number(row.times_cpu, "{:.2f}"),
            "GB/s": format_number(row.gb_a_second, "{:,.1f}"),
            "% of copy": format_number(row.percent_of_copy, "{:.0f}"),
            "% of read": format_number(row.percent_of_read, "{:.0f}"),
            "GFLOP/s": format_number(row.tflop_a_second, "{:,.0f}", 1e-3),
            "% of peak": format_number(row.percent_of_peak, "{:.0f}"),
            "device": row.ran_on,
        }
        for row in rows
        if row.group == "net"
    ]
    return [dict.fromkeys(lines[-1], "") | line for line in lines]


def deform_table(rows: Collection[BenchRow]) -> list[dict[str, str]]:
    """The deformation and its peers, as lines of a table, below the papers' figures."""
    measured = [row for row in rows if row.group == "deformation"]
    recipe_us = next((row.us for row in measured if row.name == "scipy recipe"), None)
    lines = [
        {
            "method": method,
            "60,000 images (p20-p80)": f"{seconds:g} s",
            "images/s": f"{EPOCH_IMAGES / seconds:,.0f}",
            "speedup over SciPy recipe": "",
            "device": "the paper",
        }
        for method, seconds in PAPER_DEFORM_SECONDS.items()
    ]
    for row in measured:
        median, low, high = map(format_epoch, (row.us, row.us_p20, row.us_p80))
        speedup = recipe_us and recipe_us / row.us
        lines.append(
            {
                "method": row.name,
                "60,000 images (p20-p80)": f"{median} ({low}-{high})",
                "images/s": format_number(row.images_a_second, "{:,.0f}"),
                "speedup over SciPy recipe": format_number(speedup, "{:,.1f}"),
                "device": row.ran_on,
            }
        )
    return lines


def cnn_table(rows: Collection[BenchRow]) -> list[dict[str, str]]:
    """Engines for convolutional nets and their peers, as lines of a table; none if not measured.

    The speedup over PyTorch is that over its fastest eager row on the same net and device.
    """
    measured = [row for row in rows if row.group == "cnn"]
    lines = []
    for row in measured:
        torch_us = fastest_torch(measured, row.net, row.ran_on)
        speedup = torch_us / row.us if torch_us and row.images else None
        lines.append(
            {
                "net": f"{row.net}: {cnn_tables.PAPER[int(row.net)].name}",
                "engine": row.name,
                "us per image (p20-p80)": format_us(row) if row.images else "",
                "images/s": format_number(row.images_a_second, "{:,.0f}"),
                "speedup over CPU": format_number(row.times_cpu, "{:.2f}"),
                "speedup over PyTorch": format_number(speedup, "{:.2f}"),
                "1e9 multiply-adds/s": format_number(row.tflop_a_second, "{:,.1f}", 2e-3),
                "% of peak": format_number(row.percent_of_peak, "{:.0f}"),
                "device": row.ran_on,
            }
        )
    return lines


def fastest_torch(rows: Iterable[BenchRow], net: str, ran_on: str) -> float | None:
    """Microseconds per image of PyTorch's fastest eager row on a net and a device; None if none."""
    us = [
        row.us
        for row in rows
        if (row.group, row.net, row.ran_on) == ("cnn", net, ran_on)
        and row.name.startswith("PyTorch eager")
    ]
    return min(us, default=None)


def kernel_table(
    rows: Collection[BenchRow], nets: Collection[int | str], group: str = "kernel"
) -> list[dict[str, str]]:
    """Kernels of some nets, as lines of a table; one line for both states of the L2 cache."""
    lines: dict[tuple, dict[str, str]] = {}
    for row in rows:
        if row.group == group and row.net in map(str, nets):
            state = row.state
            line = lines.setdefault((row.net, row.layer, row.name), {})
            line |= {
                "net": row.net,
                "layer": f"{row.layer}: {row.n_in} x {row.n_out}" if row.layer else "",
                "kernel": row.name,
                "MB": format_number(row.bytes, "{:.3f}", 1e6),
                "MFLOP": format_number(row.flops, "{:.3f}", 1e6),
                "paper GB/s": format_number(row.paper_gb_a_second, "{:.0f}"),
                f"{state}: us (p20-p80)": format_us(row),
                f"{state}: GB/s": format_number(row.gb_a_second, "{:,.0f}"),
                f"{state}: copy GB/s": format_number(row.copy_gb_a_second, "{:,.0f}"),
                f"{state}: % of copy": format_number(row.percent_of_copy, "{:.0f}"),
                f"{state}: GFLOP/s": format_number(row.tflop_a_second, "{:,.0f}", 1e-3),
            }
    return list(lines.values())


def evaluation_table(rows: Collection[BenchRow]) -> list[dict[str, str]]:
    """The evaluation of all nets, as lines of a table: an image on a CPU, a batch on a GPU."""
    return [
        {
            "net": row.net,
            "L2": row.state,
            "us (p20-p80)": format_us(row),
            "images": format_number(row.images, "{:,.0f}"),
            "images/s": format_number(row.images_a_second, "{:,.0f}"),
            "TFLOP/s": format_number(row.tflop_a_second, "{:.2f}"),
            "% of peak": format_number(row.percent_of_peak, "{:.0f}"),
            "device": row.ran_on,
        }
        for row in rows
        if row.group == "evaluation"
    ]


# By the name of a part of results/README.md; the report has a section for each.
BENCH_TABLES: dict[str, tuple[Callable[[Collection[BenchRow]], list[dict[str, str]]], ...]] = {
    "bench": (net_table, evaluation_table),
    "cnn-bench": (cnn_table, partial(kernel_table, nets=cnn_tables.PAPER, group="cnn kernel")),
    "deformation": (deform_table,),
    "kernels": (partial(kernel_table, nets=(1, 4)),),
}


def bench_tables(part: str, rows: Collection[BenchRow]) -> list[list[dict[str, str]]]:
    """The tables of a benchmark that a part of the pages shows, but for those without lines.

    part: of BENCH_TABLES.
    """
    return [lines for table in BENCH_TABLES[part] if (lines := table(rows))]


def on_gpu(rows: Sequence[BenchRow], group: str = "kernel") -> bool:
    """Whether these rows are of a benchmark that measured kernels, of a group, on a GPU."""
    return any(row.group == group for row in rows)
