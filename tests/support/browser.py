"""HTML files as a headless Chromium shows them, without a network."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

EXECUTABLES = "chromium", "chromium-browser", "google-chrome"
ARGUMENTS = "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"
ARGUMENTS += "--disable-background-networking", "--disable-component-update", "--disable-sync"
OWN = "file:", "data:", "blob:", "about:"  # requests that stay on this machine
MAX_PHONE_WIDTH = 600  # pixels; pages narrower than this are shown as on a phone
TIMEOUT_MS = 300_000  # ten times what the slowest machine takes: it is no fault of the page

# What the page has, and what is wrong with it.
INSPECT = r"""
async () => {
  await document.fonts.ready;
  const all = (selector) => [...document.querySelectorAll(selector)];
  for (const section of all("details")) section.open = true;
  const problems = [], figures = all("img, svg").filter((e) => !e.ownerSVGElement);
  for (const figure of figures) {
    const box = figure.getBoundingClientRect(), is_image = figure.tagName === "IMG";
    if (!(box.width > 0 && box.height > 0)) problems.push(`nothing to see: ${figure.alt}`);
    if (is_image && !figure.naturalWidth) problems.push(`not loaded: ${figure.alt}`);
  }
  for (const link of all("a[href^='#']")) {
    const target = decodeURIComponent(link.hash.slice(1));
    if (target && !document.getElementById(target)) problems.push(`leads nowhere: #${target}`);
  }
  return {
    problems,
    width: document.documentElement.scrollWidth,
    figures: figures.length,
    headings: all("h1, h2, h3, h4, h5, h6").map((e) => [Number(e.tagName[1]), e.textContent]),
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
        self._ask(lambda: self._launch(executable))

    def _launch(self, executable: str) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        options = {"executable_path": executable, "args": ARGUMENTS, "timeout": TIMEOUT_MS}
        self._browser = self._playwright.chromium.launch(**options)

    def _ask(self, work: Callable):
        return self._thread.submit(work).result()

    def close(self) -> None:
        self._ask(self._browser.close)
        self._ask(self._playwright.stop)
        self._thread.shutdown()

    def visit(self, path: Path, width: int, work: Callable, scheme: str = "light"):
        """What `work` returns, given the page at `path` as it is shown, and what went wrong.

        width: of the window, pixels. scheme: light or dark. What goes wrong
        is a list, to which requests that leave the file, requests that fail, and errors of scripts
        are added.
        """
        problems: list[str] = []

        def note(text: str, is_wrong: object = True) -> None:
            if is_wrong:
                problems.append(text)

        def show():
            is_phone = width < MAX_PHONE_WIDTH
            context = self._browser.new_context(
                viewport={"width": width, "height": 900},
                is_mobile=is_phone,
                has_touch=is_phone,
                color_scheme=scheme,
                offline=True,
            )
            context.set_default_timeout(TIMEOUT_MS)
            page = context.new_page()
            page.on("request", lambda r: note(f"asks for {r.url:.80}", not r.url.startswith(OWN)))
            page.on("requestfailed", lambda request: note(f"failed: {request.url:.80}"))
            page.on("pageerror", lambda error: note(f"script: {error}"))
            page.on("console", lambda said: note(f"console: {said.text}", said.type == "error"))
            page.goto(path.absolute().as_uri(), wait_until="load")
            try:
                return work(page, problems)
            finally:
                context.close()

        return self._ask(show)


def start() -> Chromium:
    """A headless Chromium; where there is none the test is skipped, and says so."""
    executable = next(filter(None, map(shutil.which, EXECUTABLES)), None)
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(EXECUTABLES)} is installed")
    pytest.importorskip("playwright.sync_api", reason="no browser: playwright is not installed")
    return Chromium(executable)


def check_page(
    browser: Chromium,
    path: Path,
    width: int,
    screenshot: Path | None = None,
    scheme: str = "light",
) -> dict:
    """Assert that a page is whole at this width, in pixels; returns what it has.

    Whole: it asks nothing of the network, no script fails, every picture has loaded and is seen,
    links within the page lead somewhere, and nothing is wider than the window. It has: the number
    of `figures`; `headings`, with their levels; `text`. screenshot: .png of the whole page. scheme:
    light or dark.
    """

    def look(page, problems: list[str]) -> dict:
        facts = page.evaluate(INSPECT)
        if screenshot:
            page.screenshot(path=screenshot, full_page=True)
        facts["problems"] += problems
        return facts

    facts = browser.visit(path, width, look, scheme)
    assert not facts["problems"]
    assert facts["width"] <= width
    return facts
