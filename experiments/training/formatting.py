"""Numbers and rows as text: durations, percentages, Markdown and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss, from a day on with the days before that."""
    return str(timedelta(seconds=round(seconds)))


def percent(errors: int, n: int) -> str:
    """A share of n images in percent, as the paper prints it."""
    return f"{100 * errors / n:.2f} %"


def hundredths(value: float) -> str:
    """A mean with two decimals. Halves are rounded up, also where float64 holds a little less."""
    return str(Decimal(f"{value:.9f}").quantize(Decimal("0.01"), ROUND_HALF_UP))


def plural(n: int, noun: str) -> str:
    """A count with its noun: '1 run', '2 runs'."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def printable(name: str) -> str:
    """The name of a file, with bytes that are no UTF-8 written as \\udcff."""
    return name.encode(errors="backslashreplace").decode()


def markdown_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows with the same keys as a Markdown table that is also aligned to the eye."""
    cells = [[cell.replace("|", "\\|") for cell in row.values()] for row in rows]
    table = [list(rows[0]), *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    table.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in table
    )


def output_cells(outputs: Sequence[float], classes: Sequence[str]) -> dict[str, Any]:
    """The most likely class of an image, and the probabilities of all, as cells of a CSV file.

    classes: their names; a probability's column is p and the class's name.
    """
    values = [float(value) for value in outputs]
    columns = [f"p{name}" for name in classes]
    guess = classes[values.index(max(values))]
    return {"guess": guess} | dict(zip(columns, values, strict=True))


def csv_text(rows: Sequence[Mapping]) -> str:
    """Rows with the same keys as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
