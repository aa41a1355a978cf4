"""The record of redrawn digits, experiments.redrawn, as Markdown."""

from typing import Annotated

from msgspec import Meta, Struct

from experiments.running.formatting import markdown_table
from experiments.running.provenance import Source
from experiments.running.validation import Count, Text


class RedrawnRow(Struct, forbid_unknown_fields=True):
    """A way of drawing: how many digits are wrong, those included in which none was found."""

    way: Text
    wrong: Count
    not_found: Count


class RedrawnRecord(Struct, forbid_unknown_fields=True):
    """The record of experiments.redrawn. n: number of digits. seed: of the drawings."""

    net: Text
    n: Count
    seed: Count
    rows: Annotated[list[RedrawnRow], Meta(min_length=1)]
    provenance: Source


def table(record: RedrawnRecord) -> str:
    """What a record says, with where it comes from."""
    n, source = record.n, record.provenance
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
    heading += f"{source.device}; {source.start[:10]}; commit {source.commit[:12]}:"
    return f"{heading}\n\n{markdown_table(lines)}"
