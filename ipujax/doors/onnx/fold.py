"""Constant folding: values that depend only on constants and shapes are computed once."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Mapping

import jax
import numpy as np

from ipujax.doors.graphs import Evaluation, Graph, Node, Ref, substitute_refs
from ipujax.doors.onnx.operators.table import VersionedOperators

Constants = dict[str, np.ndarray]


@dc.dataclass(frozen=True, eq=False)
class FoldedGraph:
    """A graph whose constant values have been computed.

    Attributes:
      graph: the remaining nodes, in which constant values replace their names.
      constants: the values of all constant names.
      avals: shapes and dtypes of all names that are not constant.
    """

    graph: Graph
    constants: Constants
    avals: Mapping[str, jax.ShapeDtypeStruct]


def fold_constants(
    evaluation: Evaluation,
    operators: VersionedOperators,
    graph: Graph,
    avals: Mapping[str, jax.ShapeDtypeStruct],
    constants: Constants,
) -> FoldedGraph:
    """Evaluates a graph on shapes and replaces the values that turn out to be constant.

    Args:
      evaluation: evaluates the graph.
      operators: the evaluation's table of operators.
      graph: the whole graph.
      avals: shapes and dtypes of the inputs whose values are known only at run time.
      constants: the values of the remaining inputs.
    """
    value_of_name: dict[str, object] = {}

    def trace_graph(values: Mapping[str, object]) -> None:
        value_of_name.update(evaluation(graph, {**values, **constants}, jax.random.key(0)))

    jax.eval_shape(trace_graph, dict(avals))
    constant_of_name = {name: v for name, v in value_of_name.items() if isinstance(v, np.ndarray)}
    nodes = tuple(
        _substitute_constants(n, constant_of_name)
        for n in graph.nodes
        if operators.node_has_effect(n, graph) or not constant_of_name.keys() >= set(n.results)
    )
    outputs = tuple(constant_of_name.get(o.name, o) for o in graph.outputs)
    inputs = tuple(name for name in graph.inputs if name not in constant_of_name)
    aval_of_name = {
        name: jax.ShapeDtypeStruct(v.shape, v.dtype)
        for name, v in value_of_name.items()
        if isinstance(v, jax.Array)
    }
    return FoldedGraph(Graph(inputs, nodes, outputs, graph.graphs), constant_of_name, aval_of_name)


def names_that_decide_shapes(graph: Graph, operators: VersionedOperators) -> set[str]:
    """Returns the names whose values decide a shape, and the names these are computed from."""
    makers = {result: node for node in nodes_of_graph(graph) for result in node.results}
    deciding_names: set[str] = set()
    pending_names = [
        name for node in nodes_of_graph(graph) for name in _names_of_static_inputs(node, operators)
    ]
    while pending_names:
        name = pending_names.pop()
        if name in deciding_names:
            continue
        deciding_names.add(name)
        node = makers.get(name)
        if node is not None and not node.operator.startswith(("Shape-", "Size-")):
            pending_names += node.reads
    return deciding_names


def _names_of_static_inputs(node: Node, operators: VersionedOperators) -> Iterable[str]:
    for position in operators.static_inputs(node):
        if position < len(node.args) and isinstance(node.args[position], Ref):
            yield node.args[position].name


def nodes_of_graph(graph: Graph) -> Iterable[Node]:
    """Yields the nodes of a graph and of its inner graphs."""
    yield from graph.nodes
    for inner_graph in graph.graphs.values():
        yield from nodes_of_graph(inner_graph)


def _substitute_constants(node: Node, constant_of_name: Constants) -> Node:
    value_of_name = {name: constant_of_name.get(name, Ref(name)) for name in node.reads}
    args, kwargs = (
        substitute_refs(node.args, value_of_name),
        substitute_refs(dict(node.kwargs), value_of_name),
    )
    return dc.replace(node, args=args, kwargs=kwargs)
