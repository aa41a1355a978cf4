"""What the measurements of `make bench` come to: rows of bench.csv, tables and a plot of them.

Nothing here measures. The tables take rows as `row` makes them, or as they are in bench.csv, where
all is text.
"""

from collections.abc import Collection

import numpy as np

NOT_MEASURED = "Not measured yet."

# Columns of bench.csv, before those of the provenance. us: microseconds of what the group names:
# `net` and `deformation` an image, `kernel` a launch, `evaluation` a batch; of a copy itself, one.
COLUMNS = (
    "group",
    "net",
    "weights",  # of the net
    "name",
    "layer",  # from 1, with its n_in inputs and n_out neurons
    "n_in",
    "n_out",
    "state",  # of the GPU's L2 cache before the launch: warm or cold
    "ran_on",
    "repeats",
    "us_p20",  # 20th percentile of the repeats
    "us",  # median
    "us_p80",
    "images",  # in that time
    "images_a_second",
    "updates_a_second",  # of weights
    "times_cpu",  # how many times as fast as the CPU engine
    "bytes",  # that must be moved in that time
    "gb_a_second",
    "copy_gb_a_second",  # of the copy beside it
    "percent_of_copy",
    "tflop_a_second",
    "paper_gb_a_second",
)

# Of training: weight updates a second, at most, and times the speed of the paper's CPU.
PAPER = {"2010, GTX 280": (5e9, 40), "2012, GTX 480": (7.5e9, 50)}

# Seconds to deform 60,000 images: on the paper's CPU, and with its GPU for the convolution.
PAPER_DEFORM = {
    "2010, on a CPU": 93,
    "2010, convolution on a GPU": 9,
    "2012, on a CPU": 83,
    "2012, convolution on a GPU": 6.5,
    "2010, the displacement field alone": 3,
    "2012, the displacement field alone": 1.5,
}
EPOCH_IMAGES = 60_000


def row(one: dict) -> dict:
    """A measurement as a row of bench.csv.

    one: some of COLUMNS, but `us` for every repeat, float64 (repeats,), and whatever else there is
    of: copy_us, as `us`, of a copy in turn with it, and copy_bytes, that the copy moved; flops;
    cpu_us, the CPU engine's `us`.
    """
    us = np.median(one["us"])
    found = {name: one.get(name) for name in COLUMNS}
    found["repeats"] = len(one["us"])
    found["us_p20"], found["us"], found["us_p80"] = np.percentile(one["us"], [20, 50, 80])
    if one.get("images"):
        found["images_a_second"] = 1e6 * one["images"] / us
    if "cpu_us" in one:
        found["updates_a_second"] = one["weights"] * found["images_a_second"]
        found["times_cpu"] = np.median(one["cpu_us"]) / us
    if one.get("bytes"):
        found["gb_a_second"] = one["bytes"] / us / 1e3
    if "copy_us" in one:
        found["copy_gb_a_second"] = one["copy_bytes"] / np.median(one["copy_us"]) / 1e3
        share = one["bytes"] / one["copy_bytes"]
        found["percent_of_copy"] = 100 * share * np.median(one["copy_us"] / one["us"])
    if "flops" in one:
        found["tflop_a_second"] = one["flops"] / us / 1e6
    return found


def number(value: float | str | None, form: str, unit: float = 1) -> str:
    """A value of a row for people, in units; nothing where there is none."""
    return "" if value is None or value == "" else form.format(float(value) / unit)


def time_and_spread(one: dict) -> str:
    """Median and percentiles of a row, in microseconds: '12.3 (12.1-12.6)'."""
    median, low, high = (float(one[name]) for name in ("us", "us_p20", "us_p80"))
    form = "{:,.0f}" if median >= 1000 else "{:.1f}" if median >= 100 else "{:.2f}"
    return f"{form.format(median)} ({form.format(low)}-{form.format(high)})"


