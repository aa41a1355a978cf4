"""The record of redrawn digits, experiments.redrawn, as Markdown."""

from collections.abc import Mapping

from experiments.running.formatting import markdown_table


def table(record: Mapping) -> str:
    """What a record says, with where it comes from."""
    n, source = record["n"], record["provenance"]
    lines = [
        {
            "digits": row["way"],
            "wrong": f"{row['wrong']} of {n:,}",
            "%": f"{100 * row['wrong'] / n:.2f}",
            "of these, no digit found": str(row["not_found"]),
        }
        for row in record["rows"]
    ]
    heading = f"{record['net']}; {n:,} test digits, drawn with seed {record['seed']}; "
    heading += f"{source['device']}; {source['start'][:10]}; commit {source['commit'][:12]}:"
    return f"{heading}\n\n{markdown_table(lines)}"
