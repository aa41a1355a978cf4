"""Measurements as rows of bench.csv, and such rows as the tables of `make bench` and the README.

The tables take rows as `row` makes them, or as bench.csv gives them back, where all is text.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial

import numpy as np

from experiments.scoring import cnn_tables
from experiments.timing.measurement import Measurement

NOT_MEASURED = "Not measured yet."

# Columns of bench.csv, before those of the provenance. Times are in microseconds: per image in the
# groups `net`, `cnn` and `deformation`, per launch in `kernel` and `cnn kernel`, per batch in
# `evaluation` or, on a CPU, per image; copies, reads, multiply-adds and the kernel have that of a
# call.
# "In that time": in the median. Nets are of Table 1 of 2010, or named by their sizes; of 2011 in
# `cnn` and `cnn kernel`. Older records lack `settings` and `percent_of_read`: there the CPU engine
# has one thread, and peers are not at their best. Others lack `percent_of_peak`.
COLUMNS = (
    "group",
    "net",
    "weights",  # of the net
    "name",
    "settings",  # those that a peer is fastest with
    "layer",  # from 1, with its n_in inputs and n_out neurons
    "n_in",
    "n_out",
    "state",  # of the GPU's L2 cache before the launch: warm or cold
    "ran_on",
    "repeats",
    "us_p20",  # 20th percentile of the repeats
    "us",  # median
    "us_p80",
    "images",  # trained, deformed or evaluated in that time
    "images_a_second",
    "updates_a_second",  # of weights
    "times_cpu",  # speedup over the CPU engine
    "bytes",  # that must be moved in that time
    "gb_a_second",
    "copy_gb_a_second",  # of the copy measured in turn with it
    "percent_of_copy",
    "percent_of_read",  # of memory, measured in turn with it
    "tflop_a_second",
    "paper_gb_a_second",
    "flops",  # floating-point operations in that time
    "percent_of_peak",  # of the multiply-adds measured in turn with it
)

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


def row(measured: Measurement) -> dict:
    """A measurement as a row of bench.csv; None where a column does not apply."""
    us = np.median(measured.us)
    low, median, high = np.percentile(measured.us, [20, 50, 80])
    found = dict.fromkeys(COLUMNS) | {
        "group": measured.group,
        "net": measured.net,
        "weights": measured.n_weights,
        "name": measured.name,
        "settings": measured.settings,
        "layer": measured.layer,
        "n_in": measured.n_in,
        "n_out": measured.n_out,
        "state": measured.state,
        "ran_on": measured.ran_on,
        "repeats": len(measured.us),
        "us_p20": low,
        "us": median,
        "us_p80": high,
        "images": measured.n_images,
        "bytes": measured.n_bytes,
        "paper_gb_a_second": measured.paper_gb_per_second,
        "flops": measured.flops,
    }
    if measured.n_images:
        images_per_second = 1e6 * measured.n_images / us
        found["images_a_second"] = images_per_second
        if measured.n_weights and measured.group in ("net", "cnn"):
            found["updates_a_second"] = measured.n_weights * images_per_second
        if measured.cpu_engine_us is not None:
            found["times_cpu"] = np.median(measured.cpu_engine_us) / us
    if measured.n_bytes:
        found["gb_a_second"] = measured.n_bytes / us / 1e3
        if copy := measured.copy:
            found["copy_gb_a_second"] = copy.n_bytes / np.median(copy.us) / 1e3
            share = measured.n_bytes / copy.n_bytes
            found["percent_of_copy"] = 100 * share * np.median(copy.us / measured.us)
        if read := measured.read:
            share = measured.n_bytes / read.n_bytes
            found["percent_of_read"] = 100 * share * np.median(read.us / measured.us)
    if measured.flops:
        found["tflop_a_second"] = measured.flops / us / 1e6
        if peak := measured.peak:
            share = measured.flops / peak.flops
            found["percent_of_peak"] = 100 * share * np.median(peak.us / measured.us)
    return found


def net_title(net: int | str) -> str:
    """What a net is called in sentences: 'net 1', or its sizes."""
    return f"net {net}" if str(net).isdigit() else str(net)


def format_number(value: float | str | None, form: str, unit: float = 1) -> str:
    """A cell of a row in multiples of the unit; nothing if the cell is empty."""
    return "" if value is None or value == "" else form.format(float(value) / unit)


def format_us(row: dict) -> str:
    """Median and percentiles of a row, microseconds: '12.3 (12.1-12.6)'."""
    median, low, high = (float(row[name]) for name in ("us", "us_p20", "us_p80"))
    form = "{:,.0f}" if median >= 1000 else "{:.1f}" if median >= 100 else "{:.2f}"
    return f"{form.format(median)} ({form.format(low)}-{form.format(high)})"


def format_epoch(us_per_image: float | str) -> str:
    """How long 60,000 images take: '1.23 s', '4.56 ms'."""
    seconds = float(us_per_image) * EPOCH_IMAGES / 1e6
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"


def net_table(rows: Collection[dict]) -> list[dict[str, str]]:
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
            "net": str(row["net"]),
            "engine": row["name"] + (f" ({row['settings']})" if row.get("settings") else ""),
            "us per image (p20-p80)": format_us(row) if row["images"] else "",
            "images/s": format_number(row["images_a_second"], "{:,.0f}"),
            "1e9 updates/s": format_number(row["updates_a_second"], "{:.3g}", 1e9),
            "speedup over CPU": format_number(row["times_cpu"], "{:.2f}"),
            "GB/s": format_number(row["gb_a_second"], "{:,.1f}"),
            "% of copy": format_number(row["percent_of_copy"], "{:.0f}"),
            "% of read": format_number(row.get("percent_of_read"), "{:.0f}"),
            "GFLOP/s": format_number(row["tflop_a_second"], "{:,.0f}", 1e-3),
            "% of peak": format_number(row.get("percent_of_peak"), "{:.0f}"),
            "device": row["ran_on"],
        }
        for row in rows
        if row["group"] == "net"
    ]
    return [dict.fromkeys(lines[-1], "") | line for line in lines]


def deform_table(rows: Collection[dict]) -> list[dict[str, str]]:
    """The deformation and its peers, as lines of a table, below the papers' figures."""
    measured = [row for row in rows if row["group"] == "deformation"]
    recipe_us = next((float(row["us"]) for row in measured if row["name"] == "scipy recipe"), None)
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
        median, low, high = (format_epoch(row[name]) for name in ("us", "us_p20", "us_p80"))
        speedup = recipe_us and recipe_us / float(row["us"])
        lines.append(
            {
                "method": row["name"],
                "60,000 images (p20-p80)": f"{median} ({low}-{high})",
                "images/s": format_number(row["images_a_second"], "{:,.0f}"),
                "speedup over SciPy recipe": format_number(speedup, "{:,.1f}"),
                "device": row["ran_on"],
            }
        )
    return lines


