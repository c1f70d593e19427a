"""The pages that are not reports: the index, and what went wrong. They need no scripts."""

from __future__ import annotations

import importlib.resources
import time
from collections.abc import Collection, Sequence
from html import escape

from ipujax.cli.serving.library import Entry, Summary
from ipujax.report.words import duration


def index(
    places: str, entries: Sequence[Entry], message: str = "", chosen: Collection[str] = ()
) -> str:
    """All reports, with links to look at one and boxes to choose two.

    Args:
      places: where they were looked for.
      entries: in the order in which to show them.
      message: what went wrong, to be mended here.
      chosen: the keys of those whose boxes are ticked.
    """
    count = f"<p>{len(entries)} in {escape(places)}; reload to see new ones</p>"
    if not entries:
        hint = "<p>Reports come here by report.to_json(path), or from autoReport.</p>"
        return _page("Reports", count + hint)
    heads = "".join(
        f'<th scope="col"{" class=number" if head in ("cycles", "time") else ""}>{head}</th>'
        for head in ("", "program", "written", "cycles", "time", "memory", "")
    )
    rows = "".join(_row(entry, entry.key in chosen) for entry in entries)
    table = f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"
    wrong = f'<p class="bad" role="alert">{escape(message)}</p>' if message else ""
    button = f"{wrong}<button>Compare the two that are chosen</button>"
    form = f'<form action="/compare"><div class="wide"><table>{table}</table></div>{button}</form>'
    return _page("Reports", count + form)


def _row(entry: Entry, ticked: bool) -> str:
    path = f'<div class="path quiet" id="path-{entry.key}">{escape(str(entry.path))}</div>'
    if entry.note:
        path += f'<div class="quiet">{escape(entry.note)}</div>'
    written = escape(time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.written)))
    summary = entry.found
    if not isinstance(summary, Summary):
        trouble = f'<pre class="bad">{escape(summary)}</pre>'
        return f'<tr><td></td><td>{path}{trouble}</td><td>{written}</td><td colspan="4"></td></tr>'
    address, name = f"/report/{entry.key}", escape(summary.name or "program")
    fits = "fits" if summary.fits else '<span class="bad">does not fit</span>'
    box = (
        f'<input type="checkbox" name="report" value="{entry.key}" aria-label="choose {name}"'
        f' aria-describedby="path-{entry.key}"'
        f"{' checked' if ticked else ''}>"
    )
    link = f'<a href="{address}">{name}</a> <span class="quiet">{escape(summary.system)}</span>'
    cells = (
        f"<td>{box}</td><td>{link}{path}</td><td>{written}</td>",
        f'<td class="number">{summary.cycles:,}</td>',
        f'<td class="number">{escape(duration(summary.seconds))}</td>',
        f'<td>{fits}</td><td><a href="{address}.json">JSON</a></td>',
    )
    return f"<tr>{''.join(cells)}</tr>"


def with_way_back(page: str) -> str:
    """A report's page with a link to the index above it."""
    style = "margin:0;padding:.25rem 1rem;font:13px system-ui,sans-serif"
    link = f'<nav style="{style}"><a href="/">All reports</a></nav>'
    return page.replace("<body>", f"<body>\n{link}", 1)


def failure(title: str, message: str) -> str:
    """What went wrong, and the way back."""
    back = '<p><a href="/">All reports</a></p>'
    return _page(title, f"<pre>{escape(message)}</pre>{back}")


def _page(title: str, body: str) -> str:
    folder = importlib.resources.files("ipujax.cli.serving")
    style = folder.joinpath("pages.css").read_text("utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)} - ipujax</title><style>\n{style}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )
