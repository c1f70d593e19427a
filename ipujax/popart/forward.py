"""The forward pass of a model, as training and inference take it."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors import graphs
from ipujax.doors.graphs import GRADIENT, Evaluation, Graph, Named, Node, Ref
from ipujax.frontends.onnx.model import Converted
from ipujax.frontends.onnx.operators import ONNX
from ipujax.popart.options import RecomputationType
from ipujax.popart.recomputation import NamingOperators, recomputed


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class Forward(graphs.Forward):
    """A micro-batch of a model; it sends the anchors that are not known before it runs.

    Attributes:
      model: the model.
      moved: variables that are not trained, but become what a node gives, such as moving means.
      recomputation: which results the backward pass has computed again.
    """

    model: Converted
    moved: Mapping[str, str] = dc.field(default_factory=dict[str, str])
    recomputation: RecomputationType = RecomputationType.NoRecompute

    def __post_init__(self) -> None:
        _ = self.recomputed  # which refuses what cannot be

    @functools.cached_property
    def graph(self) -> Graph:
        """What is needed of the model's graph, with a place to differentiate by where needed."""
        wanted = {*self.sent, *self.gradients_of, *self.moved.values()}
        wanted |= {self.loss} if self.loss else set()
        return _perturbed(needed(self.model.graph, wanted, acting=True), self.gradients_of)

    @functools.cached_property
    def inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Those of the model's inputs that are needed."""
        names = {*self.sent, self.loss}.union(*(node.reads for node in self.graph.nodes))
        return {name: aval for name, aval in self.model.inputs.items() if name in names}

    @functools.cached_property
    def trained(self) -> tuple[str, ...]:
        """The variables that the loss has a gradient by."""
        if self.loss is None:
            return ()
        names = followed(self.model.graph, self.loss)
        candidates = (name for name in self.model.variables if name in names)
        return tuple(name for name in candidates if name not in self.moved)

    @functools.cached_property
    def recomputed(self) -> frozenset[str]:
        """The results that the backward pass has computed again."""
        if self.loss is None:
            return frozenset()
        nodes = needed(self.model.graph, {self.loss}).nodes
        avals, stage_of = self.model.avals, self.placement.stage_of
        return recomputed(nodes, self.loss, self.recomputation, avals, stage_of)

    @property
    def policy(self) -> Callable[..., bool] | None:
        """As that of every `Forward`."""
        if not self.recomputed:
            return None
        results = (name for node in self.graph.nodes for name in node.results)
        kept = [name for name in results if name not in self.recomputed]
        return jax.checkpoint_policies.save_only_these_names(*kept)

    @property
    def anchors(self) -> tuple[str, ...]:
        """The names of all that is sent, in this order."""
        return (*self.sent, *(GRADIENT + name for name in self.gradients_of))

    def perturbations(self) -> Named:
        """As that of every `Forward`."""
        avals = {name: self.model.avals[name] for name in self.gradients_of}
        return {name: jnp.zeros(aval.shape, aval.dtype) for name, aval in avals.items()}

    def evaluate(
        self, variables: Named, added: Named, inputs: tuple[Any, ...], key: jax.Array
    ) -> tuple[Named, Mapping[str, jax.Array]]:
        """As that of every `Forward`."""
        values = {**variables, **dict(zip(self.inputs, inputs, strict=True))}
        values |= {GRADIENT + name: value for name, value in added.items()}
        wanted = {name for name in (self.loss, *self.sent, *self.moved.values()) if name}

        def evaluate(values: Named) -> Named:
            operators = self.counted(ONNX, values)
            operators = NamingOperators(operators) if self.recomputed else operators
            named = Evaluation(operators, self.placement.scopes)(self.graph, values, key)
            return {name: named[name] for name in wanted if name in named}

        if self.recomputed and not self.placement.is_pipelined:  # which does so for each stage
            evaluate = jax.checkpoint(evaluate, policy=self.policy)
        named = evaluate(values)
        return named, {v: named[n].astype(values[v].dtype) for v, n in self.moved.items()}


def followed(graph: Graph, loss: str) -> frozenset[str]:
    """The tensors that a loss has a gradient by: what is detached has none."""
    open_nodes = (n for n in graph.nodes if not n.operator.startswith("ai.graphcore.Detach-"))
    nodes = needed(dc.replace(graph, nodes=tuple(open_nodes)), {loss}).nodes
    return frozenset({loss}).union(*(node.reads for node in nodes))


def needed(graph: Graph, names: Iterable[str], *, acting: bool = False) -> Graph:
    """The nodes of a graph that some values are computed of.

    Args:
      graph: all of it.
      names: of the values.
      acting: whether nodes that act by themselves, such as prints, are among them.
    """
    left = set(names)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if left.intersection(node.results) or (acting and ONNX.acts(node, graph)):
            kept.append(node)
            left |= node.reads
    return dc.replace(graph, nodes=tuple(reversed(kept)))


def _perturbed(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with something added to some values, by which it can be differentiated."""
    wanted = set(names)

    def added(name: str) -> Node:
        # A name that has a value already gets a new one.
        add = ONNX.resolve("Add", 7)
        return Node(add, (Ref(name), Ref(GRADIENT + name)), {}, (name,), (None,))

    nodes: list[Node] = [added(name) for name in graph.inputs if name in wanted]
    for node in graph.nodes:
        nodes += [node, *(added(name) for name in node.results if name in wanted)]
    inputs = (*graph.inputs, *(GRADIENT + name for name in names))
    return dc.replace(graph, inputs=inputs, nodes=tuple(nodes))
