"""The campaign's record, and its table."""

import json
from collections.abc import Mapping
from pathlib import Path

from experiments.running.formatting import duration, markdown_table
from experiments.running.messages import tell
from mlp_gpu import files


def sentence(row: Mapping) -> str:
    """A part of the record in words."""
    return (
        f"{row['part']}: {row['tries']:,} of {row['goal']:,} {row['unit']} in "
        f"{duration(row['seconds'])}, {row['failures']} trials failed"
    )


def table(record: Mapping) -> str:
    """A campaign's record as Markdown."""
    rows = [
        {
            "part": row["part"],
            "what must hold": row["claim"],
            "tried": f"{row['tries']:,} {row['unit']}",
            "goal": f"{row['goal']:,}",
            "failed trials": str(row["failures"]),
            "time": duration(row["seconds"]),
        }
        for row in record["parts"]
    ]
    source = record["provenance"]
    where = f"{source['device']}, seed {record['seed']}, {source['end'][:10]}, commit "
    return f"{markdown_table(rows)}\n\n{where}{source['commit'][:7]}.\n"


def write(folder: Path, record: Mapping) -> None:
    """Print a campaign's table; write it and the record. Raises files.FileFault if that fails."""
    text = table(record)
    files.replace(folder / "campaign.json", (json.dumps(record, indent=1) + "\n").encode())
    files.replace(folder / "campaign.md", text.encode())
    print(text)
    tell(f"written to {folder}: campaign.json, campaign.md")
