"""HTML files as a headless Chromium shows and prints them, without a network.

A test file imports the fixture `browser` and gives it to `check_page` and `print_page`.
"""

import os
import re
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

EXECUTABLES = "chromium", "chromium-browser", "google-chrome"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MAX_PHONE_WIDTH = 600  # pixels; pages narrower than this are shown as on a phone
TIMEOUT_MS = 300_000  # ten times what the slowest machine takes: it is no fault of the page
PATIENCE_SECONDS = 600  # for all of a visit, since some of Playwright's calls wait for ever
A4_WIDTH = 1009  # pixels across a landscape page of A4 between margins of 15 mm

# What the page has, and what is wrong with it.
INSPECT = r"""
async () => {
  await document.fonts.ready;
  for (const section of document.querySelectorAll("details")) section.open = true;
  const name = (e) => `<${e.tagName.toLowerCase()}> ${(e.textContent || e.alt || "").trim()
    .replace(/\s+/g, " ").slice(0, 60)}`;
  const problems = [];
  const outermost = [...document.querySelectorAll("svg")].filter((e) => !e.ownerSVGElement);
  const figures = [...document.images, ...outermost];
  for (const figure of figures) {
    const box = figure.getBoundingClientRect();
    if (!(box.width > 0 && box.height > 0)) problems.push(`nothing to see: ${name(figure)}`);
    if (figure.tagName === "IMG" && !(figure.complete && figure.naturalWidth > 0))
      problems.push(`not loaded: ${name(figure)}`);
  }

  const overflow = (e) => getComputedStyle(e).overflowX;
  const scrolls = (e) =>
    e !== document.body && e !== document.documentElement && /auto|scroll/.test(overflow(e));
  const isInline = (e) => getComputedStyle(e).display.startsWith("inline") &&
    getComputedStyle(e).display !== "inline-block";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    let box = text.parentElement;
    if (!text.data.trim() || box.closest("svg, script, style, noscript") || !box.checkVisibility())
      continue;
    let inside = false;
    for (let e = box; e; e = e.parentElement) inside ||= scrolls(e);
    while (isInline(box)) box = box.parentElement;
    const range = document.createRange();
    range.selectNodeContents(text);
    const { left, right } = box.getBoundingClientRect();
    for (const rect of inside ? [] : range.getClientRects())
      if (rect.left < left - 1 || rect.right > right + 1) {
        problems.push(`text leaves its box: ${name(box)}`);
        break;
      }
    const hides = (e) => /hidden|clip/.test(overflow(e)) &&
      (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1);
    if (hides(box)) problems.push(`text is cut off: ${name(box)}`);
  }

  const links = [...document.querySelectorAll("a[href^='#']")];
  for (const link of links) {
    const target = decodeURIComponent(link.getAttribute("href").slice(1));
    if (target && !document.getElementById(target)) problems.push(`leads nowhere: #${target}`);
  }
  return {
    problems,
    width: document.documentElement.scrollWidth,
    figures: figures.length,
    tables: document.querySelectorAll("table").length,
    ids: [...document.querySelectorAll("[id]")].map((e) => e.id),
    headings: [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].map(
      (e) => [Number(e.tagName[1]), e.textContent.trim()]),
    text: document.body.innerText,
  };
}
"""


