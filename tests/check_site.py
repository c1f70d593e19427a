"""`python -m tests.check_site FOLDER`: whether links lead nowhere, or pages are wider than phones.

Sphinx checks what is written in Markdown; this also finds what stands in HTML, and what was not
copied. Only the site's own files count: what is elsewhere would need the network. Widths are
measured in Chromium, and not at all where it is not installed.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.browser.looking import start_chromium

PHONE = {"width": 390, "height": 800}  # pixels


class Page(HTMLParser):
    """The links, pictures and anchors of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Takes what an element names."""
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        for name in ("href", "src"):
            if tag in ("a", "img", "script", "link"):
                self.targets.add(given.get(name) or "")


def pages_of(folder: Path) -> list[Path]:
    """The pages of a site, without parts of its theme."""
    return [path for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts]


def missing(folder: Path) -> list[str]:
    """What pages lead to that is not there, each as `page: target`."""
    pages = {path.resolve(): Page(path.read_text("utf-8")) for path in pages_of(folder)}
    found: list[str] = []
    for path, page in pages.items():
        for target in sorted(page.targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            leads_to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = pages.get(leads_to)
            anchors = {*there.anchors, ""} if there else {parts.fragment}
            is_state = "=" in parts.fragment  # of a page with controls, not a place in it
            if not leads_to.exists() or not (is_state or parts.fragment in anchors):
                found.append(f"{path.relative_to(folder.resolve())}: {target}")
    return found


def too_wide(folder: Path) -> list[str]:
    """The pages that a phone would have to scroll sideways, each as `page: its width in pixels`."""
    found: list[str] = []
    with start_chromium() as browser:
        if browser is None:
            return found
        tab = browser.new_page(viewport=PHONE)
        tab.route("http*://**", lambda route: route.abort())
        for path in pages_of(folder):
            tab.goto(path.resolve().as_uri())
            width = tab.evaluate("document.scrollingElement.scrollWidth")
            if width > PHONE["width"]:
                found.append(
                    f"{path.relative_to(folder)}: {width} pixels wide, of {PHONE['width']}"
                )
    return found


def main(folder: str) -> int:
    """Says what is missing and what is too wide; 1 if there is anything."""
    found = missing(Path(folder)) + too_wide(Path(folder))
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
