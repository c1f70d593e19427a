"""The reference of the site: a page for each public module, written from its docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from site_sources import write
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject

import ipujax
from ipujax.driver.compiler import CompiledFunction
from ipujax.driver.saved.read import LoadedExecutable
from ipujax.driver.stages import Executable, Lowered, Traced
from ipujax.ground.missing_names import public_names

PAGE = """\
# {name}

```{{eval-rst}}
.. automodule:: {module}
   :exclude-members: {hidden}
```
"""
ROOT = """\
# ipujax

Functions of the package itself, and what they give.

```{eval-rst}
"""
# What `ipu.compile` leads to, in order.
OF_COMPILE = (CompiledFunction, Traced, Lowered, Executable, LoadedExecutable)


def public_modules() -> Iterator[ModuleType]:
    """All that are listed in `ipujax/__init__.pyi`, and those that they list."""
    waiting = [getattr(ipujax, name) for name in sorted(public_names())]
    while waiting:
        module = waiting.pop(0)
        if isinstance(module, ModuleType) and module.__name__.startswith("ipujax."):
            yield module
            waiting += [getattr(module, name) for name in module.__all__]


def write_pages(folder: Path) -> None:
    """A page for each public module; what several of them have is on the first one's page."""
    folder.mkdir(exist_ok=True)
    told: dict[int, str] = {}
    write(folder / "ipujax.md", _root())
    for module in dict.fromkeys(public_modules()):
        name = module.__name__.removeprefix("ipujax.")
        members = {each: getattr(module, each) for each in module.__all__}
        elsewhere = [
            each
            for each, value in members.items()
            if isinstance(value, ModuleType) or told.setdefault(id(value), name) != name
        ]
        inner = [each for value in members.values() for each in _inner(value)]
        hidden = ", ".join(dict.fromkeys([*elsewhere, *inner]))
        page = PAGE.format(name=name, module=module.__name__, hidden=hidden)
        if name == "config":
            page += "\nEvery option, its default and what it acts on: [](../configuration.md).\n"
        for each in elsewhere:
            owner = told.get(id(members[each]))
            page += f"\n`{each}`: see [`{owner}`]({owner}.md).\n" if owner else ""
        write(folder / f"{name}.md", page)


def _root() -> str:
    """The functions of the root, each before the classes of what it gives."""
    page = ROOT
    for name in sorted(public_names()):
        if not isinstance(getattr(ipujax, name), ModuleType) and name != "compare":
            page += f".. autofunction:: ipujax.{name}\n\n"
        if name == "compile":
            for kind in OF_COMPILE:
                page += f".. autoclass:: {kind.__module__}.{kind.__qualname__}()\n"
                page += f"   :exclude-members: {', '.join(_inner(kind))}\n\n"
    return page + "```\n\n`compare`: see [`comparison`](comparison.md).\n"


def _inner(value: Any) -> list[str]:
    """What a class has of other libraries, and for us, which its objects do not list."""
    if not isinstance(value, type):
        return []
    names = [name for name in dir(value) if name[0] != "_"]
    listed: Any = getattr(value, "__dir__", None)
    if getattr(listed, "__module__", "") == "lowering.ground.dir_listing":
        shown = dir(object.__new__(value))
        return [name for name in names if name not in shown]
    owners = {name: kind for kind in reversed(value.__mro__) for name in vars(kind)}
    return [name for name in names if not _is_ours(owners.get(name, value))]


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("ipujax", "lowering")


def shown(what: str, lines: list[str]) -> None:
    """Makes a docstring what Sphinx takes for reST and Google's style, in place."""
    for number in reversed(range(2, len(lines))):
        before = [line for line in lines[:number] if line.strip()]
        begins = lines[number].startswith("    ") and not lines[number - 1].strip()
        if begins and before and not re.match(r"\s|[*-] |.*::$", before[-1]):
            lines[number:number] = ["::", ""]  # an example, set in from a paragraph
    if what in ("attribute", "data", "property") and lines:
        lines[:0] = ["..", ""]  # a comment, before which no colon makes a type of words


def without_private(arguments: str | None) -> str | None:
    """A signature without the arguments that begin with an underscore."""
    if arguments is None or not re.search(r"[(\s]_\w+:", arguments):
        return arguments
    left = [each for each in arguments[1:-1].split(", ") if not each.startswith("_")]
    return f"({', '.join(left[:-1] if left[-1] == '*' else left)})"


def connect(app: Sphinx) -> None:
    """Reads along with Sphinx."""

    def on_docstring(app: Sphinx, what: str, name: str, _: Any, __: Any, lines: list[str]) -> None:
        shown(what, lines)

    def on_signature(
        app: Sphinx, what: str, name: str, _: Any, __: Any, arguments: str | None, result: str
    ) -> tuple[str | None, str]:
        return without_private(arguments), result

    app.connect("autodoc-process-docstring", on_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", on_signature)
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
