"""A page of HTML in one file: sections that fold, tables with their sources, pictures."""

import base64
import re
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from deepbig_runtime import files
from experiments.drawing import figures

STYLE = Path(__file__).with_name("page.css")
LONGEST_UNBROKEN_CELL = 15  # letters; longer cells of a table may be broken into lines
CSS_PIXELS_PER_INCH = 96


def html(text: str) -> str:
    """Text as HTML: escaped, with Markdown's **bold** and `code`."""
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escape(text))
    return re.sub("`(.+?)`", r"<code>\1</code>", text)


def _cell(text: str) -> str:
    """A cell of a table; a long one may be broken into lines."""
    kind = ' class="long"' if len(text) > LONGEST_UNBROKEN_CELL else ""
    return f"<td{kind}>{html(text)}</td>"


class Page:
    """A page that grows from top to bottom, of sections that fold.

    Text is escaped here; it may have Markdown's **bold** and `code`.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._n_sections = 0  # that have begun and not ended

    def heading(self, level: int, title: str, is_open: bool = False) -> None:
        """Begin a section of level 2 or 3, which ends where the next of its level or above begins.

        is_open: whether it is unfolded at first.
        """
        self._end_sections(level)
        self._n_sections += 1
        head = f"<h{level}>{html(title)}</h{level}>"
        self._parts.append(f"<details{' open' * is_open}><summary>{head}</summary>")

    def _end_sections(self, level: int) -> None:
        while self._n_sections > level - 2:
            self._n_sections -= 1
            self._parts.append("</details>")

    def say(self, sentence: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{html(sentence)}</p>")

    def warn(self, sentence: str) -> None:
        """Add a paragraph that cannot be overlooked."""
        self._parts.append(f'<p class="warning">{html(sentence)}</p>')

    def table(
        self, caption: str, rows: Sequence[Mapping[str, str]], sources: Collection[str] = ()
    ) -> None:
        """Add a table of rows with the same keys, in a box that scrolls.

        sources: where its numbers come from, in the order of the rows; folded below it.
        """
        head = "".join(f'<th scope="col">{html(name)}</th>' for name in rows[0])
        self._parts.append(
            '<div class="scroll" tabindex="0"><table>'
            f"<caption><span>{html(caption)}</span></caption>"
            f"<thead><tr>{head}</tr></thead><tbody>"
        )
        for row in rows:
            self._parts.append(f"<tr>{''.join(map(_cell, row.values()))}</tr>")
        self._parts.append("</tbody></table></div>")
        if sources:
            items = "".join(f"<li>{html(line)}</li>" for line in dict.fromkeys(sources))
            self._parts.append(
                f'<details class="sources"><summary>Sources</summary><ol>{items}</ol></details>'
            )

    def figure(self, figure: Figure, caption: str, alt: str, has_photographs: bool = False) -> None:
        """Add a picture, as PNG: SVG grows with every epoch.

        alt: its content in words, for readers who do not see it. has_photographs: stays light on a
        dark page.
        """
        encoded = base64.b64encode(figures.png(figure)).decode()
        width, height = (round(CSS_PIXELS_PER_INCH * inches) for inches in figure.get_size_inches())
        kind = ' class="photographs"' if has_photographs else ""
        self._parts.append(
            f'<figure><img{kind} width="{width}" height="{height}" alt="{escape(alt)}" '
            f'src="data:image/png;base64,{encoded}"><figcaption>{html(caption)}'
            "</figcaption></figure>"
        )

    def render(self, title: str, faults: Sequence[str] = ()) -> str:
        """The whole page. faults: a sentence for each file that is left out."""
        style = files.read_bytes(STYLE).decode()
        head = f"<header><h1>{html(title)}</h1>"
        if faults:
            items = "".join(f"<li>{html(fault)}</li>" for fault in faults)
            head += f'<div class="warning">Left out, for they cannot be read:<ul>{items}</ul></div>'
        self._end_sections(2)
        return "\n".join(
            [
                '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{html(title)}</title><style>\n{style}</style></head><body>",
                f"{head}</header><main>",
                *self._parts,
                "</main></body></html>\n",
            ]
        )