def cnn_table(rows: Collection[dict]) -> list[dict[str, str]]:
    """Engines for convolutional nets and their peers, as lines of a table; none if not measured.

    The speedup over PyTorch is that over its fastest eager row on the same net and device.
    """
    measured = [row for row in rows if row["group"] == "cnn"]
    lines = []
    for row in measured:
        torch_us = fastest_torch(measured, row["net"], row["ran_on"])
        speedup = torch_us / float(row["us"]) if torch_us and row["images"] else None
        lines.append(
            {
                "net": f"{row['net']}: {cnn_tables.PAPER[int(row['net'])].name}",
                "engine": row["name"],
                "us per image (p20-p80)": format_us(row) if row["images"] else "",
                "images/s": format_number(row["images_a_second"], "{:,.0f}"),
                "speedup over CPU": format_number(row["times_cpu"], "{:.2f}"),
                "speedup over PyTorch": format_number(speedup, "{:.2f}"),
                "1e9 multiply-adds/s": format_number(row["tflop_a_second"], "{:,.1f}", 2e-3),
                "% of peak": format_number(row.get("percent_of_peak"), "{:.0f}"),
                "device": row["ran_on"],
            }
        )
    return lines


def fastest_torch(rows: Iterable[Mapping], net: str | int, ran_on: str) -> float | None:
    """Microseconds per image of PyTorch's fastest eager row on a net and a device; None if none."""
    us = [
        float(row["us"])
        for row in rows
        if (row["group"], row["net"], row["ran_on"]) == ("cnn", net, ran_on)
        and row["name"].startswith("PyTorch eager")
    ]
    return min(us, default=None)


