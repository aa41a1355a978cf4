"""The ladder's records as tables, the blog beside ours."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.datasets.dataset import is_mnist
from experiments.results.records import (
    AccuracyRow,
    LadderRecord,
    ProgramTime,
    RungKernel,
    SearchRow,
)
from experiments.results.tables import interval
from experiments.training.formatting import markdown_table

# Of the blog: milliseconds of an epoch, on a GPU that it does not name, and percent correct after
# it. It prints no time and no result for rung 6 and 7, and no accuracy for rung 1.
BLOG_MS = {
    "naive": 5989.67,
    "tiled": 3167.28,
    "coalesced": 2956.39,
    "shared": 2947.14,
    "streams": 2998.79,
}
GPU = ", GPU"  # the end of names of what others' programs do on a GPU
RUNG_NAMES = (*BLOG_MS, "graph", "one kernel")
BLOG_CORRECT = {1: 94.16, 2: 95.1}  # percent, by epochs
BLOG_IMAGES = 60_000
SECTOR = 32  # bytes that are moved together, as in cuda_on_cpu, which imports Numba


def accuracy_table(rows: Sequence[AccuracyRow]) -> list[dict[str, str]]:
    """A line for each seed and epoch. rows: those of a record's `accuracy`."""
    lines = []
    for row in rows:
        low, high = interval(row.n_test - row.wrong, row.n_test)
        line = {"seed": str(row.seed), "epochs": str(row.epoch)}
        if is_mnist(row.data):
            blog = BLOG_CORRECT.get(row.epoch)
            line["blog, correct %"] = f"{blog:.2f}" if blog else "-"
        line |= {
            "correct %": f"{100 * (1 - row.wrong / row.n_test):.2f}",
            "95 % interval": f"{low:.2f}-{high:.2f}",
            "wrong": f"{row.wrong} of {row.n_test:,}",
        }
        lines.append(line)
    return lines


def search_table(rows: Sequence[SearchRow]) -> list[dict[str, str]]:
    """A line for each learning rate and momentum that were tried."""
    return [
        {
            "eta": f"{row.eta:g}",
            "momentum": f"{row.momentum:g}",
            "epochs x images": f"{row.epochs} x {row.n_train:,}",
            "correct of those held out %": f"{100 * (1 - row.wrong / row.n_apart):.2f}",
        }
        for row in rows
    ]


def kernel_table(rows: Sequence[RungKernel], rung: str | None = None) -> list[dict[str, str]]:
    """A line for each kernel of each rung, or of one: per image, as executed and compiled."""
    lines = []
    for row in rows:
        if rung not in (None, row.rung):
            continue
        line = {} if rung else {"rung": row.rung}
        line |= {
            "kernel": row.kernel,
            "blocks x threads": f"{row.blocks} x {row.threads}",
            "requested, read + written kB": _kilobytes(row.read_bytes, row.write_bytes),
            "transferred, read + written kB": _kilobytes(
                SECTOR * row.read_segments, SECTOR * row.write_segments
            ),
            "shared: accesses, passes": f"{row.shared_accesses:,}, {row.shared_passes:,}",
            "flops": f"{row.flops:,}",
            "warps of 64": str(row.warps),
            "registers": str(row.registers),
            "spill bytes": str(row.spill_bytes),
        }
        lines.append(line)
    return lines


def _kilobytes(read: int, written: int) -> str:
    return f"{read / 1e3:,.1f} + {written / 1e3:,.1f}"


def rung_table(kernels: Sequence[RungKernel], times: Sequence[ProgramTime]) -> list[dict[str, str]]:
    """A line for each rung: launches, memory transferred, and times where they were measured."""
    timed = {row.name: row for row in times}
    lines = []
    for rung in dict.fromkeys(row.rung for row in kernels):
        own = [row for row in kernels if row.rung == rung]
        transferred = sum(row.read_segments + row.write_segments for row in own) * SECTOR
        blog, images = BLOG_MS.get(rung), own[0].images_a_launch
        us = np.median(timed[rung].us) if rung in timed else None
        lines.append(
            {
                "rung": rung,
                "launches": f"{len(own)} an image" if images == 1 else f"1 for {images:,} images",
                "transferred kB an image": f"{transferred / 1e3:,.0f}",
                "distance from the CPU engine": f"{max(row.distance for row in own):.1g}",
                "blog, us an image": f"{1e3 * blog / BLOG_IMAGES:.1f}" if blog else "-",
                "us an image": f"{us:.1f}" if us else "not measured yet",
                "share of launches %": _launch_share(timed[rung]) if us else "",
                "share of a copy's rate %": _copy_share(timed, us) if us else "",
            }
        )
    return lines


def time_sentence(row: ProgramTime) -> str:
    """The time of a rung, as a record has it, without a full stop."""
    text = f"{np.median(row.us):.1f} microseconds an image"
    share = _launch_share(row)
    return f"{text}, {share} % of them launches and waiting" if share else text


def _copy_share(timed: Mapping[str, ProgramTime], us: float) -> str:
    """The time of a copy of all bytes that a step reads and writes, in percent of `us`."""
    copies = [np.median(row.us) for name, row in timed.items() if name.startswith("copy ")]
    return f"{100 * copies[0] / us:.0f}" if copies else ""


def _launch_share(row: ProgramTime) -> str:
    """The share of a rung's time outside its kernels, in percent; empty if unknown."""
    if not row.work_us:
        return ""
    return f"{max(0, 100 * (1 - np.median(row.work_us) / np.median(row.us))):.0f}"


def tables(record: LadderRecord) -> list[str]:
    """Everything that a record holds, as Markdown tables."""
    others = [row for row in record.times if row.name not in RUNG_NAMES]
    found = (
        accuracy_table(record.accuracy),
        search_table(record.search),
        rung_table(record.kernels, record.times),
        kernel_table(record.kernels),
        program_table([row for row in others if row.name.endswith(GPU)]),
        program_table([row for row in others if not row.name.endswith(GPU)]),
    )
    return [markdown_table(rows) for rows in found if rows]


def program_table(own: Sequence[ProgramTime]) -> list[dict[str, str]]:
    """A line for each program, all on the same processor."""
    fastest = min((float(np.median(row.us)) for row in own), default=0.0)
    return [
        {
            "program": row.name,
            "us an image": f"{np.median(row.us):,.1f}",
            "20-80 % of repeats": "-".join(f"{us:,.1f}" for us in np.percentile(row.us, (20, 80))),
            "times the fastest": f"{np.median(row.us) / fastest:,.1f}",
            "two epochs of 60,000, minutes": f"{2 * BLOG_IMAGES * np.median(row.us) / 6e7:.2f}",
            "images timed": f"{row.n_images * len(row.us):,}",
        }
        for row in own
    ]
