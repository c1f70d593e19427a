"""A report as an HTML page: one file that needs nothing else, on any machine, without a network.

The page's scripts are the ES modules of the folder `page`. `page.html` becomes a page by putting
in the style, the modules as one script, and the report documents, compressed.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ipujax.report.presentation.bundle import (
    bundle_scripts,
    fill_template,
    frame_page,
    read_style,
)
from ipujax.report.presentation.compared_report import read_report_parts
from ipujax.report.presentation.comparison import compare_reports

_FIRST = "page/main.js"
_STYLES = ("page/page.css", "page/views.css", "page/dialogs.css")
_LEVEL = 6  # of gzip: higher ones take several times as long and save a few percent


def render_html_page(
    documents: Sequence[Mapping[str, Any]], labels: Sequence[str] | None = None
) -> str:
    """Renders the HTML page of a report, or of two that are compared.

    Args:
      documents: one or two, as `Report.to_dict` returns them.
      labels: a name for each of them, such as the name of its file; by default the names of
        their programs.

    Raises:
      ValueError: no documents, more than two, or another number of labels.
    """
    if len(documents) not in (1, 2):
        raise ValueError(
            f"an HTML page shows one report or compares two, but was given {len(documents)}: "
            "write further pages for the others"
        )
    if labels is not None and len(labels) != len(documents):
        raise ValueError(f"{len(documents)} documents have {len(labels)} labels: give one for each")
    label_of_document = labels or [""] * len(documents)
    names = dict.fromkeys(
        label or str(document["name"] or "program")
        for label, document in zip(label_of_document, documents, strict=True)
    )
    substitutions = {
        "title": html.escape(f"{' and '.join(names)} - ipujax report"),
        "style": read_page_style(),
        "script": bundle_page_scripts(),
        "reports": "\n".join(
            [
                *map(_pack_document, documents, label_of_document),
                *([_pack_comparison(documents)] if len(documents) > 1 else []),
            ]
        ),
    }
    return fill_template("page/page.html", substitutions)


def render_notebook_iframe(documents: Sequence[Mapping[str, Any]]) -> str:
    """Renders the page as a frame for notebooks.

    Args:
      documents: as for `render_html_page`.
    """
    return frame_page(render_html_page(documents))


def read_page_style() -> str:
    """Reads the page's style sheets, also for other pages."""
    return read_style(*_STYLES)


def bundle_page_scripts() -> str:
    """Bundles the page's modules into one script."""
    return bundle_scripts(_FIRST)


def _pack_document(document: Mapping[str, Any], label: str) -> str:
    """Returns the script element that holds a document."""
    return _pack_json(document, "report", f' data-label="{html.escape(label)}"' if label else "")


def _pack_comparison(documents: Sequence[Mapping[str, Any]]) -> str:
    """Returns the script element that says what belongs together in two documents."""
    parts = map(read_report_parts, documents)
    return _pack_json(compare_reports(*parts).to_dict(), "comparison")


def _pack_json(data: Mapping[str, Any], kind: str, attributes: str = "") -> str:
    """Returns a script element of a class that holds data, compressed and in base 64."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    # Without a time of writing, equal reports are equal files.
    encoded = base64.b64encode(gzip.compress(text.encode(), _LEVEL, mtime=0)).decode()
    return f'<script type="application/octet-stream" class="{kind}"{attributes}>{encoded}</script>'
