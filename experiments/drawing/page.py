"""A page of HTML in one file: headings, tables, pictures, and where its numbers come from."""

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
DRAW = "draw.html"  # the page of experiments.draw, in the folder of the runs
# A link opens the section that it leads into. Not all browsers do so themselves.
REVEAL = """<script>
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let box = target; box; box = box.parentElement) if ("open" in box) box.open = true;
  if (target) target.scrollIntoView();
}
addEventListener("hashchange", reveal);
reveal();
</script>"""


class Html(str):
    """Text that is HTML already."""


def html(text: str) -> str:
    """Text as HTML: escaped, with Markdown's **bold** and `code`, if it is not HTML already."""
    if isinstance(text, Html):
        return text
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escape(text))
    return re.sub("`(.+?)`", r"<code>\1</code>", text)


def _anchor(titles: str) -> str:
    """The id of a section: its titles, joined."""
    return re.sub(r"[^\w.-]+", "-", titles)


def _cell(text: str) -> str:
    """A cell of a table; a long one may be broken into lines, links to sources may not."""
    is_long = len(text) > LONGEST_UNBROKEN_CELL and not isinstance(text, Html)
    kind = ' class="long"' if is_long else ""
    return f"<td{kind}>{html(text)}</td>"


class Page:
    """A page that grows from top to bottom, of sections that fold, and with its sources.

    Text is escaped here; it may have Markdown's **bold** and `code`.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._sections: list[str] = []  # titles of those that have begun and not ended
        self._sources: dict[str, int] = {}

    def heading(self, level: int, title: str, is_open: bool = False) -> None:
        """Begin a section of level 2 or 3, which ends where the next of its level or above begins.

        is_open: whether it is unfolded at first.
        """
        self._end_sections(level)
        self._sections.append(title)
        opened, own = " open" * is_open, _anchor("-".join(self._sections))
        head = f'<h{level} id="{own}">{html(title)}</h{level}>'
        self._parts.append(f"<details{opened}><summary>{head}</summary>")

    def _end_sections(self, level: int) -> None:
        while len(self._sections) > level - 2:
            self._sections.pop()
            self._parts.append("</details>")

    def say(self, sentence: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{html(sentence)}</p>")

    def warn(self, sentence: str) -> None:
        """Add a paragraph that cannot be overlooked."""
        self._parts.append(f'<p class="warning">{html(sentence)}</p>')

    def cite(self, *lines: str) -> Html:
        """Links to lines that say where something comes from; a cell of a table may be such links.

        The lines stand at the end of the page, each once, with a link back to its first citation.
        """
        links = []
        for line in lines:
            is_new = line not in self._sources
            number = self._sources.setdefault(line, len(self._sources) + 1)
            own = f' id="cited-{number}"' if is_new else ""
            links.append(f'<a href="#source-{number}"{own}>[{number}]</a>')
        return Html(" ".join(links))

    def table(
        self,
        caption: str,
        rows: Sequence[Mapping[str, str]],
        sources: Collection[str] = (),
        each: Sequence[str] = (),
    ) -> None:
        """Add a table of rows with the same keys, in a box that scrolls.

        sources: where all of it comes from; or each: where each row comes from.
        """
        if each:
            cited = map(self.cite, each)
            rows = [{**row, "source": link} for link, row in zip(cited, rows, strict=True)]
        head = "".join(f'<th scope="col">{html(name)}</th>' for name in rows[0])
        self._parts.append(
            '<div class="scroll" tabindex="0"><table>'
            f"<caption><span>{self._cited(caption, sources)}</span></caption>"
            f"<thead><tr>{head}</tr></thead><tbody>"
        )
        for row in rows:
            self._parts.append(f"<tr>{''.join(map(_cell, row.values()))}</tr>")
        self._parts.append("</tbody></table></div>")

    def figure(
        self,
        figure: Figure,
        caption: str,
        alt: str,
        sources: Collection[str],
        has_photographs: bool = False,
    ) -> None:
        """Add a picture, as PNG: SVG grows with every epoch.

        alt: its content in words, for readers who do not see it. sources: where that comes from.
        has_photographs: stays light on a dark page.
        """
        encoded = base64.b64encode(figures.png(figure)).decode()
        width, height = (round(CSS_PIXELS_PER_INCH * inches) for inches in figure.get_size_inches())
        kind = ' class="photographs"' if has_photographs else ""
        self._parts.append(
            f'<figure><img{kind} width="{width}" height="{height}" alt="{escape(alt)}" '
            f'src="data:image/png;base64,{encoded}"><figcaption>{self._cited(caption, sources)}'
            "</figcaption></figure>"
        )

    def _cited(self, caption: str, sources: Collection[str]) -> str:
        return " ".join(filter(None, (html(caption), self.cite(*sources))))

    def render(
        self, title: str, introduction: Sequence[str] = (), faults: Sequence[str] = ()
    ) -> str:
        """The whole page.

        introduction: paragraphs above all sections. faults: a sentence for each file that is left
        out.
        """
        style = files.read_bytes(STYLE).decode()
        head = [f"<p>{html(paragraph)}</p>" for paragraph in introduction]
        if faults:
            items = "".join(f"<li>{html(fault)}</li>" for fault in faults)
            head.append(
                f'<div class="warning">Left out, for they cannot be read:<ul>{items}</ul></div>'
            )
        self.heading(2, "Where the numbers come from")
        self._parts.append('<ol class="sources">')
        for line, number in self._sources.items():
            back = f'<a class="back" href="#cited-{number}">back</a>'
            self._parts.append(f'<li id="source-{number}">{html(line)} {back}</li>')
        self._parts.append("</ol>" if self._sources else "</ol><p>No number yet.</p>")
        self._end_sections(2)
        return "\n".join(
            [
                '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{html(title)}</title><style>\n{style}</style></head><body>",
                f"<header><h1>{html(title)}</h1>",
                *head,
                "</header><main>",
                *self._parts,
                f"</main>{REVEAL}</body></html>\n",
            ]
        )
