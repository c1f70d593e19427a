"""Imports go one way: no module needs itself, however far around, and the root has no workshop."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import ipujax
import ipujax as ipu
from ipujax.errors import MissingExtraError
from tests.harness import ROOT

PACKAGES = ("ipujax", "lowering")


@cache
def modules() -> dict[str, Path]:
    """Every module of the packages, by its dotted name."""
    found: dict[str, Path] = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def needed_at_run_time(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements, those inside functions too, but not those for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from needed_at_run_time(ast.Module(node.orelse, []))
        else:
            yield from needed_at_run_time(node)


def imported(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules of ours that a file imports."""
    names: set[str] = set()
    for node in needed_at_run_time(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        else:
            full = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            names.update(name if name in known else str(node.module) for name in full.values())
    return names & known.keys()


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules that import one another in turn, the first one twice; none if there are none."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph[name] - {name}):
            if found := visit(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next(filter(None, (visit(name, []) for name in sorted(graph))), [])


def test_no_module_imports_itself_in_a_circle() -> None:
    known = modules()
    graph = {name: imported(path, known) for name, path in known.items()}
    assert not (found := circle(graph)), " -> ".join(found)


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": set[str]()}, []),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set[str]()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c", "b"]),
    ],
)
def test_circles_are_found(graph: dict[str, set[str]], found: list[str]) -> None:
    assert circle(graph) == found


def test_the_root_holds_public_names_only() -> None:
    private = [path.name for path in (ROOT / "ipujax").glob("_[!_]*.py")]
    assert not private, f"give these a room: {private}"


@pytest.mark.parametrize("name", ipujax.__all__)
def test_public_modules_list_what_is_public(name: str) -> None:
    try:
        module = getattr(ipu, name)
    except MissingExtraError as missing:
        pytest.skip(str(missing))
    if isinstance(module, ModuleType):
        assert dir(module) == sorted(module.__all__)
        assert all(hasattr(module, each) for each in module.__all__ if each != "layers")
