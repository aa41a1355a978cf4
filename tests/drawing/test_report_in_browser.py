"""The page of `python -m experiments.report` in a browser and on paper; what browser.py notices."""
# ruff: noqa: F401, F811 - fixtures are imported

import shutil
from itertools import pairwise

import pytest
from browser import A4_WIDTH, browser, check_page, print_page
from PIL import Image
from report_pages import HOSTILE, fixed, folder, results, written

from experiments import report


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_is_whole_in_a_browser(browser, written, tmp_path, width):
    shot = tmp_path / "page.png"
    facts = check_page(browser, written, width, shot)
    assert facts["figures"] == 11
    assert facts["tables"] == written.read_text().count("<table>")
    levels = [level for level, _ in facts["headings"]]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert len(set(facts["ids"])) == len(facts["ids"])
    assert HOSTILE in facts["text"]
    assert Image.open(shot).size[0] == width


# Of Table 1: where its box ends, how far it could be scrolled, and where its columns end.
INSPECT_TABLE1 = """() => {
  const box = document.querySelector(".scroll");
  const right = (e) => e.getBoundingClientRect().right;
  const heads = [...box.querySelectorAll("th")].map((e) => [e.textContent, right(e)]);
  return [right(box), box.scrollWidth - box.clientWidth, Object.fromEntries(heads)];
}"""


@pytest.mark.parametrize(("width", "scrolled"), [(1280, None), (1440, 0), (1920, 0)])
def test_what_a_row_did_is_in_view_with_what_came_of_it(browser, written, width, scrolled):
    def look(shown, _):
        return shown.evaluate(INSPECT_TABLE1)

    right, hidden, columns = browser.visit(written, width, "screen", look)
    names = list(columns)
    assert names.index("epochs x images") == names.index("TEfBV %") - 1
    assert columns["BTE %"] < right
    assert scrolled is None or hidden == scrolled


def test_the_page_is_whole_with_nothing_there(browser, results, tmp_path):
    path = tmp_path / "report.html"
    report.main(["--runs", str(tmp_path), "--out", str(path)])
    assert check_page(browser, path, 360)["figures"] == 0


def test_the_page_fits_on_paper(browser, written, tmp_path):
    facts = check_page(browser, written, A4_WIDTH, media="print")
    assert "[1]" in facts["text"]
    assert "back" not in facts["text"].splitlines()[-1]
    sheets = print_page(browser, written, tmp_path / "page.pdf")
    assert 6 <= sheets <= 30  # of the records in results/, which grow: 26 now
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF-")


OVERFLOWING = (
    '<p style="width: 50px; white-space: nowrap">a text that is much longer than its box</p>'
)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('<div style="width: 2000px">wide</div>', "20.. pixels wide"),
        ('<img alt="gone" src="gone.png">', "failed|not loaded"),
        ('<img alt="empty" src="data:image/png;base64,AAAA">', "not loaded"),
        ('<svg width="0" height="0"></svg>', "nothing to see"),
        ('<a href="#nowhere">there</a>', "leads nowhere: #nowhere"),
        ("<script>console.error('so')</script>", "console: so"),
        ("<script>undefined.f()</script>", "script: "),
        ('<img src="https://example.org/a.png">', "asks the network for https://example.org"),
        (OVERFLOWING, "text leaves its box: <p> a text that"),
        (OVERFLOWING.replace("width", "overflow: hidden; width"), "text is cut off|leaves its box"),
        ('<p style="height: 9px; overflow: hidden">a<br>b</p>', "text is cut off"),
    ],
)
def test_the_browser_notices(browser, tmp_path, body, reason):
    path = tmp_path / "page.html"
    path.write_text(f'<!DOCTYPE html><meta charset="utf-8">{body}')
    with pytest.raises(AssertionError, match=reason):
        check_page(browser, path, 768)
