"""The forward pass of a model on one micro-batch, with its loss and anchors."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors import graphs
from ipujax.doors.graphs import GRADIENT, Evaluation, Graph, Named, Node, Ref
from ipujax.doors.onnx import ONNX, ConvertedGraph
from ipujax.operators import keep_lines_apart
from ipujax.popart.options import RecomputationType
from ipujax.popart.popart_recomputation import NamingOperators, choose_recomputed_results


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class Forward(graphs.Forward):
    """The forward pass of a model on one micro-batch, which returns the anchors.

    Attributes:
      model: the model.
      moved: variables that are not trained, but become what a node gives, such as moving means.
      recomputation: which results the backward pass has computed again.
    """

    model: ConvertedGraph
    moved: Mapping[str, str] = dc.field(default_factory=dict[str, str])
    recomputation: RecomputationType = RecomputationType.NoRecompute

    def __post_init__(self) -> None:
        _ = self.recomputed  # raises an error if the choice cannot be followed

    @functools.cached_property
    def graph(self) -> Graph:
        """The needed part of the graph, with inputs to differentiate anchors by."""
        needed_names = {*self.sent, *self.gradients_of, *self.moved.values()}
        needed_names |= {self.loss} if self.loss else set()
        return _add_perturbations(
            select_needed_nodes(self.model.graph, needed_names, acting=True), self.gradients_of
        )

    @functools.cached_property
    def input_avals(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The inputs of the model that are needed."""
        names = {*self.sent, self.loss}.union(*(node.reads for node in self.graph.nodes))
        return {name: aval for name, aval in self.model.inputs.items() if name in names}

    @functools.cached_property
    def trained(self) -> tuple[str, ...]:
        """The variables by which the loss is differentiated."""
        if self.loss is None:
            return ()
        names = find_differentiable_names(self.model.graph, self.loss)
        candidates = (name for name in self.model.variables if name in names)
        return tuple(name for name in candidates if name not in self.moved)

    @functools.cached_property
    def recomputed(self) -> frozenset[str]:
        """The results that the backward pass recomputes."""
        if self.loss is None:
            return frozenset()
        nodes = select_needed_nodes(self.model.graph, {self.loss}).nodes
        avals, stage_of = self.model.avals, self.placement.stage_of
        return choose_recomputed_results(nodes, self.loss, self.recomputation, avals, stage_of)

    @property
    def policy(self) -> Callable[..., bool] | None:
        """As that of every `Forward`."""
        if not self.recomputed:
            return None
        results = (name for node in self.graph.nodes for name in node.results)
        stored_names = [name for name in results if name not in self.recomputed]
        return jax.checkpoint_policies.save_only_these_names(*stored_names)

    @property
    def anchors(self) -> tuple[str, ...]:
        """The names of the tensors that are sent to the host, in the order of sending."""
        return (*self.sent, *(GRADIENT + name for name in self.gradients_of))

    def perturbations(self) -> Named:
        """As that of every `Forward`."""
        avals = {name: self.model.avals[name] for name in self.gradients_of}
        return {name: jnp.zeros(aval.shape, aval.dtype) for name, aval in avals.items()}

    def evaluate(
        self, variables: Named, added: Named, inputs: tuple[Any, ...], key: jax.Array
    ) -> tuple[Named, Mapping[str, jax.Array]]:
        """As that of every `Forward`."""
        values = {**variables, **dict(zip(self.input_avals, inputs, strict=True))}
        values |= {GRADIENT + name: value for name, value in added.items()}
        result_names = {name for name in (self.loss, *self.sent, *self.moved.values()) if name}

        def evaluate(values: Named) -> Named:
            operators = self.count_gradients_of(ONNX, values)
            operators = NamingOperators(operators) if self.recomputed else operators
            with keep_lines_apart():
                named = Evaluation(operators, self.placement.scopes)(self.graph, values, key)
            return {name: named[name] for name in result_names if name in named}

        if self.recomputed and not self.placement.is_pipelined:  # which does so for each stage
            evaluate = jax.checkpoint(evaluate, policy=self.policy)
        named = evaluate(values)
        return named, {v: named[n].astype(values[v].dtype) for v, n in self.moved.items()}


def find_differentiable_names(graph: Graph, loss: str) -> frozenset[str]:
    """Finds the tensors by which a loss can be differentiated: those that are not detached."""
    attached_nodes = (n for n in graph.nodes if not n.operator.startswith("ai.graphcore.Detach-"))
    nodes = select_needed_nodes(dc.replace(graph, nodes=tuple(attached_nodes)), {loss}).nodes
    return frozenset({loss}).union(*(node.reads for node in nodes))


def select_needed_nodes(graph: Graph, names: Iterable[str], *, acting: bool = False) -> Graph:
    """Selects the nodes of a graph that some values depend on.

    Args:
      graph: the whole graph.
      names: the names of the values.
      acting: whether to include nodes with side effects, such as prints.
    """
    needed_names = set(names)
    needed_nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if needed_names.intersection(node.results) or (
            acting and ONNX.node_has_effect(node, graph)
        ):
            needed_nodes.append(node)
            needed_names |= node.reads
    return dc.replace(graph, nodes=tuple(reversed(needed_nodes)))


def _add_perturbations(graph: Graph, names: Sequence[str]) -> Graph:
    """Adds an input to each of some values, by which it can be differentiated."""
    perturbed_names = set(names)

    def make_addition(name: str) -> Node:
        # A name that has a value already gets a new one.
        add = ONNX.resolve_version("Add", 7)
        return Node(add, (Ref(name), Ref(GRADIENT + name)), {}, (name,), (None,))

    nodes: list[Node] = [make_addition(name) for name in graph.inputs if name in perturbed_names]
    for node in graph.nodes:
        nodes += [node, *(make_addition(name) for name in node.results if name in perturbed_names)]
    inputs = (*graph.inputs, *(GRADIENT + name for name in names))
    return dc.replace(graph, inputs=inputs, nodes=tuple(nodes))
