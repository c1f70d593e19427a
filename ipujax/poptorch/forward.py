"""The forward pass of a traced module, as programs run it."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.all_to_all_op import all_gather
from ipujax.doors import graphs
from ipujax.doors.graphs import Evaluation, Named, Ref
from ipujax.frontends.pytorch.capture import Captured
from ipujax.frontends.pytorch.model import named_values, variables_after
from ipujax.poptorch.operators import OPERATORS
from ipujax.replication_ops import replication_index


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class Forward(graphs.Forward):
    """The forward pass of a traced module.

    Attributes:
      module: traced.
      own: names of the buffers of which each replica has its own: `[replicas, ...]`.
      replicas: how many there are.
    """

    module: Captured
    is_scaled: bool = False
    own: tuple[str, ...] = ()
    replicas: int = 1

    def evaluate(
        self, variables: Named, added: Named, inputs: tuple[Any, ...], key: jax.Array
    ) -> tuple[Named, Mapping[str, jax.Array]]:
        """As that of every `Forward`."""
        del added  # only variables have gradients that are sent
        before = dict(variables)
        for name in self.own:
            before[name] = before[name][replication_index()]
        operators = self.counted(OPERATORS, variables)
        evaluation = Evaluation(operators, self.placement.scopes)
        named = named_values(self.module, evaluation, before, inputs, key)
        after = variables_after(self.module, before, named)
        for name in self.own:
            after[name] = all_gather(after[name], self.replicas)
        return named, after

    def sorted(self, values: Named) -> tuple[Named, Named]:
        """Variables that are trained, and others; as a program takes them."""
        trained = self.module.trainable if self.loss is not None else ()
        others = {name: value for name, value in values.items() if name not in trained}
        for name in self.own:
            others[name] = jnp.stack([others[name]] * self.replicas)
        counting = self.counting
        factors = {n: others.pop(n) for n in (() if counting is None else counting.factors.names)}
        return {name: values[name] for name in trained} | factors, others


def sent_names(module: Captured, anchors: Sequence[str]) -> tuple[str, ...]:
    """Returns what a program sends: outputs, what has become of written inputs, and anchors."""
    outputs = [output.name for output in module.graph.outputs if isinstance(output, Ref)]
    written = [str(module.inputs[index]) for index in written_inputs(module)]
    return (*outputs, *written, *anchors)


def written_inputs(module: Captured) -> tuple[int, ...]:
    """Returns which inputs a module writes to."""
    names = written_names(module)
    return tuple(i for i, name in enumerate(module.inputs) if name in names)


def written_names(module: Captured) -> frozenset[str]:
    """The names in a module's graph that get more than one value."""
    inputs = {name for name in module.inputs if name is not None}
    inputs |= {name for names in module.names.values() for name in names}
    return frozenset(name for n in module.graph.nodes for name in n.results if name in inputs)


def written_buffers(module: Captured) -> tuple[str, ...]:
    """The buffers that a module writes to."""
    written = written_names(module)
    return tuple(name for name, own in module.names.items() if not written.isdisjoint(own))
