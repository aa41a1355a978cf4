"""Rows of bench.csv, made of the times of repeats, and their tables: `make bench`, the README.

A column of a printed table is declared once, with its heading and its meaning, from which
docs/benchmarks.md has its tables of columns.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from experiments.results import cnn_tables
from experiments.results.rows import BenchRow, ScalingRow, StartupRow
from experiments.training.provenance import UNKNOWN, SourceColumns

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
NARROW = "narrow net"  # group of the rows that are measured once more, with narrower vectors

# Of a row that is measured and not yet in a file.
UNRECORDED = SourceColumns(device="unknown", date="2012-12-31", commit=UNKNOWN)

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
    source: SourceColumns = UNRECORDED,
    images: int | None = None,
    bytes: float | None = None,
    flops: float | None = None,
    copy: Ceiling | None = None,
    read: Ceiling | None = None,
    peak: Ceiling | None = None,
    **fields: Any,
) -> BenchRow:
    """A row of bench.csv, of the times of an engine, a baseline, a kernel, a deformation or a copy.

    us: microseconds of each repeat, float64 (repeats,). images, bytes, flops: of one such time.
    copy, read, peak: its ceilings. fields: others of the row.
    """
    low, median, high = np.percentile(us, [20, 50, 80]).tolist()

    def percent(work: float | None, ceiling: Ceiling | None) -> float | None:
        """The rate of work in percent of the ceiling's: the median of the repeats."""
        if not work or ceiling is None:
            return None
        return 100 * work / ceiling.work * float(np.median(ceiling.us / us))

    return BenchRow(
        source=source,
        repeats=len(us),
        us_p20=low,
        us=median,
        us_p80=high,
        images=images,
        images_a_second=1e6 * images / median if images else None,
        bytes=bytes,
        gb_a_second=bytes / median / 1e3 if bytes else None,
        copy_gb_a_second=copy.work / float(np.median(copy.us)) / 1e3 if copy else None,
        percent_of_copy=percent(bytes, copy),
        percent_of_read=percent(bytes, read),
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
        rate = row.images_a_second if row.group in ("net", "cnn", NARROW) else None
        updates = n_weights * rate if rate else None
        about = {"net": str(net), "weights": n_weights, "ran_on": device}
        yield replace(row, updates_a_second=updates, **about)


def with_cpu_times(rows: Sequence[BenchRow]) -> list[BenchRow]:
    """The rows with their speedup over the CPU engine on the same net, where there is one."""
    us = {(row.group, row.net): row.us for row in rows if row.name == "engine cpu"}
    us |= {(NARROW, net): own for (group, net), own in us.items() if group == "net"}
    keys = [(row.group, row.net) for row in rows]
    return [
        replace(row, times_cpu=us[key] / row.us) if row.images and key in us else row
        for row, key in zip(rows, keys, strict=True)
    ]


# --- columns


@dataclass(frozen=True)
class Column:
    """A column of a table. meaning: for docs/benchmarks.md.

    value: the name of a field of `BenchRow`, or a function of a row and all rows of its group.
    form: of a number in multiples of the unit; the cell is empty where the value is None.
    """

    heading: str
    value: str | Callable[[BenchRow, Rows], Any]
    form: str = "{}"
    unit: float = 1
    meaning: str = ""

    def cell(self, row: BenchRow, rows: Rows) -> str:
        value = getattr(row, self.value) if isinstance(self.value, str) else self.value(row, rows)
        if value is None:
            return ""
        return value if isinstance(value, str) else self.form.format(value / self.unit)


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


def _times_torch(row: BenchRow, rows: Rows) -> float | None:
    """Over the fastest of PyTorch's rows on the same net and device."""
    alike = [one for one in rows if (one.net, one.ran_on) == (row.net, row.ran_on)]
    us = [one.us for one in alike if one.name.startswith("PyTorch")]
    return min(us) / row.us if us and row.images else None


def _times_recipe(row: BenchRow, rows: Rows) -> float | None:
    recipe_us = next((other.us for other in rows if other.name == "scipy recipe"), None)
    return recipe_us / row.us if recipe_us else None


def _epoch(row: BenchRow, rows: Rows) -> str:
    return "{} ({}-{})".format(*map(format_epoch, (row.us, row.us_p20, row.us_p80)))


CNN_NAMES = {f"{net}": f"{net}: {paper.name}" for net, paper in cnn_tables.PAPER.items()}
NET, DEVICE = Column("net", "net"), Column("device", "ran_on")
US = Column("us (p20-p80)", lambda row, rows: format_us(row))
US_PER_IMAGE = Column(
    "us per image (p20-p80)",
    lambda row, rows: format_us(row) if row.images else "",
    meaning="microseconds for the forward pass, the backward pass and the update of one image",
)
IMAGES_PER_SECOND = Column("images/s", "images_a_second", "{:,.0f}", 1, "its inverse")
SPEEDUP = Column(
    *("speedup over CPU", "times_cpu", "{:.2f}", 1),
    "over our CPU engine on all threads, on the same net, as the papers' 40 and 50 are over their "
    "CPU program; of a baseline, its speed relative to ours",
)
GFLOPS = Column(
    *("GFLOP/s", "tflop_a_second", "{:,.0f}", 1e-3),
    "multiplications and additions that an image needs, per second: forward, back but for the "
    "first layer, and the update",
)
PERCENT_OF_PEAK = Column(
    *("% of peak", "percent_of_peak", "{:.0f}", 1),
    "GFLOP/s relative to those of multiply-adds on as many threads",
)
VECTORS = Column(
    *("vectors", "vectors", "{:.0f} floats", 1),
    "floats in a vector register of the CPU that our code uses: 16 with AVX-512, 8 with AVX2",
)
PERCENT_OF_COPY = Column(
    *("% of copy", "percent_of_copy", "{:.0f}", 1),
    "GB/s relative to those of a scaled copy on as many threads",
)
NET_COLUMNS = (
    NET,
    Column("engine", lambda row, rows: row.name + f" ({row.settings})" * bool(row.settings)),
    US_PER_IMAGE,
    IMAGES_PER_SECOND,
    Column(
        *("1e9 updates/s", "updates_a_second", "{:.3g}", 1e9),
        "weights of the net times images per second, as the papers count",
    ),
    SPEEDUP,
    Column("GB/s", "gb_a_second", "{:,.1f}", 1, "the bytes that one image must move, per second"),
    PERCENT_OF_COPY,
    Column(
        *("% of read", "percent_of_read", "{:.0f}", 1),
        "GB/s relative to those of a read of memory on as many threads, all that memory allows",
    ),
    GFLOPS,
    PERCENT_OF_PEAK,
    VECTORS,
    DEVICE,
)
CNN_COLUMNS = (
    Column("net", lambda row, rows: CNN_NAMES.get(row.net, row.net)),
    Column("engine", "name"),
    US_PER_IMAGE,
    IMAGES_PER_SECOND,
    SPEEDUP,
    Column(
        *("speedup over PyTorch", _times_torch, "{:.2f}", 1),
        "over the fastest of PyTorch's rows on the same net and device",
    ),
    Column(
        *("1e9 multiply-adds/s", "tflop_a_second", "{:,.1f}", 2e-3),
        "multiply-adds that an image needs, per second: forward, back but for the first layer, and "
        "for the weights; of connections that exist",
    ),
    Column(
        *("% of peak", "percent_of_peak", "{:.0f}", 1),
        "multiply-adds per second relative to a loop of them in registers, timed in turn with it, "
        "in one thread, all that the processor can do",
    ),
    DEVICE,
)
DEFORM_COLUMNS = (
    Column("method", "name"),
    Column("60,000 images (p20-p80)", _epoch),
    IMAGES_PER_SECOND,
    Column("speedup over SciPy recipe", _times_recipe, "{:,.1f}"),
    DEVICE,
)
KERNEL_COLUMNS = (
    NET,
    Column("layer", lambda row, _: f"{row.layer}: {row.n_in} x {row.n_out}" if row.layer else ""),
    Column("kernel", "name"),
    Column("MB", "bytes", "{:.3f}", 1e6),
    Column("MFLOP", "flops", "{:.3f}", 1e6),
    Column("paper GB/s", "paper_gb_a_second", "{:.0f}"),
)
STATE_COLUMNS = (  # of a kernel in one state of the L2 cache
    US,
    Column("GB/s", "gb_a_second", "{:,.0f}"),
    Column("copy GB/s", "copy_gb_a_second", "{:,.0f}"),
    PERCENT_OF_COPY,
    GFLOPS,
)
EVALUATION_COLUMNS = (
    NET,
    Column("L2", "state"),
    US,
    Column("images", "images", "{:,.0f}"),
    IMAGES_PER_SECOND,
    Column("TFLOP/s", "tflop_a_second", "{:.2f}"),
    PERCENT_OF_PEAK,
    VECTORS,
    DEVICE,
)


# --- tables


def meanings(columns: Sequence[Column], known: Sequence[Column] = ()) -> list[dict[str, str]]:
    """The columns that have a meaning, as lines of a table; without those that are known."""
    return [
        {"column": column.heading, "meaning": column.meaning}
        for column in columns
        if column.meaning and column not in known
    ]


def _lines(columns: Sequence[Column], rows: Rows, group: str) -> list[dict[str, str]]:
    """The rows of a group as lines of a table; none if it was not measured."""
    own = [row for row in rows if row.group == group]
    return [{column.heading: column.cell(row, own) for column in columns} for row in own]


def net_table(rows: Rows) -> list[dict[str, str]]:
    """Engines and baselines, as lines of a table, below the papers' figures; then with AVX2."""
    empty = {column.heading: "" for column in NET_COLUMNS} | {"net": "paper"}
    paper = [
        empty
        | {"engine": year, "1e9 updates/s": f"up to {updates / 1e9:g}"}
        | {"speedup over CPU": f"{speedup}"}
        for year, (updates, speedup) in PAPER.items()
    ]
    return paper + _lines(NET_COLUMNS, rows, "net") + _lines(NET_COLUMNS, rows, NARROW)


def deform_table(rows: Rows) -> list[dict[str, str]]:
    """The deformation and its baselines, as lines of a table, below the papers' figures.

    No lines if nothing was measured.
    """
    paper = [
        {"method": method, "60,000 images (p20-p80)": f"{seconds:g} s"}
        | {"images/s": f"{EPOCH_IMAGES / seconds:,.0f}", "speedup over SciPy recipe": ""}
        | {"device": "the paper"}
        for method, seconds in PAPER_DEFORM_SECONDS.items()
    ]
    own = _lines(DEFORM_COLUMNS, rows, "deformation")
    return paper + own if own else []


def kernel_table(
    rows: Rows, nets: Collection[int | str], group: str = "kernel"
) -> list[dict[str, str]]:
    """Kernels of some nets, as lines of a table; one line for both states of the L2 cache."""
    lines: dict[tuple, dict[str, str]] = {}
    for row in rows:
        if row.group == group and row.net in map(str, nets):
            line = lines.setdefault((row.net, row.layer, row.name), {})
            line |= {column.heading: column.cell(row, ()) for column in KERNEL_COLUMNS}
            for column in STATE_COLUMNS:
                line[f"{row.state}: {column.heading}"] = column.cell(row, ())
    return list(lines.values())


cnn_table = partial(_lines, CNN_COLUMNS, group="cnn")
evaluation_table = partial(_lines, EVALUATION_COLUMNS, group="evaluation")  # image or GPU's batch

# By the name of a part of results/README.md; the report has a section for each.
BENCH_TABLES: dict[str, tuple[Callable[[Rows], list[dict[str, str]]], ...]] = {
    "bench": (net_table, evaluation_table),
    "cnn-bench": (cnn_table, partial(kernel_table, nets=cnn_tables.PAPER, group="cnn kernel")),
    "deformation": (deform_table,),
    "kernels": (partial(kernel_table, nets=(1, 4)),),
}


def bench_tables(part: str, rows: Rows) -> list[list[dict[str, str]]]:
    """The tables of a benchmark that a part of the pages shows, but for those without lines.

    part: of BENCH_TABLES.
    """
    return [lines for table in BENCH_TABLES[part] if (lines := table(rows))]


def startup_table(rows: Iterable[StartupRow]) -> list[dict[str, str]]:
    """Rows of startup.csv as lines of a table."""
    return [
        {"what": row.what, "seconds (p20-p80)": _seconds(row), "repeats": str(row.repeats)}
        for row in rows
    ]


def _seconds(row: StartupRow | ScalingRow) -> str:
    return f"{row.seconds:.1f} ({row.seconds_p20:.1f}-{row.seconds_p80:.1f})"


def scaling_table(rows: Sequence[ScalingRow]) -> list[dict[str, str]]:
    """Several workers against one, as lines of a table."""
    return [
        {
            "workers": str(row.workers),
            "trainings": str(row.runs),
            "seconds (p20-p80)": _seconds(row),
            "speedup over one worker": f"{row.speedup:.2f}",
            "start-up, s": f"{row.start_seconds:.1f}",
            "written per training and epoch, MB": f"{row.bytes_an_epoch / 1e6:.1f}",
        }
        for row in rows
    ]
