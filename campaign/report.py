"""The campaign's record."""

from collections.abc import Sequence
from pathlib import Path

from deepbig_runtime import files
from experiments.running.formatting import duration
from experiments.running.validation import to_json
from experiments.scoring import campaign_table
from experiments.scoring.records import CAMPAIGN, CampaignPart, CampaignRecord, read_json


def sentence(row: CampaignPart) -> str:
    """A part of the record in words."""
    return (
        f"{row.part}: {row.tries:,} of {row.goal:,} {row.unit} in "
        f"{duration(row.seconds)}, {row.failures} trials failed"
    )


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
    files.replace(folder / "campaign.md", campaign_table.table(rows).encode())
