"""Pages as single files: a template, style sheets, and ES modules that become one script.

Paths are those of files in this folder, such as `page/main.js`.
"""

from __future__ import annotations

import functools
import html
import importlib.resources
import posixpath
import re
from collections.abc import Mapping

from ipujax.ground import InternalError

_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_UNREAD = re.compile(r"^ *//.*\n|^ */\*\*(?s:.*?)\*/\n|^ +", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|class|const|let)", re.MULTILINE)
_FRAME_HEIGHT = 640  # pixels


def frame_page(page: str) -> str:
    """Returns a page as a frame for notebooks, whose lower edge can be dragged.

    It is sandboxed: its scripts run, and can touch nothing outside.
    """
    style = (
        f"width:100%;height:{_FRAME_HEIGHT}px;border:0;resize:vertical;overflow:auto;display:block"
    )
    source = html.escape(page)
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{source}"></iframe>'


def fill_template(path: str, substitutions: Mapping[str, str]) -> str:
    """Returns the text of a template, with substitutions for what it has in double braces."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: substitutions[match[1]], read_page_file(path))


@functools.cache
def read_style(*paths: str) -> str:
    """Reads style sheets as one."""
    return "\n".join(map(read_page_file, paths))


@functools.cache
def bundle_scripts(first: str) -> str:
    """Bundles a module, and those that it imports, into one script, each after its imports."""
    paths: list[str] = []
    _order_module_after_imports(first, (), paths)
    return "\n".join(strip_module(read_page_file(path)) for path in paths)


def read_page_file(path: str) -> str:
    """Reads a file of this folder."""
    return importlib.resources.files("ipujax.report.presentation").joinpath(path).read_text("utf-8")


def strip_module(source: str) -> str:
    """Strips a module of comments, indentation, imports and exports."""
    return _EXPORT.sub("", _UNREAD.sub("", _IMPORT.sub("", source))).strip() + "\n"


def _order_module_after_imports(path: str, importers: tuple[str, ...], paths: list[str]) -> None:
    if path in importers:
        raise InternalError(f"modules of the HTML page import each other: {(*importers, path)}")
    if path in paths:
        return
    for _, imported in _IMPORT.findall(read_page_file(path)):
        _order_module_after_imports(_resolve_import_path(path, imported), (*importers, path), paths)
    paths.append(path)


def _resolve_import_path(path: str, imported: str) -> str:
    """Returns the path in the folder of an import such as `../format.js` in a module."""
    return posixpath.normpath(posixpath.join(path, "..", imported))
