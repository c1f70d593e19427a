"""The forward pass of a traced module, as programs run it: on a micro-batch, with its loss."""

from __future__ import annotations

import dataclasses as dc
import functools
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.all_to_all_op import all_gather
from ipujax.doors.graphs import CountedOperators, Evaluation, Node, Operators, Ref, filled
from ipujax.frontends.pytorch.capture import Captured
from ipujax.frontends.pytorch.model import named_values, variables_after
from ipujax.poptorch.gradient_statistics import counts
from ipujax.poptorch.operators import OPERATORS
from ipujax.poptorch.stages import Staged
from ipujax.replication_ops import replication_index
from ipujax.training import Pipeline, StageOutput, StepOutput
from ipujax.training.loss_scaling import Factors, LossScaling

Named = dict[str, jax.Array]

FINAL_SCALE = "finalLossScale"
"""The name under which the factor of the loss can be anchored."""


@dc.dataclass(frozen=True, eq=False)
class Forward:
    """The forward pass of a traced module, as `Training` and `Inference` take models.

    What it sends is the module's outputs, what has become of inputs that it writes to, and the
    anchors.

    Attributes:
      module: traced.
      staged: where its graph runs.
      loss: the name of the loss in its graph; None in inference.
      is_scaled: whether the element begins with a factor of the loss.
      anchors: names of other values of its graph that are sent.
      gradients_of: names of the trained variables whose gradients are sent.
      own: names of the buffers of which each replica has its own: `[replicas, ...]`.
      replicas: how many there are.
      scaling: how the loss is scaled automatically, by variables of `factors_in`; None for not at
        all.
    """

    module: Captured
    staged: Staged
    loss: str | None = None
    is_scaled: bool = False
    anchors: tuple[str, ...] = ()
    gradients_of: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    replicas: int = 1
    scaling: LossScaling | None = None

    def __call__(self, variables: Named, state: Named, *element: Any) -> StepOutput:
        """Loss, outputs and new state of a micro-batch; the element ends with its key's data."""
        scale, element = (element[0], element[1:]) if self.is_scaled else (None, element)
        *leaves, key = element
        before = {**variables, **state}
        for name in self.own:
            before[name] = before[name][replication_index()]
        random = jax.random.wrap_key_data(key)
        evaluation = Evaluation(self._operators(variables), self.staged.scopes)
        named = named_values(self.module, evaluation, before, leaves, random)
        scale = 1.0 if scale is None else scale
        if self._factors is not None:
            scale = self._factors.final(scale, variables)
        named[FINAL_SCALE] = jnp.asarray(scale, "float32")
        after = variables_after(self.module, before, named)
        for name in self.own:
            after[name] = all_gather(after[name], self.replicas)
        outputs = [filled(o, named) for o in self.module.graph.outputs if isinstance(o, Ref)]
        written = [named[str(self.module.inputs[index])] for index in self.written]
        send = (*outputs, *written, *(named[name] for name in self.anchors))
        loss = None
        if self.loss is not None:
            loss = named[self.loss]
            if self._factors is not None:
                loss = self._factors.watched(loss, variables)
            loss = loss.astype("float32") * scale
        return StepOutput(loss, send, {name: after[name] for name in state})

    @property
    def factors(self) -> tuple[str, ...]:
        """The names of the factors, variables beside the module's."""
        return () if self._factors is None else self._factors.names

    @functools.cached_property
    def _factors(self) -> Factors | None:
        if self.scaling is None:
            return None
        return Factors(self.scaling, len(self.staged.ipus) if self.staged.is_pipelined else 1)

    def _operators(self, variables: Named) -> Operators:
        if (factors := self._factors) is None:
            return OPERATORS

        def factor_of(node: Node) -> jax.Array | None:
            place = node.marks.get("place")
            return factors.of(None if place is None else place.stage, variables)

        settings = factors.settings
        return CountedOperators(
            OPERATORS, lambda node, _: counts(node.operator, settings), factor_of, settings
        )

    def differentiated(
        self, variables: Named, optimizer_state: Any, state: Named, *element: Any
    ) -> tuple[Named, StepOutput]:
        """Gradients, and what `__call__` gives; the gradients asked for are sent too."""
        del optimizer_state

        def loss_of(variables: Named) -> tuple[Any, StepOutput]:
            output = self(variables, state, *element)
            return output.loss, output

        gradients, output = jax.grad(loss_of, has_aux=True)(variables)
        anchored = [gradients[name] for name in self.gradients_of]
        return gradients, output._replace(send=(*output.send, *anchored))

    @functools.cached_property
    def written(self) -> tuple[int, ...]:
        """Which inputs the module writes to."""
        names = written_names(self.module)
        return tuple(i for i, name in enumerate(self.module.inputs) if name in names)

    def in_stages(self, variables: Named, state: Named, *element: Any) -> StageOutput:
        """The same, as `Pipeline` takes functions that it cuts; the loss is the first output."""
        output = self(variables, state, *element)
        loss = [] if output.loss is None else [output.loss]
        return StageOutput([*loss, output.send], output.state)

    def pipeline(self, accumulation: int | None = None) -> Pipeline:
        """Its stages side by side; in training with so many micro-batches in a weight update."""
        options = self.staged.pipeline_options(accumulation)
        if self.loss is not None:
            options["outfeed_mask"] = [True, False]  # it is for the optimizer
        return Pipeline(self.in_stages, options, count=len(self.staged.ipus))

    def sorted(self, values: Named) -> tuple[Named, Named]:
        """Variables that are trained, and others; as a program takes them."""
        trained = self.module.trainable if self.loss is not None else ()
        others = {name: value for name, value in values.items() if name not in trained}
        for name in self.own:
            others[name] = jnp.stack([others[name]] * self.replicas)
        factors = {name: others.pop(name) for name in self.factors}
        return {name: values[name] for name in trained} | factors, others


def written_names(module: Captured) -> frozenset[str]:
    """The names in a module's graph that get more than one value."""
    inputs = {name for name in module.inputs if name is not None}
    inputs |= {name for names in module.names.values() for name in names}
    return frozenset(name for n in module.graph.nodes for name in n.results if name in inputs)


def written_buffers(module: Captured) -> tuple[str, ...]:
    """The buffers that a module writes to."""
    written = written_names(module)
    return tuple(name for name, own in module.names.items() if not written.isdisjoint(own))
