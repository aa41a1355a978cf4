"""The campaign's record, and its table."""

from collections.abc import Sequence
from pathlib import Path

from experiments.running.formatting import duration, markdown_table
from experiments.running.validation import to_json
from experiments.scoring.records import CAMPAIGN, CampaignPart, CampaignRecord, read_json
from mlp_gpu import files


def sentence(row: CampaignPart) -> str:
    """A part of the record in words."""
    return (
        f"{row.part}: {row.tries:,} of {row.goal:,} {row.unit} in "
        f"{duration(row.seconds)}, {row.failures} trials failed"
    )


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


def read(folder: Path) -> dict[str, CampaignPart]:
    """The rows of the record in a folder, by part; none if there is no record.

    Raises files.FileFault if it is damaged.
    """
    path = folder / CAMPAIGN
    found = read_json(path, CampaignRecord).parts if path.exists() else []
    return {row.part: row for row in found}


def write(folder: Path, rows: Sequence[CampaignPart]) -> None:
    """Write a campaign's record and its table. Raises files.FileFault if that fails."""
    files.replace(folder / CAMPAIGN, to_json(CampaignRecord(list(rows))))
    files.replace(folder / "campaign.md", table(rows).encode())
