"""Measurements as rows of bench.csv, and such rows as the tables of `make bench` and the README.

A column of a printed table is declared once, with its heading and its meaning, from which
docs/benchmarks.md has its tables of columns.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.scoring import cnn_tables
from experiments.scoring.rows import BenchRow, SourceColumns
from experiments.timing.measurement import Ceiling, Measurement

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

Line = dict[str, str]  # of a table: cells by their headings
Rows = Collection[BenchRow]


def bench_row(measured: Measurement, source: SourceColumns) -> BenchRow:
    """A measurement as a row of bench.csv."""
    us, n_images, n_bytes, flops = measured.us, measured.n_images, measured.n_bytes, measured.flops
    low, median, high = map(float, np.percentile(us, [20, 50, 80]))
    rate = 1e6 * n_images / median if n_images else None
    weights = measured.n_weights if measured.group in ("net", "cnn") else None
    cpu_us, copy = measured.cpu_engine_us, measured.copy

    def percent(work: float | None, ceiling: Ceiling | None) -> float | None:
        """The rate of work in percent of the ceiling's: the median of the repeats."""
        if not work or ceiling is None:
            return None
        return 100 * work / ceiling.work * float(np.median(ceiling.us / us))

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
        copy_gb_a_second=copy.work / float(np.median(copy.us)) / 1e3 if copy else None,
        percent_of_copy=percent(n_bytes, copy),
        percent_of_read=percent(n_bytes, measured.read),
        tflop_a_second=flops / median / 1e6 if flops else None,
        paper_gb_a_second=measured.paper_gb_per_second,
        flops=flops,
        percent_of_peak=percent(flops, measured.peak),
        source=source,
    )


# --- columns


@dataclass(frozen=True)
class Column:
    """A column of a table. cell: of a row and all rows of its group. meaning: for docs/."""

    heading: str
    cell: Callable[[BenchRow, Rows], str]
    meaning: str = ""


def text(heading: str, field: str) -> Column:
    """The column of a field with text."""
    return Column(heading, lambda row, rows: getattr(row, field))


def number(heading: str, field: str, form: str, unit: float = 1, meaning: str = "") -> Column:
    """The column of a field with numbers, in multiples of a unit; empty where the field is."""

    def cell(row: BenchRow, rows: Rows) -> str:
        value = getattr(row, field)
        return "" if value is None else form.format(value / unit)

    return Column(heading, cell, meaning)


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


def fastest_torch(rows: Iterable[BenchRow], net: str, ran_on: str) -> float | None:
    """Microseconds per image of PyTorch's fastest eager row on a net and a device; None if none."""
    us = [
        row.us
        for row in rows
        if (row.group, row.net, row.ran_on) == ("cnn", net, ran_on)
        and row.name.startswith("PyTorch eager")
    ]
    return min(us, default=None)


def _engine(row: BenchRow, rows: Rows) -> str:
    return row.name + (f" ({row.settings})" if row.settings else "")


def _us_per_image(row: BenchRow, rows: Rows) -> str:
    return format_us(row) if row.images else ""


def _times_torch(row: BenchRow, rows: Rows) -> str:
    torch_us = fastest_torch(rows, row.net, row.ran_on)
    return f"{torch_us / row.us:.2f}" if torch_us and row.images else ""


def _times_recipe(row: BenchRow, rows: Rows) -> str:
    recipe_us = next((other.us for other in rows if other.name == "scipy recipe"), None)
    return f"{recipe_us / row.us:,.1f}" if recipe_us else ""


def _epoch(row: BenchRow, rows: Rows) -> str:
    return "{} ({}-{})".format(*map(format_epoch, (row.us, row.us_p20, row.us_p80)))


def _cnn_net(row: BenchRow, rows: Rows) -> str:
    return f"{row.net}: {cnn_tables.PAPER[int(row.net)].name}"


def _layer(row: BenchRow, rows: Rows) -> str:
    return f"{row.layer}: {row.n_in} x {row.n_out}" if row.layer else ""


