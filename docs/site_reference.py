"""Writes the site's reference: a page for each public module, from its docstrings."""

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
from ipujax.driver.compile_stages import Executable, Lowered, Traced
from ipujax.driver.compiler import CompiledFunction
from ipujax.driver.saved.read_executable import LoadedExecutable

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
# The classes of the objects that `ipu.compile` and its results return, in order.
CLASSES_OF_COMPILE = (CompiledFunction, Traced, Lowered, Executable, LoadedExecutable)


def public_modules() -> Iterator[ModuleType]:
    """Yields the modules that `ipujax/__init__.pyi` lists, and the modules that those list."""
    waiting = [getattr(ipujax, name) for name in sorted(ipujax.__all__)]
    while waiting:
        module = waiting.pop(0)
        # A module without a list of public names is inside a room; a public module re-exports it.
        if isinstance(module, ModuleType) and hasattr(module, "__all__"):
            yield module
            waiting += [getattr(module, name) for name in module.__all__]


def write_pages(folder: Path) -> None:
    """Writes a page for each public module. A member of several modules is on the first's page."""
    folder.mkdir(exist_ok=True)
    page_of_member: dict[int, str] = {}
    write(folder / "ipujax.md", _root_page())
    for module in dict.fromkeys(public_modules()):
        title = module.__name__.removeprefix("ipujax.")
        members = {name: getattr(module, name) for name in module.__all__}
        elsewhere = [
            name
            for name, member in members.items()
            if isinstance(member, ModuleType)
            or page_of_member.setdefault(id(member), title) != title
        ]
        attributes = [name for member in members.values() for name in _unlisted_attributes(member)]
        hidden = ", ".join(dict.fromkeys([*elsewhere, *attributes]))
        page = PAGE.format(name=title, module=module.__name__, hidden=hidden)
        if title == "config":
            page += "\nEvery option, its default and what it acts on: [](../configuration.md).\n"
        for name in elsewhere:
            owner = page_of_member.get(id(members[name]))
            page += f"\n`{name}`: see [`{owner}`]({owner}.md).\n" if owner else ""
        write(folder / f"{title}.md", page)


def _root_page() -> str:
    """Returns the page of the root's functions, each before the classes of what it returns."""
    page = ROOT
    for name in sorted(ipujax.__all__):
        if not callable(getattr(ipujax, name)) or name == "compare":
            continue
        page += f".. autofunction:: ipujax.{name}\n\n"
        if name == "compile":
            for cls in CLASSES_OF_COMPILE:
                page += f".. autoclass:: {cls.__module__}.{cls.__qualname__}()\n"
                page += f"   :exclude-members: {', '.join(_unlisted_attributes(cls))}\n\n"
    return page + "```\n\n`compare`: see [`comparison`](comparison.md).\n"


def _unlisted_attributes(member: object) -> list[str]:
    """Returns the attributes of a class that come from other libraries or that `dir()` hides."""
    if not isinstance(member, type):
        return []
    names = [name for name in dir(member) if name[0] != "_"]
    list_names: Any = getattr(member, "__dir__", None)
    if getattr(list_names, "__module__", "") == "lowering.ground.dir_listing":
        listed = dir(object.__new__(member))
        return [name for name in names if name not in listed]
    owners = {name: cls for cls in reversed(member.__mro__) for name in vars(cls)}
    return [name for name in names if not _is_ours(owners.get(name, member))]


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("ipujax", "lowering")


def adapt_docstring(kind: str, lines: list[str]) -> None:
    """Turns a docstring, in place, into what Sphinx reads as reST and Google's style."""
    for number in reversed(range(2, len(lines))):
        before = [line for line in lines[:number] if line.strip()]
        is_indented = lines[number].startswith("    ") and not lines[number - 1].strip()
        if is_indented and before and not re.match(r"\s|[*-] |.*::$", before[-1]):
            lines[number:number] = ["::", ""]  # an example, set in from a paragraph
    if kind in ("attribute", "data", "property") and lines:
        lines[:0] = ["..", ""]  # a comment, before which no colon makes a type of words


def drop_private_arguments(signature: str | None) -> str | None:
    """Returns a signature without the arguments that begin with an underscore."""
    if signature is None or not re.search(r"[(\s]_\w+:", signature):
        return signature
    public = [word for word in signature[1:-1].split(", ") if not word.startswith("_")]
    return f"({', '.join(public[:-1] if public[-1] == '*' else public)})"


def connect(app: Sphinx) -> None:
    """Has Sphinx pass every docstring and every signature through the functions above."""

    def on_docstring(app: Sphinx, kind: str, name: str, _: Any, __: Any, lines: list[str]) -> None:
        adapt_docstring(kind, lines)

    def on_signature(
        app: Sphinx, kind: str, name: str, _: Any, __: Any, signature: str | None, result: str
    ) -> tuple[str | None, str]:
        return drop_private_arguments(signature), result

    app.connect("autodoc-process-docstring", on_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", on_signature)
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
