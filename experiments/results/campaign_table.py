"""The record of the campaign as Markdown."""

from collections.abc import Sequence

from experiments.results.records import CampaignPart
from experiments.training.formatting import duration, markdown_table


def table(rows: Sequence[CampaignPart]) -> str:
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
            "date": row.provenance.columns()["date"][:10],
            "commit": ", ".join(dict.fromkeys(one.commit[:7] for one in row.sources)),
        }
        for row in rows
    ]
    devices = sorted({one.device for row in rows for one in row.sources})
    return f"{markdown_table(cells)}\n\n{'; '.join(devices)}.\n"
