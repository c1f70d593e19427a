"""The forward pass of a model, as training and inference take it."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Evaluation, Graph, Node, Ref
from ipujax.frontends.onnx.model import Converted
from ipujax.frontends.onnx.operators import ONNX
from ipujax.popart.loss_scaling import FINAL_SCALE, Tracking
from ipujax.popart.options import RecomputationType
from ipujax.popart.placed import Placed
from ipujax.popart.recomputation import NamingOperators, recomputed
from ipujax.training import Pipeline, StageOutput, StepOutput
from ipujax.training.step import SelfDifferentiating

Named = dict[str, jax.Array]
GRADIENT = "Gradient___"
"""What the name of a tensor's gradient begins with, before the tensor's own."""


@dc.dataclass(frozen=True, eq=False)
class Forward:
    """A micro-batch of a model; it sends the anchors.

    Attributes:
      model: the model.
      placed: where its nodes run.
      anchors: names of tensors that are not known before it runs, or of their gradients.
      loss: the loss; None in inference.
      moved: variables that are not trained, but become what a node gives, such as moving means.
      recomputation: which results the backward pass has computed again.
      tracking: which gradients count for automatic loss scaling; None without it. The variables
        has its factors.
    """

    model: Converted
    placed: Placed
    anchors: tuple[str, ...]
    loss: str | None = None
    moved: Mapping[str, str] = dc.field(default_factory=dict[str, str])
    recomputation: RecomputationType = RecomputationType.NoRecompute
    tracking: Tracking | None = None

    def __post_init__(self) -> None:
        _ = self.recomputed  # which refuses what cannot be

    @functools.cached_property
    def graph(self) -> Graph:
        """What is needed of the model's graph, with a place to differentiate by where needed."""
        wanted = {*self.values, *self.differentiated_by, *self.moved.values()}
        wanted |= {self.loss} if self.loss else set()
        return _perturbed(needed(self.model.graph, wanted, acting=True), self.differentiated_by)

    @functools.cached_property
    def inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Those of the model's inputs that are needed."""
        names = {*self.values, self.loss}.union(*(node.reads for node in self.graph.nodes))
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
        avals, stage_of = self.model.avals, self.placed.stage
        return recomputed(nodes, self.loss, self.recomputation, avals, stage_of)

    @property
    def _policy(self) -> Callable[..., bool] | None:
        """What is kept, as `jax.checkpoint` takes it; None if that is not to be decided here."""
        if not self.recomputed:
            return None
        results = (name for node in self.graph.nodes for name in node.results)
        kept = [name for name in results if name not in self.recomputed]
        return jax.checkpoint_policies.save_only_these_names(*kept)

    @property
    def values(self) -> tuple[str, ...]:
        """Those of the anchors that are values of tensors."""
        return tuple(name for name in self.anchors if not name.startswith(GRADIENT))

    @property
    def differentiated_by(self) -> tuple[str, ...]:
        """The tensors whose gradients are anchors."""
        return tuple(n.removeprefix(GRADIENT) for n in self.anchors if n.startswith(GRADIENT))

    def __call__(self, variables: Named, state: Named, *element: Any) -> StepOutput:
        """Loss and anchors of a micro-batch; the element is its scale, inputs and key's data."""
        return self._run(variables, state, {}, *element)

    @property
    def differentiable(self) -> Forward | SelfDifferentiating:
        """As `Training` takes it: with gradients of its own if some are sent."""
        return SelfDifferentiating(self.with_gradients) if self.differentiated_by else self

    def with_gradients(
        self, variables: Named, optimizer_state: Any, state: Named, *element: Any
    ) -> tuple[Named, StepOutput]:
        """Gradients of the variables, and what `__call__` gives with the anchored gradients."""
        del optimizer_state
        avals = {name: self.model.avals[name] for name in self.differentiated_by}
        zeros = {name: jnp.zeros(aval.shape, aval.dtype) for name, aval in avals.items()}

        def loss_of(variables: Named, added: Named) -> tuple[Any, StepOutput]:
            output = self._run(variables, state, added, *element)
            return output.loss, output

        (gradients, anchored), output = jax.grad(loss_of, (0, 1), has_aux=True)(variables, zeros)
        values = iter(output.send)
        send = [
            anchored[name.removeprefix(GRADIENT)] if name.startswith(GRADIENT) else next(values)
            for name in self.anchors
        ]
        return gradients, output._replace(send=send)

    def in_stages(self, variables: Named, state: Named, *element: Any) -> StageOutput:
        """The same, as `Pipeline` takes functions that it cuts; the loss is the first output."""
        output = self(variables, state, *element)
        loss = [] if output.loss is None else [output.loss]
        return StageOutput([*loss, output.send], output.state)

    def pipeline(self) -> Pipeline:
        """Its stages side by side."""
        options = self.placed.pipeline_options()
        if self.loss is not None and self.anchors:
            options["outfeed_mask"] = [True, False]  # it is for the optimizer
        return Pipeline(self.in_stages, options, len(self.placed.ipus), self._policy)

    def _run(self, variables: Named, state: Named, added: Named, *element: Any) -> StepOutput:
        scale, *inputs, key = element
        given = dict(zip(self.inputs, inputs, strict=True))
        given |= {GRADIENT + name: value for name, value in added.items()}
        if self.tracking is not None:
            scale = self.tracking.factors.final(scale, variables)
        values = {**variables, **state, **given}
        outcome = {name for name in (self.loss, *self.values, *self.moved.values()) if name}

        def evaluated(values: Named) -> Named:
            operators = ONNX if self.tracking is None else self.tracking.operators(values)
            operators = NamingOperators(operators) if self.recomputed else operators
            evaluation = Evaluation(operators, self.placed.scopes)
            named = evaluation(self.graph, values, jax.random.wrap_key_data(key))
            return {name: named[name] for name in outcome if name in named}

        if self.recomputed and not self.placed.is_pipelined:  # which does so for each stage
            evaluated = jax.checkpoint(evaluated, policy=self._policy)
        named = {**evaluated(values), FINAL_SCALE: scale}
        loss = None
        if self.loss is not None:
            loss = named[self.loss]
            if self.tracking is not None:
                loss = self.tracking.factors.watched(loss, variables)
            loss = loss.astype("float32").reshape(()) * scale
        news = {v: named[result] for v, result in self.moved.items()}
        state = {**state, **{v: new.astype(state[v].dtype) for v, new in news.items()}}
        return StepOutput(loss, [named[name] for name in self.values], state)


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