def kernel_table(
    rows: Collection[dict], nets: Collection[int | str], group: str = "kernel"
) -> list[dict[str, str]]:
    """Kernels of some nets, as lines of a table; one line for both states of the L2 cache."""
    lines: dict[tuple, dict[str, str]] = {}
    for row in rows:
        if row["group"] == group and str(row["net"]) in map(str, nets):
            state = row["state"]
            line = lines.setdefault((row["net"], row["layer"], row["name"]), {})
            line |= {
                "net": str(row["net"]),
                "layer": f"{row['layer']}: {row['n_in']} x {row['n_out']}" if row["layer"] else "",
                "kernel": row["name"],
                "MB": format_number(row["bytes"], "{:.3f}", 1e6),
                "MFLOP": format_number(row["flops"], "{:.3f}", 1e6),
                "paper GB/s": format_number(row["paper_gb_a_second"], "{:.0f}"),
                f"{state}: us (p20-p80)": format_us(row),
                f"{state}: GB/s": format_number(row["gb_a_second"], "{:,.0f}"),
                f"{state}: copy GB/s": format_number(row["copy_gb_a_second"], "{:,.0f}"),
                f"{state}: % of copy": format_number(row["percent_of_copy"], "{:.0f}"),
                f"{state}: GFLOP/s": format_number(row["tflop_a_second"], "{:,.0f}", 1e-3),
            }
    return list(lines.values())


def evaluation_table(rows: Collection[dict]) -> list[dict[str, str]]:
    """The evaluation of all nets, as lines of a table: an image on a CPU, a batch on a GPU."""
    return [
        {
            "net": str(row["net"]),
            "L2": row["state"] or "",
            "us (p20-p80)": format_us(row),
            "images": format_number(row["images"], "{:,.0f}"),
            "images/s": format_number(row["images_a_second"], "{:,.0f}"),
            "TFLOP/s": format_number(row["tflop_a_second"], "{:.2f}"),
            "% of peak": format_number(row.get("percent_of_peak"), "{:.0f}"),
            "device": row["ran_on"] or "",
        }
        for row in rows
        if row["group"] == "evaluation"
    ]


def on_gpu(rows: list[dict]) -> bool:
    """Whether these rows are of a benchmark that measured a GPU."""
    return any(row["group"] == "kernel" for row in rows)


def bench_source(rows: list[dict]) -> str:
    """Where and when a benchmark was run, in one line that ends with a colon."""
    first = rows[0]
    driver = f"driver {first['driver']}; " if first["driver"] else ""
    return (
        f"{first['device']}; {driver}{first['versions'].replace('=', ' ')}; {first['date']}; "
        f"commit {first['commit'][:12]}; medians of {first['repeats']} repeats:"
    )


# What is made of a benchmark; one of which it cannot be made is damaged.
BENCH_USES = (
    bench_source,
    net_table,
    deform_table,
    cnn_table,
    partial(kernel_table, nets=(1, 4)),
    partial(kernel_table, nets=cnn_tables.PAPER, group="cnn kernel"),
    evaluation_table,
)
