"""How text becomes a page of HTML."""

import re

from matplotlib.figure import Figure

from experiments.drawing.page import Html, Page, html


def test_markdown_of_cells_becomes_html():
    assert html("**a<b**, `c&d`") == "<strong>a&lt;b</strong>, <code>c&amp;d</code>"
    assert html(Html("<a>")) == "<a>"


def test_only_long_text_may_be_broken_into_lines():
    page = Page()
    cells = "x" * 20, "y" * 21, Html("<b>z</b>" * 9)
    page.table("", [dict(zip("abc", cells, strict=True))])
    kinds = re.findall("<td(.*?)>(?:<b>)?(.)", page.render("", []))
    assert kinds == [("", "x"), (' class="long"', "y"), ("", "z")]


def test_all_text_is_escaped():
    page = Page()
    page.heading(2, "<1>")
    page.say("<2>")
    page.warn("<3>")
    page.table("<4>", [{"<5>": "<6>"}], ["<7>"])
    page.figure(Figure(figsize=(0.1, 0.1)), "<8>", '<9>"', ["<10>"])
    text = page.render("<11>", ["<12>"], ["<13>"])
    for k in range(1, 14):
        assert f"<{k}>" not in text
        assert f"&lt;{k}&gt;" in text
    assert 'alt="&lt;9&gt;&quot;"' in text
