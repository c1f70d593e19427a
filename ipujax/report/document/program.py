"""The program tree as columns of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from ipujax.report.document.strings import Strings
from lowering import machine

_KINDS = frozenset(get_args(machine.NodeKind))
_COLUMNS = ("kind", "name", "origin", "ipu", "count", "cycles", "children")
_NONE = -1  # the IPU of what concerns several or none


def encode(root: machine.ProgramNode, strings: Strings) -> dict[str, list[Any]]:
    """Nodes in an order in which parts come first; equal ones are there once."""
    rows: dict[tuple[Any, ...], int] = {}
    known: dict[int, int] = {}

    def number(node: machine.ProgramNode) -> int:
        if id(node) not in known:
            row = (
                strings.number(node.kind),
                strings.number(node.name),
                strings.number(node.origin),
                _NONE if node.ipu is None else node.ipu,
                node.count,
                node.cycles,
                tuple(map(number, node.children)),
            )
            known[id(node)] = rows.setdefault(row, len(rows))
        return known[id(node)]

    number(root)
    columns = zip(*rows, strict=True)
    found = dict(zip(_COLUMNS, map(list, columns), strict=True))
    return {**found, "children": [list(children) for children in found["children"]]}


def decode(data: Mapping[str, Any], texts: list[str]) -> machine.ProgramNode:
    """The root of the tree that `encode` wrote.

    Raises:
      LookupError: a part that comes after the whole, a text that is not there, or no nodes.
      ValueError: columns of different lengths, or a kind of node that does not exist.
    """
    nodes: list[machine.ProgramNode] = []
    rows = zip(*(data[column] for column in _COLUMNS), strict=True)
    for kind, name, origin, ipu, count, cycles, children in rows:
        nodes.append(
            machine.ProgramNode(
                kind=_kind(texts[kind]),
                name=texts[name],
                origin=texts[origin],
                ipu=None if ipu == _NONE else ipu,
                count=count,
                cycles=cycles,
                children=tuple([nodes[child] for child in children]),
            )
        )
    return nodes[-1]


def _kind(text: str) -> machine.NodeKind:
    if text not in _KINDS:
        raise ValueError(f"there is no node of kind {text!r}")
    return cast(machine.NodeKind, text)
