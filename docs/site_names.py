"""Adds to the pages that Sphinx has built the names that screen readers say."""

from __future__ import annotations

import re
from pathlib import Path

from site_sources import write
from sphinx.application import Sphinx

# An entry of the menu, and the arrow that opens what is below it.
MENU_ARROW = re.compile(r'(<a class="[^"]*" href="[^"]*">([^<]+)</a><details[^>]*>)<summary>')
# The button says "Search Ctrl+K"; a label would hide that.
SEARCH_LABEL = re.compile(r'(<button class="[^"]*search-button-field[^>]*?) aria-label="[^"]*"')
SIDEBAR = '<div class="sidebar-primary-items__start sidebar-primary__section"'


def name_controls(html: str) -> str:
    """Returns a page whose menu and search button have names, and whose sidebar is a landmark."""
    html = MENU_ARROW.sub(r'\1<summary aria-label="Pages below \2">', html)
    html = SEARCH_LABEL.sub(r"\1", html)
    return html.replace(f"{SIDEBAR}>", f'{SIDEBAR} role="navigation" aria-label="Site">')


def connect(app: Sphinx) -> None:
    """Has Sphinx pass every page through `name_controls` when all are built."""

    def on_built(app: Sphinx, failure: Exception | None) -> None:
        for page in sorted(Path(app.outdir).rglob("*.html")) if failure is None else ():
            write(page, name_controls(page.read_text("utf-8")))

    app.connect("build-finished", on_built)