def net_table(rows: Collection[dict]) -> list[dict[str, str]]:
    """Engines and their peers, as lines of a table, the papers' figures above them."""
    lines = [
        {
            "net": "paper",
            "engine": year,
            "1e9 updates/s": f"up to {updates / 1e9:g}",
            "speedup over CPU": f"{times}",
        }
        for year, (updates, times) in PAPER.items()
    ]
    for one in rows:
        if one["group"] == "net":
            lines.append(
                {
                    "net": str(one["net"]),
                    "engine": one["name"],
                    "us per image (p20-p80)": time_and_spread(one) if one["images"] else "",
                    "images/s": number(one["images_a_second"], "{:,.0f}"),
                    "1e9 updates/s": number(one["updates_a_second"], "{:.3g}", 1e9),
                    "speedup over CPU": number(one["times_cpu"], "{:.2f}"),
                    "GB/s": number(one["gb_a_second"], "{:,.1f}"),
                    "% of copy": number(one["percent_of_copy"], "{:.0f}"),
                    "device": one["ran_on"],
                }
            )
    return [dict.fromkeys(lines[-1], "") | line for line in lines]


def epoch_time(us: float) -> str:
    """How long 60,000 images take, at so many microseconds an image: '1.23 s', '4.56 ms'."""
    seconds = float(us) * EPOCH_IMAGES / 1e6
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"


def deform_table(rows: Collection[dict]) -> list[dict[str, str]]:
    """The deformation and its peers, as lines of a table, the papers' figures above them."""
    found = [one for one in rows if one["group"] == "deformation"]
    lines = [
        {
            "method": what,
            "60,000 images (p20-p80)": f"{seconds:g} s",
            "images/s": f"{EPOCH_IMAGES / seconds:,.0f}",
            "device": "the paper",
        }
        for what, seconds in PAPER_DEFORM.items()
    ]
    recipe = next((float(one["us"]) for one in found if one["name"] == "scipy recipe"), None)
    for one in found:
        median, low, high = (epoch_time(one[name]) for name in ("us", "us_p20", "us_p80"))
        times = recipe and recipe / float(one["us"])
        lines.append(
            {
                "method": one["name"],
                "60,000 images (p20-p80)": f"{median} ({low}-{high})",
                "images/s": number(one["images_a_second"], "{:,.0f}"),
                "speedup over SciPy recipe": number(times, "{:,.1f}"),
                "device": one["ran_on"],
            }
        )
    blank = dict.fromkeys(("method", "60,000 images (p20-p80)", "images/s"), "")
    blank |= {"speedup over SciPy recipe": "", "device": ""}
    return [blank | line for line in lines]


def kernel_table(rows: Collection[dict], nets: Collection[int]) -> list[dict[str, str]]:
    """Kernels of some nets, as lines of a table; one line for both states of the L2 cache."""
    lines: dict[tuple, dict[str, str]] = {}
    for one in rows:
        if one["group"] == "kernel" and int(one["net"]) in nets:
            state = one["state"]
            line = lines.setdefault((one["net"], one["layer"], one["name"]), {})
            line |= {
                "net": str(one["net"]),
                "layer": f"{one['layer']}: {one['n_in']} x {one['n_out']}" if one["layer"] else "",
                "kernel": one["name"],
                "MB": number(one["bytes"], "{:.3f}", 1e6),
                "paper GB/s": number(one["paper_gb_a_second"], "{:.0f}"),
                f"{state}: us (p20-p80)": time_and_spread(one),
                f"{state}: GB/s": number(one["gb_a_second"], "{:,.0f}"),
                f"{state}: copy GB/s": number(one["copy_gb_a_second"], "{:,.0f}"),
                f"{state}: % of copy": number(one["percent_of_copy"], "{:.0f}"),
            }
    return list(lines.values())


def evaluation_table(rows: Collection[dict]) -> list[dict[str, str]]:
    """The evaluation of all nets on a GPU, as lines of a table."""
    return [
        {
            "net": str(one["net"]),
            "L2": one["state"],
            "us per batch (p20-p80)": time_and_spread(one),
            "images": number(one["images"], "{:,.0f}"),
            "images/s": number(one["images_a_second"], "{:,.0f}"),
            "TFLOP/s": number(one["tflop_a_second"], "{:.2f}"),
        }
        for one in rows
        if one["group"] == "evaluation"
    ]


def on_gpu(rows: list[dict]) -> bool:
    """Whether a benchmark measured a GPU."""
    return any(row["group"] == "kernel" for row in rows)


def bench_source(rows: list[dict]) -> str:
    """Where a benchmark comes from, in a line."""
    first = rows[0]
    driver = f"driver {first['driver']}; " if first["driver"] else ""
    return (
        f"{first['device']}; {driver}{first['versions'].replace('=', ' ')}; {first['date']}; "
        f"commit {first['commit'][:12]}; medians of {first['repeats']} repeats:"
    )
