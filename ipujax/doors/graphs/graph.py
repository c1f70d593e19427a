"""Graphs of operators that are applied in order to named values."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ipujax.ground import PyTree, SourceFrame


class Ref(NamedTuple):
    """A reference to the value that a name has at that point of the graph."""

    name: str


@dc.dataclass(frozen=True, eq=False)
class Node:
    """An operator applied to arguments.

    Attributes:
      operator: its name in the table of operators.
      args: the positional arguments: numbers, strings, `Ref`s, or lists and tuples of them.
      kwargs: the keyword arguments.
      results: the names of the results, in order. An operator that works in place gives a new value
        to a name that has one already.
      avals: shapes and dtypes of the results; None for each that the library does not report.
      scope: the path of the module that contains it; empty for the outermost module.
      where: the user's source line, `file:line`; None if it is unknown.
      marks: the user's annotations, such as its block.
      frames: the user's source lines behind it, the outermost first; () if they are unknown.
    """

    operator: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dc.field(default_factory=dict[str, Any])
    results: tuple[str, ...] = ()
    avals: tuple[Any, ...] = ()
    scope: str = ""
    where: str | None = None
    marks: Mapping[str, Any] = dc.field(default_factory=dict[str, Any])
    frames: tuple[SourceFrame, ...] = ()

    @property
    def reads(self) -> set[str]:
        """The names of the values that the node reads."""
        return names_of_refs((*self.args, *self.kwargs.values()))

    def __str__(self) -> str:
        return f"{self.operator}{describe_module(self.scope)}"


def describe_module(scope: str) -> str:
    """Returns ` of module '<scope>'` for error messages; an empty text for the outermost module."""
    return f" of module {scope!r}" if scope else ""


def names_of_refs(tree: PyTree) -> set[str]:
    """Returns the names of all `Ref`s in a structure."""
    if isinstance(tree, Ref):
        return {tree.name}
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    return set[str]().union(*map(names_of_refs, tree)) if isinstance(tree, list | tuple) else set()


@dc.dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in order of execution, with their inputs, outputs and inner graphs.

    Attributes:
      inputs: the names of the graph's arguments.
      nodes: the operators.
      outputs: `Ref`s or constants that the graph returns.
      graphs: inner graphs by name that its operators call, such as branches.
    """

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    graphs: Mapping[str, Graph] = dc.field(default_factory=dict[str, "Graph"])

    def map_nodes(self, change_node: Callable[[Node], Node]) -> Graph:
        """Returns the graph with a function applied to its nodes, and to those of inner graphs."""
        inner_graphs = {name: graph.map_nodes(change_node) for name, graph in self.graphs.items()}
        return dc.replace(self, nodes=tuple(map(change_node, self.nodes)), graphs=inner_graphs)

    def use_strided_groups(self, operators: Collection[str]) -> Graph:
        """Returns the graph in which group normalizations are over every n-th channel.

        Args:
          operators: the names of its operators that normalize groups.
        """
        return self.map_nodes(
            lambda node: (
                dc.replace(node, kwargs={**node.kwargs, "strided": True})
                if node.operator in operators
                else node
            )
        )

    def find_source_inputs(self, names: Iterable[str], is_cut: Callable[[Node], bool]) -> set[str]:
        """Returns the inputs that some values are computed from.

        Args:
          names: the names of the values at the end of the graph.
          is_cut: returns whether a node's results count as independent of what it reads.
        """
        required_names = set(names)
        for node in reversed(self.nodes):
            if required_names.isdisjoint(node.results):
                continue
            required_names.difference_update(node.results)
            if not is_cut(node):
                required_names |= node.reads
        return required_names.intersection(self.inputs)

    def operators(self) -> dict[str, list[Node]]:
        """Returns all nodes by operator, those of inner graphs included."""
        nodes_of_operator: dict[str, list[Node]] = {}
        for node in self.nodes:
            nodes_of_operator.setdefault(node.operator, []).append(node)
        for graph in self.graphs.values():
            for operator, nodes in graph.operators().items():
                nodes_of_operator.setdefault(operator, []).extend(nodes)
        return nodes_of_operator