NET, DEVICE = text("net", "net"), text("device", "ran_on")
US = Column("us (p20-p80)", lambda row, rows: format_us(row))
US_PER_IMAGE = Column(
    "us per image (p20-p80)",
    _us_per_image,
    "microseconds for the forward pass, the backward pass and the update of one image",
)
IMAGES_PER_SECOND = number("images/s", "images_a_second", "{:,.0f}", 1, "its inverse")
SPEEDUP = number(
    *("speedup over CPU", "times_cpu", "{:.2f}", 1),
    "over our CPU engine on all threads, on the same net, as the papers' 40 and 50 are over their "
    "CPU program; of a baseline, its speed relative to ours",
)
GFLOPS = number(
    *("GFLOP/s", "tflop_a_second", "{:,.0f}", 1e-3),
    "multiplications and additions that an image needs, per second: forward, back but for the "
    "first layer, and the update",
)
PERCENT_OF_PEAK = number(
    *("% of peak", "percent_of_peak", "{:.0f}", 1),
    "GFLOP/s relative to those of multiply-adds on as many threads",
)
NET_COLUMNS = (
    NET,
    Column("engine", _engine),
    US_PER_IMAGE,
    IMAGES_PER_SECOND,
    number(
        *("1e9 updates/s", "updates_a_second", "{:.3g}", 1e9),
        "weights of the net times images per second, as the papers count",
    ),
    SPEEDUP,
    number("GB/s", "gb_a_second", "{:,.1f}", 1, "the bytes that one image must move, per second"),
    number(
        *("% of copy", "percent_of_copy", "{:.0f}", 1),
        "GB/s relative to those of a scaled copy on as many threads",
    ),
    number(
        *("% of read", "percent_of_read", "{:.0f}", 1),
        "GB/s relative to those of a read of memory on as many threads, which is all that memory "
        "allows",
    ),
    GFLOPS,
    PERCENT_OF_PEAK,
    DEVICE,
)
CNN_COLUMNS = (
    Column("net", _cnn_net),
    text("engine", "name"),
    US_PER_IMAGE,
    IMAGES_PER_SECOND,
    SPEEDUP,
    Column(
        "speedup over PyTorch",
        _times_torch,
        "over the fastest of PyTorch's eager rows on the same net and device",
    ),
    number(
        *("1e9 multiply-adds/s", "tflop_a_second", "{:,.1f}", 2e-3),
        "multiply-adds that an image needs, per second: forward, back but for the first layer, and "
        "for the weights; of connections that exist",
    ),
    number(
        *("% of peak", "percent_of_peak", "{:.0f}", 1),
        "multiply-adds per second relative to a loop of them in registers, timed in turn with it, "
        "in one thread, which is all that the processor can do",
    ),
    DEVICE,
)
DEFORM_COLUMNS = (
    text("method", "name"),
    Column("60,000 images (p20-p80)", _epoch),
    IMAGES_PER_SECOND,
    Column("speedup over SciPy recipe", _times_recipe),
    DEVICE,
)
KERNEL_COLUMNS = (
    NET,
    Column("layer", _layer),
    text("kernel", "name"),
    number("MB", "bytes", "{:.3f}", 1e6),
    number("MFLOP", "flops", "{:.3f}", 1e6),
    number("paper GB/s", "paper_gb_a_second", "{:.0f}"),
)
STATE_COLUMNS = (  # of a kernel in one state of the L2 cache
    US,
    number("GB/s", "gb_a_second", "{:,.0f}"),
    number("copy GB/s", "copy_gb_a_second", "{:,.0f}"),
    number("% of copy", "percent_of_copy", "{:.0f}"),
    GFLOPS,
)
EVALUATION_COLUMNS = (
    NET,
    text("L2", "state"),
    US,
    number("images", "images", "{:,.0f}"),
    IMAGES_PER_SECOND,
    number("TFLOP/s", "tflop_a_second", "{:.2f}"),
    PERCENT_OF_PEAK,
    DEVICE,
)


# --- tables


def meanings(columns: Sequence[Column], known: Sequence[Column] = ()) -> list[Line]:
    """The columns that have a meaning, as lines of a table; without those that are known."""
    return [
        {"column": column.heading, "meaning": column.meaning}
        for column in columns
        if column.meaning and column not in known
    ]


def _lines(columns: Sequence[Column], rows: Rows, group: str) -> list[Line]:
    own = [row for row in rows if row.group == group]
    return [{column.heading: column.cell(row, own) for column in columns} for row in own]


def net_table(rows: Rows) -> list[Line]:
    """Engines and baselines, as lines of a table, below the papers' figures."""
    empty = {column.heading: "" for column in NET_COLUMNS}
    paper = [
        {"net": "paper", "engine": year, "1e9 updates/s": f"up to {updates / 1e9:g}"}
        | {"speedup over CPU": f"{speedup}"}
        for year, (updates, speedup) in PAPER.items()
    ]
    return [*(empty | line for line in paper), *_lines(NET_COLUMNS, rows, "net")]


def deform_table(rows: Rows) -> list[Line]:
    """The deformation and its baselines, as lines of a table, below the papers' figures."""
    paper = [
        {"method": method, "60,000 images (p20-p80)": f"{seconds:g} s"}
        | {"images/s": f"{EPOCH_IMAGES / seconds:,.0f}", "speedup over SciPy recipe": ""}
        | {"device": "the paper"}
        for method, seconds in PAPER_DEFORM_SECONDS.items()
    ]
    return paper + _lines(DEFORM_COLUMNS, rows, "deformation")


def cnn_table(rows: Rows) -> list[Line]:
    """Engines for convolutional nets and baselines, as lines of a table; none if not measured."""
    return _lines(CNN_COLUMNS, rows, "cnn")


def evaluation_table(rows: Rows) -> list[Line]:
    """The evaluation of all nets, as lines of a table: an image on a CPU, a batch on a GPU."""
    return _lines(EVALUATION_COLUMNS, rows, "evaluation")


def kernel_table(rows: Rows, nets: Collection[int | str], group: str = "kernel") -> list[Line]:
    """Kernels of some nets, as lines of a table; one line for both states of the L2 cache."""
    lines: dict[tuple, Line] = {}
    for row in rows:
        if row.group == group and row.net in map(str, nets):
            line = lines.setdefault((row.net, row.layer, row.name), {})
            line |= {column.heading: column.cell(row, ()) for column in KERNEL_COLUMNS}
            for column in STATE_COLUMNS:
                line[f"{row.state}: {column.heading}"] = column.cell(row, ())
    return list(lines.values())


def on_gpu(rows: Rows) -> bool:
    """Whether these rows are of a benchmark that measured a GPU."""
    return any(row.group == "kernel" for row in rows)
