"""Computes what only constants and shapes go into, once."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from ipujax.doors.graphs import Evaluation, Graph, Node, Ref, filled
from ipujax.frontends.onnx.operators.table import VersionedOperators

Constants = dict[str, np.ndarray[Any, Any]]


@dc.dataclass(frozen=True, eq=False)
class Folded:
    """A graph without what is known before it runs.

    Attributes:
      graph: the nodes that are left, in which known values stand for their names.
      constants: values of all names that are known.
      avals: shapes and dtypes of all other names.
    """

    graph: Graph
    constants: Constants
    avals: Mapping[str, jax.ShapeDtypeStruct]


def folded(
    evaluation: Evaluation,
    operators: VersionedOperators,
    graph: Graph,
    avals: Mapping[str, jax.ShapeDtypeStruct],
    constants: Constants,
) -> Folded:
    """Evaluates a graph on shapes, and keeps what turns out to be known.

    Args:
      evaluation: what evaluates it.
      operators: its table.
      graph: all of it.
      avals: of the inputs whose values only running tells.
      constants: values of the other inputs.
    """
    found: dict[str, Any] = {}

    def run(values: Mapping[str, Any]) -> None:
        found.update(evaluation(graph, {**values, **constants}, jax.random.key(0)))

    jax.eval_shape(run, dict(avals))
    known = {name: v for name, v in found.items() if isinstance(v, np.ndarray)}
    nodes = tuple(
        _filled(n, known)
        for n in graph.nodes
        if operators.acts(n, graph) or not known.keys() >= set(n.results)
    )
    outputs = tuple(known.get(o.name, o) for o in graph.outputs)
    inputs = tuple(name for name in graph.inputs if name not in known)
    left = {
        name: jax.ShapeDtypeStruct(v.shape, v.dtype)
        for name, v in found.items()
        if isinstance(v, jax.Array)
    }
    return Folded(Graph(inputs, nodes, outputs, graph.graphs), known, left)


def decide_shapes(graph: Graph, operators: VersionedOperators) -> set[str]:
    """The names whose values decide a shape, those that they are computed of too."""
    makers = {result: node for node in all_nodes(graph) for result in node.results}
    found: set[str] = set()
    left = [name for node in all_nodes(graph) for name in _decisive(node, operators)]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        node = makers.get(name)
        if node is not None and not node.operator.startswith(("Shape-", "Size-")):
            left += node.reads
    return found


def _decisive(node: Node, operators: VersionedOperators) -> Iterable[str]:
    for position in operators.static_inputs(node):
        if position < len(node.args) and isinstance(node.args[position], Ref):
            yield node.args[position].name


def all_nodes(graph: Graph) -> Iterable[Node]:
    """The nodes of a graph and of those inside it."""
    yield from graph.nodes
    for inner in graph.graphs.values():
        yield from all_nodes(inner)


def _filled(node: Node, known: Constants) -> Node:
    named = {name: known.get(name, Ref(name)) for name in node.reads}
    args, kwargs = filled(node.args, named), filled(dict(node.kwargs), named)
    return dc.replace(node, args=args, kwargs=kwargs)
