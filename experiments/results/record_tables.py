"""Records that stand alone as Markdown: blocks, checks of a GPU, a campaign, digits drawn anew."""

import textwrap
from collections.abc import Sequence

from experiments.results.records import (
    ENGINE,
    PLAIN,
    WINDOWS,
    BlockRecord,
    CampaignPart,
    GpuCheckRecord,
    RedrawnRecord,
)
from experiments.results.tables import source_line
from experiments.training import provenance
from experiments.training.formatting import duration, markdown_table
from mlp_gpu.network import NETS

NOT_RECORDED = "not recorded"


def net_name(sizes: Sequence[int]) -> str:
    """What a net is called: its number in Table 1, or its layers."""
    numbers = [number for number, own in NETS.items() if own == tuple(sizes)]
    return f"net {numbers[0]}" if numbers else "-".join(map(str, sizes))


def block_table(record: BlockRecord) -> str:
    """The record of training in blocks: distances from float64, and sweeps."""
    lines = []
    for row in record.rows:
        trained_on = row.trained_on
        line = {
            "net": net_name(row.sizes),
            "trained before on": f"{trained_on:,} images" if trained_on else "nothing",
            "eta": f"{row.eta:g}",
            "steps": str(row.steps),
        }
        line |= {name: f"{row.distances[name]:.1e}" for name in (PLAIN, ENGINE, *WINDOWS)}
        sweeps = " / ".join(f"{row.sweeps_per_image[name]:.1f}" for name in WINDOWS)
        lines.append(line | {"sweeps of the two windows": sweeps})
    source = source_line(record.provenance.columns())
    heading = f"{record.data}, deformed, seed {record.seed}; {source}:"
    return f"{heading}\n\n{markdown_table(lines)}"


def gpu_check_table(record: GpuCheckRecord) -> str:
    """The results of `make gpu-check` on a GPU."""
    rows = [
        {
            "check": row.check,
            "passed": "yes" if row.passed else "no",
            "result": textwrap.shorten(row.result, 200),
            "time": duration(row.seconds),
            "date": row.date[:10] or NOT_RECORDED,
            "commit": provenance.commit_text(row.commit).removeprefix("commit ") or NOT_RECORDED,
        }
        for row in record.checks
    ]
    where = source_line(record.provenance.columns(), exact=True)
    return f"Provenance of the last command: {where}.\n\n{markdown_table(rows)}"


def campaign_table(rows: Sequence[CampaignPart]) -> str:
    """The rows of a campaign's record as Markdown."""
    cells = [
        {
            "part": row.part,
            "what must hold": row.claim,
            "tried": f"{row.tries:,} {row.unit}",
            "goal": f"{row.goal:,}",
            "failed trials": str(row.failures),
            "time": duration(row.seconds),
            "seed": str(row.seed),
            "date": row.provenance.columns().date[:10],
            "commit": ", ".join(dict.fromkeys(one.commit[:7] for one in row.sources)),
        }
        for row in rows
    ]
    devices = sorted({one.device for row in rows for one in row.sources})
    return f"{markdown_table(cells)}\n\n{'; '.join(devices)}."


def redrawn_table(record: RedrawnRecord) -> str:
    """The record of 'recognise --redrawn' as Markdown, with its source."""
    n = record.n
    lines = [
        {
            "digits": row.way,
            "wrong": f"{row.wrong} of {n:,}",
            "%": f"{100 * row.wrong / n:.2f}",
            "of these, no digit found": str(row.not_found),
        }
        for row in record.rows
    ]
    heading = f"{record.net}; {n:,} test digits, drawn with seed {record.seed}; "
    heading += source_line(record.provenance.columns())
    return f"{heading}:\n\n{markdown_table(lines)}"
