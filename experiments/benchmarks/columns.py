"""Rows of bench.csv, made of the times of repeats, and their tables: `make bench`, the README.

docs/benchmarks.md has the meanings of columns from here.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from experiments.results import cnn_tables
from experiments.results.rows import BenchRow, StartupRow
from experiments.training.provenance import UNKNOWN, SourceColumns, now

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
CNN_NAMES = {f"{net}": f"{net}: {paper.name}" for net, paper in cnn_tables.PAPER.items()}
NARROW = "narrow net"  # group of older records: rows measured once more, limited to AVX2

Rows = Collection[BenchRow]


class Ceiling(NamedTuple):
    """A workload timed in turn with another: how fast memory or arithmetic can be.

    us: microseconds of each repeat, float64 (repeats,). work: bytes that a copy or a read moved, or
    floating-point operations of multiply-adds, in one such time.
    """

    us: np.ndarray
    work: float


def bench_row(
    us: np.ndarray,
    *,
    source: SourceColumns | None = None,
    images: int | None = None,
    n_bytes: float | None = None,
    flops: float | None = None,
    copy: Ceiling | None = None,
    read: Ceiling | None = None,
    peak: Ceiling | None = None,
    **fields: Any,
) -> BenchRow:
    """A row of bench.csv, of the times of an engine, a baseline, a kernel, a deformation or a copy.

    us: microseconds of each repeat, float64 (repeats,). images, n_bytes, flops: of one such time.
    copy, read, peak: its ceilings. source: None: of a row that is not yet in a file. fields: others
    of the row.
    """
    low, median, high = np.percentile(us, [20, 50, 80]).tolist()

    def percent(work: float | None, ceiling: Ceiling | None) -> float | None:
        """The rate of work in percent of the ceiling's: the median of the repeats."""
        if not work or ceiling is None:
            return None
        return 100 * work / ceiling.work * float(np.median(ceiling.us / us))

    return BenchRow(
        source=source or SourceColumns(device="unknown", date=now(), commit=UNKNOWN),
        repeats=len(us),
        us_p20=low,
        us=median,
        us_p80=high,
        images=images,
        images_a_second=1e6 * images / median if images else None,
        bytes=n_bytes,
        gb_a_second=n_bytes / median / 1e3 if n_bytes else None,
        copy_gb_a_second=copy.work / float(np.median(copy.us)) / 1e3 if copy else None,
        percent_of_copy=percent(n_bytes, copy),
        percent_of_read=percent(n_bytes, read),
        flops=flops,
        tflop_a_second=flops / median / 1e6 if flops else None,
        percent_of_peak=percent(flops, peak),
        **fields,
    )


def of_net(
    net: int | str, n_weights: int, device: str, rows: Iterable[BenchRow]
) -> Iterator[BenchRow]:
    """The rows with the number of the net, its weights, and the device they ran on."""
    for row in rows:
        rate = row.images_a_second if row.group in ("net", "cnn") else None
        updates = n_weights * rate if rate else None
        about = {"net": str(net), "weights": n_weights, "ran_on": device}
        yield replace(row, updates_a_second=updates, **about)


def with_cpu_times(rows: Sequence[BenchRow]) -> list[BenchRow]:
    """The rows with their speedup over the CPU engine on the same net, where there is one."""
    us = {(row.group, row.net): row.us for row in rows if row.name == "engine cpu"}
    keys = [(row.group, row.net) for row in rows]
    return [
        replace(row, times_cpu=us[key] / row.us) if row.images and key in us else row
        for row, key in zip(rows, keys, strict=True)
    ]


# --- cells


def net_title(net: int | str) -> str:
    """The name of a net in sentences: 'net 1', or its sizes."""
    return f"net {net}" if str(net).isdigit() else str(net)


def format_us(row: BenchRow) -> str:
    """Median and percentiles of a row, microseconds: '12.3 (12.1-12.6)'."""
    form = "{:,.0f}" if row.us >= 1000 else "{:.1f}" if row.us >= 100 else "{:.2f}"
    return f"{form.format(row.us)} ({form.format(row.us_p20)}-{form.format(row.us_p80)})"


def format_epoch(us_per_image: float) -> str:
    """How long 60,000 images take: '1.23 s', '4.56 ms'."""
    seconds = us_per_image * EPOCH_IMAGES / 1e6
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"


