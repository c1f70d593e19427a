"""A traced graph: operators applied one after the other to values that have names."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple


class Ref(NamedTuple):
    """Stands for the value that a name has at that point of the graph."""

    name: str


@dc.dataclass(frozen=True, eq=False)
class Node:
    """An operator applied to arguments.

    Attributes:
      operator: its name in the table of operators.
      args: numbers, strings, `Ref`s and so on, or lists and tuples of them.
      kwargs: the same, by keyword.
      results: the names that the results get, in order. A name that has a value already gets a new
        one, which is what an operator does that works in place.
      avals: shapes and dtypes of the results, where the library tells; else None for each.
      scope: the module that it is in, as the library names it; empty for the outermost.
      where: the user's line, `file:line`; None if nobody knows it.
      marks: what the user has said of it, such as its block.
    """

    operator: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dc.field(default_factory=dict[str, Any])
    results: tuple[str, ...] = ()
    avals: tuple[Any, ...] = ()
    scope: str = ""
    where: str | None = None
    marks: Mapping[str, Any] = dc.field(default_factory=dict[str, Any])

    @property
    def reads(self) -> set[str]:
        """The names of the values that it needs."""
        return names_in((*self.args, *self.kwargs.values()))

    def __str__(self) -> str:
        return f"{self.operator}{of_module(self.scope)}"


def of_module(scope: str) -> str:
    """What errors say of where an operator is; nothing for the outermost module."""
    return f" of module {scope!r}" if scope else ""


def names_in(tree: Any) -> set[str]:
    """The names in a structure of `Ref`s and other things."""
    if isinstance(tree, Ref):
        return {tree.name}
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    return set[str]().union(*map(names_in, tree)) if isinstance(tree, list | tuple) else set()


@dc.dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in order of execution.

    Attributes:
      inputs: names of the values to begin with.
      nodes: the operators.
      outputs: what the graph gives: `Ref`s or constants.
      graphs: graphs inside it, by name, that its operators call, such as branches.
    """

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    graphs: Mapping[str, Graph] = dc.field(default_factory=dict[str, "Graph"])

    def sources(self, names: Iterable[str], is_cut: Callable[[Node], bool]) -> set[str]:
        """The inputs that some values are made of.

        Args:
          names: of the values, as they are in the end.
          is_cut: whether what a node gives does not count as made of what it reads.
        """
        wanted = set(names)
        for node in reversed(self.nodes):
            if wanted.isdisjoint(node.results):
                continue
            wanted.difference_update(node.results)
            if not is_cut(node):
                wanted |= node.reads
        return wanted.intersection(self.inputs)

    def operators(self) -> dict[str, list[Node]]:
        """All nodes by their operators, those of inner graphs too."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            found.setdefault(node.operator, []).append(node)
        for graph in self.graphs.values():
            for operator, nodes in graph.operators().items():
                found.setdefault(operator, []).extend(nodes)
        return found
