"""The pages that are not reports: the log of all runs, and what went wrong.

They look as the page of a report does. Without scripts they do not refresh themselves, and have no
filter; all else works.
"""

from __future__ import annotations

import hashlib
import importlib.resources
from collections.abc import Collection, Sequence
from html import escape

from ipujax.cli.serving.library import Entry
from ipujax.cli.serving.log import log
from ipujax.report.presentation import html

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'"
)


def version(shown: str) -> str:
    """What tells a log from another one."""
    return hashlib.sha256(shown.encode(errors="replace")).hexdigest()[:16]


def index(
    places: str, entries: Sequence[Entry], message: str = "", chosen: Collection[str] = ()
) -> str:
    """All reports, with links to look at one and boxes to choose two; it refreshes itself.

    Args:
      places: where they were looked for.
      entries: in the order in which to show them.
      message: what went wrong, to be mended here.
      chosen: the keys of those whose boxes are ticked.
    """
    shown = log(entries, chosen)
    wrong = f'<p class="bad" role="alert">{escape(message)}</p>' if message else ""
    tools = (
        f'<h2>Runs</h2><span class="faint" id="state" role="status">{escape(places)}</span>'
        '<input type="search" id="filter" placeholder="Filter runs" aria-label="Filter runs" '
        'hidden><button class="button" id="compare">Compare two</button>'
    )
    body = (
        f'<form action="/compare" class="panel"><div class="panel-head">{tools}</div>{wrong}'
        f'<div id="log" data-version="{version(log(entries))}">{shown}</div></form>'
    )
    return _page("Reports", body, _read("pages.js"))


def with_way_back(page: str, notice: str = "") -> str:
    """A report's page with a link to the log above it, and what else there is to say there."""
    style = "margin:0;padding:.25rem 1rem;font:13px system-ui,sans-serif"
    said = f' <span class="bad" role="alert">{escape(notice)}</span>' if notice else ""
    way = '<a href="/" style="color:var(--accent);margin-right:8px">All reports</a>'
    link = f'<nav style="{style}">{way}{said}</nav>'
    return page.replace("<body>", f"<body>\n{link}", 1)


def failure(title: str, message: str) -> str:
    """What went wrong, and the way back."""
    back = '<p><a href="/">All reports</a></p>'
    return _page(title, f'<section class="panel"><pre>{escape(message)}</pre>{back}</section>')


def _page(title: str, body: str, script: str = "") -> str:
    theme = (
        '<button class="theme-button" type="button" id="theme" title="Light or dark" '
        'aria-label="Light or dark" hidden>◐</button>'
    )
    scripts = f"<script>\n{script}</script>" if script else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)} - ipujax</title>"
        f"<style>\n{html.style()}\n{_read('pages.css')}</style></head>"
        f'<body><header><div class="title-row"><h1><span class="brand">ipujax</span>'
        f"{escape(title)}</h1>{theme if script else ''}</div></header>"
        f"<main>{body}</main>{scripts}</body></html>\n"
    )


def _read(name: str) -> str:
    return importlib.resources.files("ipujax.cli.serving").joinpath(name).read_text("utf-8")