def _number(value: float | None, form: str = "{:.0f}", unit: float = 1) -> str:
    """A number in multiples of a unit; nothing where it is None."""
    return "" if value is None else form.format(value / unit)


NET_MEANINGS = {  # of columns of `net_table`
    "us per image (p20-p80)": "microseconds for the forward pass, the backward pass and the update "
    "of one image",
    "images/s": "its inverse",
    "1e9 updates/s": "weights of the net times images per second, as the papers count",
    "speedup over CPU": "over our CPU engine on all threads, on the same net, as the papers' 40 "
    "and 50 are over their CPU program; of a baseline, its speed relative to ours",
    "GB/s": "the bytes that one image must move, per second",
    "% of copy": "GB/s relative to the GB/s of a scaled copy on as many threads",
    "% of read": "GB/s relative to the GB/s of a read of memory on as many threads, all that "
    "memory allows",
    "GFLOP/s": "multiplications and additions that an image needs, per second: forward, back but "
    "for the first layer, and the update",
    "% of peak": "GFLOP/s relative to the GFLOP/s of multiply-adds on as many threads",
    "vectors": "floats in a vector register of the CPU that our code uses: 16 with AVX-512, 8 with "
    "AVX2",
}
CNN_MEANINGS = {  # of columns of `cnn_table`, which has some of those above
    "speedup over PyTorch": "over the fastest of PyTorch's rows on the same net and device",
    "1e9 multiply-adds/s": "multiply-adds that an image needs, per second: forward, back but for "
    "the first layer, and for the weights; of connections that exist",
    "% of peak": "multiply-adds per second relative to a loop of them in registers, timed in turn "
    "with it, in one thread, all that the processor can do",
}


# --- tables


def _group(rows: Rows, group: str) -> list[BenchRow]:
    return [row for row in rows if row.group == group]


def net_table(rows: Rows) -> list[dict[str, str]]:
    """Engines and baselines, as lines of a table, below the papers' figures; then with AVX2.

    No lines if nothing was measured.
    """
    own = [
        {
            "net": row.net,
            "engine": row.name + f" ({row.settings})" * bool(row.settings),
            "us per image (p20-p80)": format_us(row) if row.images else "",
            "images/s": _number(row.images_a_second, "{:,.0f}"),
            "1e9 updates/s": _number(row.updates_a_second, "{:.3g}", 1e9),
            "speedup over CPU": _number(row.times_cpu, "{:.2f}"),
            "GB/s": _number(row.gb_a_second, "{:,.1f}"),
            "% of copy": _number(row.percent_of_copy),
            "% of read": _number(row.percent_of_read),
            "GFLOP/s": _number(row.tflop_a_second, "{:,.0f}", 1e-3),
            "% of peak": _number(row.percent_of_peak),
            "vectors": _number(row.vectors, "{:.0f} floats"),
            "device": row.ran_on,
        }
        for row in _group(rows, "net") + _group(rows, NARROW)
    ]
    if not own:
        return []
    empty = dict.fromkeys(own[0], "") | {"net": "paper"}
    paper = [
        empty
        | {"engine": year, "1e9 updates/s": f"up to {updates / 1e9:g}"}
        | {"speedup over CPU": f"{speedup}"}
        for year, (updates, speedup) in PAPER.items()
    ]
    return paper + own


def cnn_table(rows: Rows) -> list[dict[str, str]]:
    """Engines and baselines of convolutional nets, as lines of a table."""
    own, lines = _group(rows, "cnn"), []
    for row in own:
        alike = [one for one in own if (one.net, one.ran_on) == (row.net, row.ran_on)]
        us = [one.us for one in alike if one.name.startswith("PyTorch")]
        lines.append(
            {
                "net": CNN_NAMES.get(row.net, row.net),
                "engine": row.name,
                "us per image (p20-p80)": format_us(row) if row.images else "",
                "images/s": _number(row.images_a_second, "{:,.0f}"),
                "speedup over CPU": _number(row.times_cpu, "{:.2f}"),
                "speedup over PyTorch": f"{min(us) / row.us:.2f}" if us and row.images else "",
                "1e9 multiply-adds/s": _number(row.tflop_a_second, "{:,.1f}", 2e-3),
                "% of peak": _number(row.percent_of_peak),
                "device": row.ran_on,
            }
        )
    return lines


