"""How tests look at a page: opened as a file, with an ear on what it says on the console."""

from __future__ import annotations

import base64
import dataclasses as dc
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    sync_playwright,
)

READY = "html[data-ready=true]"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # which root, as in containers, may not have
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@contextmanager
def start_chromium() -> Iterator[Browser | None]:
    """Starts a browser, and closes it at the end; None where no Chromium is installed."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """Pages of one browser, and what went wrong on them.

    Args:
      browser: to open them in.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def open(
        self,
        page: Path | str,
        *,
        at: str = "",
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
    ) -> Page:
        """A page, a file (of whose address `at` is the end) or its text, with its first view."""
        tab = self.tab(width=width, height=height, dark=dark)
        if isinstance(page, Path):
            tab.goto(page.as_uri() + at)
        else:
            tab.set_content(page)
        tab.wait_for_selector(READY)
        return tab

    def tab(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """An empty page."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        self._contexts.append(context)
        tab = context.new_page()
        tab.on("console", self._heard)
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        tab.on("request", self._asked)
        return tab

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:", "about:")):
            self.requests.append(request.url)

    def leave(self) -> None:
        """Closes everything, and says what went wrong."""
        for context in self._contexts:
            context.close()
        if self.complaints or self.requests:
            raise AssertionError(f"console: {self.complaints}, network: {self.requests}")


def views_of(tab: Page) -> list[str]:
    """The views that a page offers."""
    return tab.locator("[data-tab]").evaluate_all("tabs => tabs.map(tab => tab.dataset.tab)")


def show(tab: Page, view: str) -> Locator:
    """Goes to a view and gives its element; of two reports, the first one's."""
    tab.click(f"[data-tab={view}]")
    frames(tab)
    return tab.locator(f"[data-view={view}]").first


def operations_table(tab: Page) -> Locator:
    """Goes to the operations, one a row, and gives the view's element, of two the first."""
    show(tab, "operations")
    switches = tab.locator("[data-view=operations] .switch")
    for button in switches.get_by_role("button", name="operation", exact=True).all():
        button.click()
    frames(tab)
    return tab.locator("[data-view=operations]").first


def frames(tab: Page, count: int = 3) -> None:
    """Lets a page draw some frames: charts are drawn with the next one."""
    tab.evaluate(
        """count => new Promise(done => {
          const next = left => left ? requestAnimationFrame(() => next(left - 1)) : done();
          next(count);
        })""",
        count,
    )


def pixels(tab: Page, chart: str) -> np.ndarray:
    """uint32 [pixels]: the colours of a chart's canvas."""
    # As text: a number per pixel, each a value of JSON, would take seconds.
    url = tab.evaluate(
        """name => {
          const canvas = document.querySelector(`canvas[data-chart="${name}"]`);
          // Chromium warns if a canvas that is drawn to is read often; a copy may be.
          const copy = new OffscreenCanvas(canvas.width, canvas.height);
          const pen = copy.getContext("2d", {willReadFrequently: true});
          pen.drawImage(canvas, 0, 0);
          const {data} = pen.getImageData(0, 0, canvas.width, canvas.height);
          return new Promise(done => {
            const reader = new FileReader();
            reader.onload = () => done(reader.result);
            reader.readAsDataURL(new Blob([data]));
          });
        }""",
        chart,
    )
    return np.frombuffer(base64.b64decode(url.partition(",")[2]), dtype=np.uint32)


def colours(tab: Page, chart: str) -> int:
    """How many colours cover more than a few pixels of a chart."""
    _, counts = np.unique(pixels(tab, chart), return_counts=True)
    return int((counts > 20).sum())


def shown(tab: Page) -> str:
    """The view that is shown."""
    return tab.locator("[role=tab][aria-selected=true]").get_attribute("data-tab") or ""


def selection(tab: Page) -> dict[str, Any]:
    """What is selected."""
    return tab.evaluate("() => ({...window.ipujax.store.selection})")


WATCH_TEXTS = """() => {
  const pen = CanvasRenderingContext2D.prototype;
  const { clearRect, fillText } = pen;
  pen.clearRect = function (...where) {
    this.canvas.painted = [];
    clearRect.apply(this, where);
  };
  pen.fillText = function (text, x, y) {
    const box = this.measureText(text);
    this.canvas.painted?.push({
      text, left: x - box.actualBoundingBoxLeft, right: x + box.actualBoundingBoxRight,
      top: y - box.actualBoundingBoxAscent, bottom: y + box.actualBoundingBoxDescent,
    });
    fillText.call(this, text, x, y);
  };
}"""


@dc.dataclass(frozen=True)
class Painted:
    """A text on a canvas, and from where to where it reaches in pixels."""

    text: str
    left: float
    right: float
    top: float
    bottom: float

    def covers(self, other: Painted) -> bool:
        """Whether it overlaps another one by more than a pixel's edge."""
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > 1 and down > 1


def watch_texts(tab: Page) -> None:
    """From now on what charts write is known to `painted_texts`."""
    tab.evaluate(WATCH_TEXTS)


def painted_texts(tab: Page, chart: str) -> list[list[Painted]]:
    """What each canvas of a chart's name says since it was last painted."""
    found = tab.locator(f"canvas[data-chart='{chart}']").evaluate_all(
        "canvases => canvases.map(canvas => canvas.painted ?? [])"
    )
    return [[Painted(**text) for text in texts] for texts in found]
