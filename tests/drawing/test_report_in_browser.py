"""The page of `python -m experiments.report` in a browser and on paper."""
# ruff: noqa: F401, F811 - fixtures are imported

from itertools import pairwise

import numpy as np
import pytest
from browser import A4_WIDTH, browser, check_page, print_page
from PIL import Image
from report_pages import HOSTILE, fixed, folder, results, written

from experiments import report
from experiments.drawing.report_sections import OWN_TITLE


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (768, "dark"), (1280, "light")])
def test_the_page_is_whole_in_a_browser(browser, written, tmp_path, width, scheme):
    shot = tmp_path / "page.png"
    facts = check_page(browser, written, width, shot, scheme=scheme)
    assert facts["figures"] == 3
    first, *levels = [level for level, _ in facts["headings"]]
    assert first == 1
    assert all(1 < b <= a + 1 for a, b in pairwise([first, *levels]))
    assert HOSTILE in facts["text"]
    with Image.open(shot) as shown:
        assert shown.size[0] == width
        bright = np.mean(np.asarray(shown.convert("L")) > 200)
    assert bright > 0.8 if scheme == "light" else bright < 0.1  # figures, too, are dark


# The sections that are open; with all unfolded, of the first table and of Table 1 the columns that
# they show without being scrolled sideways; how far its head then lies below the top of the last
# one's box, which is scrolled down; the colour of the page.
LOOK = r"""async () => {
  const all = (where, selector) => [...where.querySelectorAll(selector)];
  const open = () => all(document, "details[open]").map((e) => e.innerText.split("\n")[0]);
  const before = open(), edge = (e, side) => e.getBoundingClientRect()[side];
  all(document, "details").forEach((e) => { e.open = true; });
  const section = all(document, "h3").find((e) => e.textContent.startsWith("Table 1, the paper"));
  const last = section.closest("details").querySelector(".scroll");
  const boxes = [document.querySelector(".scroll"), last];
  const columns = boxes.map((box) => all(box, "th")
    .filter((e) => edge(e, "right") <= edge(box, "right") + 1).map((e) => e.textContent));
  last.scrollTop = 400;
  const below = edge(last.querySelector("th"), "top") - edge(last, "top");
  return [before, columns, last.scrollTop, below,
    getComputedStyle(document.body).backgroundColor];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_errors_and_heads_are_in_view_on_a_phone(browser, written, scheme):
    before, columns, scrolled, below, colour = browser.visit(
        written, 360, "screen", lambda shown, _: shown.evaluate(LOOK), scheme
    )
    assert before[0] == OWN_TITLE
    assert columns[0][:3] == ["run", "error %", "the paper %"]
    assert columns[-1][:3] == ["net", "TEfBV %", "paper TEfBV %"]
    assert (scrolled, below) == (400, pytest.approx(0, abs=1))
    assert colour == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 22, 22)")


def test_the_page_is_whole_with_nothing_there(browser, results, tmp_path):
    path = tmp_path / "report.html"
    report.main(["--runs", str(tmp_path), "--out", str(path)])
    assert check_page(browser, path, 360)["figures"] == 0


def test_the_page_fits_on_paper(browser, written, tmp_path):
    facts = check_page(browser, written, A4_WIDTH, media="print")
    assert "Some <GPU>" in facts["text"]  # sources are unfolded
    sheets = print_page(browser, written, tmp_path / "page.pdf")
    assert 6 <= sheets <= 50  # of the records in results/, which grow: 41 now
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF-")