def deform_table(rows: Rows) -> list[dict[str, str]]:
    """The deformation and its baselines, as lines of a table, below the papers' figures.

    No lines if nothing was measured.
    """
    own = _group(rows, "deformation")
    recipe_us = next((row.us for row in own if row.name == "scipy recipe"), None)
    paper = [
        {"method": method, "60,000 images (p20-p80)": f"{seconds:g} s"}
        | {"images/s": f"{EPOCH_IMAGES / seconds:,.0f}", "speedup over SciPy recipe": ""}
        | {"device": "the paper"}
        for method, seconds in PAPER_DEFORM_SECONDS.items()
    ]
    ours = []
    for row in own:
        median, low, high = map(format_epoch, (row.us, row.us_p20, row.us_p80))
        line = {"method": row.name, "60,000 images (p20-p80)": f"{median} ({low}-{high})"}
        line["images/s"] = _number(row.images_a_second, "{:,.0f}")
        line["speedup over SciPy recipe"] = f"{recipe_us / row.us:,.1f}" if recipe_us else ""
        ours.append(line | {"device": row.ran_on})
    return paper + ours if ours else []


def kernel_table(
    rows: Rows, nets: Collection[int | str], group: str = "kernel"
) -> list[dict[str, str]]:
    """Kernels of some nets, as lines of a table; one line for both states of the L2 cache."""
    lines: dict[tuple, dict[str, str]] = {}
    for row in _group(rows, group):
        if row.net in map(str, nets):
            line = lines.setdefault((row.net, row.layer, row.name), {})
            line |= {
                "net": row.net,
                "layer": f"{row.layer}: {row.n_in} x {row.n_out}" if row.layer else "",
                "kernel": row.name,
                "MB": _number(row.bytes, "{:.3f}", 1e6),
                "MFLOP": _number(row.flops, "{:.3f}", 1e6),
                "paper GB/s": _number(row.paper_gb_a_second),
                f"{row.state}: us (p20-p80)": format_us(row),
                f"{row.state}: GB/s": _number(row.gb_a_second, "{:,.0f}"),
                f"{row.state}: copy GB/s": _number(row.copy_gb_a_second, "{:,.0f}"),
                f"{row.state}: % of copy": _number(row.percent_of_copy),
                f"{row.state}: GFLOP/s": _number(row.tflop_a_second, "{:,.0f}", 1e-3),
            }
    # A benchmark that was stopped may lack one of the states.
    names = dict.fromkeys(name for line in lines.values() for name in line)
    return [{name: line.get(name, "") for name in names} for line in lines.values()]


def evaluation_table(rows: Rows) -> list[dict[str, str]]:
    """The evaluation of an image on the CPU, or of a batch on a GPU, as lines of a table."""
    return [
        {
            "net": row.net,
            "L2": row.state,
            "us (p20-p80)": format_us(row),
            "images": _number(row.images, "{:,.0f}"),
            "images/s": _number(row.images_a_second, "{:,.0f}"),
            "TFLOP/s": _number(row.tflop_a_second, "{:.2f}"),
            "% of peak": _number(row.percent_of_peak),
            "vectors": _number(row.vectors, "{:.0f} floats"),
            "device": row.ran_on,
        }
        for row in _group(rows, "evaluation")
    ]


# By the name of a part of results/README.md.
BENCH_TABLES: dict[str, tuple[Callable[[Rows], list[dict[str, str]]], ...]] = {
    "bench": (net_table, evaluation_table),
    "cnn-bench": (cnn_table, partial(kernel_table, nets=cnn_tables.PAPER, group="cnn kernel")),
    "deformation": (deform_table,),
    "kernels": (
        partial(kernel_table, nets=(1, 4)),
        partial(kernel_table, nets=(1, 4), group="window kernel"),
    ),
}


def bench_tables(part: str, rows: Rows) -> list[list[dict[str, str]]]:
    """The tables of a benchmark that a part of the pages shows, but for those without lines.

    part: of BENCH_TABLES.
    """
    return [lines for table in BENCH_TABLES[part] if (lines := table(rows))]


def startup_table(rows: Iterable[StartupRow]) -> list[dict[str, str]]:
    """Rows of startup.csv as lines of a table."""
    return [
        {
            "what": row.what,
            "seconds (p20-p80)": f"{row.seconds:.1f} ({row.seconds_p20:.1f}-{row.seconds_p80:.1f})",
            "repeats": str(row.repeats),
        }
        for row in rows
    ]
