"""A report as an HTML page: one file that needs nothing else, on any machine, without a network.

The page's scripts are the ES modules of the folder `page`. `page.html` becomes a page by putting
in the style, the modules as one script, and the report documents, compressed.
"""

from __future__ import annotations

import base64
import functools
import gzip
import html
import importlib.resources
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ipujax.errors import InternalError

_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_UNREAD = re.compile(r"^ *//.*\n|^ */\*\*(?s:.*?)\*/\n|^ +", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|class|const|let)", re.MULTILINE)
_FIRST = "main.js"
_STYLES = ("page.css", "views.css", "dialogs.css")
_LEVEL = 6  # of gzip: higher ones take several times as long and save a few percent
_INLINE_HEIGHT = 640  # pixels


def page(documents: Sequence[Mapping[str, Any]], labels: Sequence[str] | None = None) -> str:
    """The page of a report, or of two that are compared.

    Args:
      documents: one or two, as `Report.to_dict` gives them.
      labels: what to call each of them, such as the names of their files; by default the names of
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
    told = labels or [""] * len(documents)
    names = dict.fromkeys(
        label or str(document["name"] or "program")
        for label, document in zip(told, documents, strict=True)
    )
    parts = {
        "title": html.escape(f"{' and '.join(names)} - ipujax report"),
        "style": style(),
        "script": script(),
        "reports": "\n".join(map(_packed, documents, told)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page.html"))


def inline(documents: Sequence[Mapping[str, Any]]) -> str:
    """The page as a frame for notebooks, whose lower edge can be dragged.

    It is sandboxed: its scripts run, and can touch nothing outside.

    Args:
      documents: as for `page`.
    """
    source = html.escape(page(documents))
    style = (
        f"width:100%;height:{_INLINE_HEIGHT}px;border:0;resize:vertical;overflow:auto;display:block"
    )
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{source}"></iframe>'


@functools.cache
def style() -> str:
    """The page's style, for pages that stand beside it."""
    return "\n".join(_read(path) for path in _STYLES)


@functools.cache
def script() -> str:
    """All modules as one: every module after those that it imports."""
    ordered: list[str] = []
    _visit(_FIRST, (), ordered)
    return "\n".join(_stripped(_read(path)) for path in ordered)


def _visit(path: str, above: tuple[str, ...], ordered: list[str]) -> None:
    if path in above:
        raise InternalError(f"modules of the HTML page import each other: {(*above, path)}")
    if path in ordered:
        return
    for _, imported in _IMPORT.findall(_read(path)):
        _visit(_resolve(path, imported), (*above, path), ordered)
    ordered.append(path)


def _resolve(path: str, imported: str) -> str:
    """The path in the folder of an import such as `../format.js`, seen from a module."""
    return posixpath.normpath(posixpath.join(path, "..", imported))


def _stripped(source: str) -> str:
    """A module as a part of the script: without comments and indentation, a fifth of its bytes."""
    return _EXPORT.sub("", _UNREAD.sub("", _IMPORT.sub("", source))).strip() + "\n"


def _packed(document: Mapping[str, Any], label: str) -> str:
    """Compressed, and in letters that need no escaping."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    # Without a time of writing, equal reports are equal files.
    packed = base64.b64encode(gzip.compress(text.encode(), _LEVEL, mtime=0)).decode()
    named = f' data-label="{html.escape(label)}"' if label else ""
    return f'<script type="application/octet-stream" class="report"{named}>{packed}</script>'


def _read(path: str) -> str:
    folder = importlib.resources.files("ipujax.report.presentation")
    return folder.joinpath("page", path).read_text("utf-8")
