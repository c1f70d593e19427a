"""Renders the pages around reports: the log of all runs, and errors.

They look like the page of a report. Without scripts they do not refresh themselves and have no
filter; all else works.
"""

from __future__ import annotations

import hashlib
import importlib.resources
from collections.abc import Collection, Sequence
from html import escape

from ipujax.cli.serving.report_library import Entry
from ipujax.cli.serving.run_log import render_run_log
from ipujax.report import html

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'"
)


def hash_log(log_html: str) -> str:
    """Returns a hash that tells one log from another."""
    return hashlib.sha256(log_html.encode(errors="replace")).hexdigest()[:16]


def render_index(
    searched_paths: str,
    entries: Sequence[Entry],
    message: str = "",
    ticked_keys: Collection[str] = (),
) -> str:
    """Renders the page of all reports, with links and boxes to choose two; it refreshes itself.

    Args:
      searched_paths: the searched files and directories, as text.
      entries: the reports, in the order in which to show them.
      message: an error that the user can correct on this page.
      ticked_keys: the keys of the reports whose boxes are ticked.
    """
    log_html = render_run_log(entries, ticked_keys)
    alert = f'<p class="bad" role="alert">{escape(message)}</p>' if message else ""
    toolbar = (
        f'<h2>Runs</h2><span class="faint" id="state" role="status">{escape(searched_paths)}</span>'
        '<input type="search" id="filter" placeholder="Filter runs" aria-label="Filter runs" '
        'hidden><button class="button" id="compare">Compare two</button>'
    )
    body = (
        f'<form action="/compare" class="panel"><div class="panel-head">{toolbar}</div>{alert}'
        f'<div id="log" data-version="{hash_log(render_run_log(entries))}">{log_html}</div></form>'
    )
    return _render_page("Reports", body, _read_page_resource("pages.js"))


def add_link_to_log(page: str, notice: str = "") -> str:
    """Adds a link to the log and a notice to the top of a report's page."""
    style = "margin:0;padding:.25rem 1rem;font:13px system-ui,sans-serif"
    notice_html = f' <span class="bad" role="alert">{escape(notice)}</span>' if notice else ""
    link_html = '<a href="/" style="color:var(--accent);margin-right:8px">All reports</a>'
    navigation = f'<nav style="{style}">{link_html}{notice_html}</nav>'
    return page.replace("<body>", f"<body>\n{navigation}", 1)


def render_failure(title: str, message: str) -> str:
    """Renders the page of an error, with a link to the log."""
    link_to_log = '<p><a href="/">All reports</a></p>'
    return _render_page(
        title, f'<section class="panel"><pre>{escape(message)}</pre>{link_to_log}</section>'
    )


def _render_page(title: str, body: str, script: str = "") -> str:
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
        f"<style>\n{html.read_page_style()}\n{_read_page_resource('pages.css')}</style></head>"
        f'<body><header><div class="title-row"><h1><span class="brand">ipujax</span>'
        f"{escape(title)}</h1>{theme if script else ''}</div></header>"
        f"<main>{body}</main>{scripts}</body></html>\n"
    )


def _read_page_resource(name: str) -> str:
    return importlib.resources.files("ipujax.cli.serving").joinpath(name).read_text("utf-8")