class Chromium:
    """A headless Chromium, in a thread of its own.

    Playwright leaves an event loop running in its thread, where asyncio.run then fails.
    """

    def __init__(self, executable: str):
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(self._launch, executable).result()

    def _launch(self, executable: str) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        started = Path("/proc/thread-self/children")  # Linux lists there what this thread started
        self._driver = started.read_text().split() if started.exists() else []
        self._browser = self._playwright.chromium.launch(
            executable_path=executable, args=list(ARGUMENTS), timeout=TIMEOUT_MS
        )

    def _ask(self, work: Callable):
        """What work() returns, in the thread; without an answer, ends the driver: TimeoutError."""
        answer = self._thread.submit(work)
        try:
            return answer.result(PATIENCE_SECONDS)
        except TimeoutError:
            for pid in self._driver:
                os.kill(int(pid), signal.SIGKILL)  # work() fails, and the thread is free
            raise

    def close(self) -> None:
        self._ask(self._browser.close)
        self._ask(self._playwright.stop)
        self._thread.shutdown()

    def visit(self, path: Path, width: int, media: str, work: Callable, scheme: str = "light"):
        """What `work` returns, given the page at `path` as it is shown, and what went wrong.

        width: of the window, pixels. media: screen or print. scheme: light or dark. What goes wrong
        is a list, to which requests that leave the file, requests that fail, and errors of scripts
        are added. Raises TimeoutError if Chromium does not answer.
        """

        def show():
            context = self._browser.new_context(
                viewport={"width": width, "height": 900},
                is_mobile=width < MAX_PHONE_WIDTH,
                has_touch=width < MAX_PHONE_WIDTH,
                color_scheme=scheme,
                offline=True,
            )
            context.set_default_timeout(TIMEOUT_MS)
            page, problems = context.new_page(), []
            page.on("request", lambda request: problems.extend(_leaving(request.url)))
            page.on("requestfailed", lambda request: problems.append(f"failed: {request.url:.80}"))
            page.on("pageerror", lambda error: problems.append(f"script: {error}"))
            page.on(
                "console",
                lambda said: said.type == "error" and problems.append(f"console: {said.text}"),
            )
            page.emulate_media(media=media)
            page.goto(path.absolute().as_uri(), wait_until="load")
            try:
                return work(page, problems)
            finally:
                context.close()

        return self._ask(show)


def _leaving(url: str) -> list[str]:
    own = ("file:", "data:", "blob:", "about:")
    return [] if url.startswith(own) else [f"asks the network for {url:.80}"]


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; where there is none the test is skipped, and says so."""
    executable = next(filter(None, map(shutil.which, EXECUTABLES)), None)
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(EXECUTABLES)} is installed")
    pytest.importorskip("playwright.sync_api", reason="no browser: playwright is not installed")
    chromium = Chromium(executable)
    yield chromium
    chromium.close()


def check_page(
    browser: Chromium,
    path: Path,
    width: int,
    screenshot: Path | None = None,
    media: str = "screen",
    scheme: str = "light",
) -> dict:
    """Assert that a page is whole at this width, in pixels; returns what it has.

    Whole: it asks nothing of the network, no script fails, every picture has loaded and is seen,
    links within the page lead somewhere, nothing is wider than the window, and no text leaves or is
    cut off by its box, except in boxes that scroll. It has: the numbers of `figures` and `tables`;
    `ids`; `headings`, with their levels; `text`. screenshot: .png of the whole page.
    scheme: light or dark.
    """

    def look(page, problems: list[str]) -> dict:
        facts = page.evaluate(INSPECT)
        if screenshot:
            page.screenshot(path=screenshot, full_page=True)
        facts["problems"] = problems + facts["problems"]
        return facts

    facts = browser.visit(path, width, media, look, scheme)
    problems, wide = facts.pop("problems"), facts.pop("width")
    problems += [f"{wide} pixels wide"] if wide > width else []
    assert not problems, f"{path.name}, {width} pixels: {'; '.join(problems)}"
    return facts


def print_page(browser: Chromium, path: Path, target: Path) -> int:
    """Print a page to a PDF file, as its style sheet has it; returns the number of sheets."""

    def to_pdf(page, problems: list[str]) -> list[str]:
        page.pdf(path=target, prefer_css_page_size=True)
        return problems

    problems = browser.visit(path, A4_WIDTH, "print", to_pdf)
    assert not problems, f"{path.name}, printed: {'; '.join(problems)}"
    return len(re.findall(rb"/Type\s*/Page\b", target.read_bytes()))
