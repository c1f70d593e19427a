"""The forward pass of a traced module on one micro-batch, with its loss."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp

from ipujax.doors import graphs
from ipujax.doors.graphs import Evaluation, Named, Ref
from ipujax.doors.torch import ModuleTrace, collect_updated_variables, compute_named_values
from ipujax.operators import all_gather, keep_lines_apart, replication_index
from ipujax.poptorch.poptorch_operators import OPERATORS


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class Forward(graphs.Forward):
    """The forward pass of a traced module, as `Training` and `Inference` take models.

    Attributes:
      module: traced.
      recomputes: whether stages keep only what enters them for their backward passes.
      own: names of the buffers of which each replica has its own: `[replicas, ...]`.
      replicas: how many there are.
    """

    module: ModuleTrace
    is_scaled: bool = False
    recomputes: bool = False
    own: tuple[str, ...] = ()
    replicas: int = 1

    @functools.cached_property
    def written(self) -> tuple[int, ...]:
        """The numbers of the inputs that the module writes to, cached as every call reads them."""
        return find_written_inputs(self.module)

    @property
    def policy(self) -> Callable[..., bool] | None:
        """As that of every `Forward`."""
        return jax.checkpoint_policies.nothing_saveable if self.recomputes else None

    def evaluate(
        self, variables: Named, added: Named, inputs: tuple[object, ...], key: jax.Array
    ) -> tuple[Named, Mapping[str, jax.Array]]:
        """As that of every `Forward`."""
        del added  # only variables have gradients that are sent
        before = dict(variables)
        for name in self.own:
            before[name] = before[name][replication_index()]
        operators = self.count_gradients_of(OPERATORS, variables)
        evaluation = Evaluation(operators, self.placement.scopes)
        with keep_lines_apart():
            named = compute_named_values(self.module, evaluation, before, inputs, key)
        after = collect_updated_variables(self.module, before, named)
        for name in self.own:
            after[name] = all_gather(after[name], self.replicas)
        return named, after

    def split_trained_variables(self, values: Named) -> tuple[Named, Named]:
        """Splits variables into trained and other ones, as a program takes them."""
        trained = self.module.trainable if self.loss is not None else ()
        untrained = {name: value for name, value in values.items() if name not in trained}
        for name in self.own:
            untrained[name] = jnp.stack([untrained[name]] * self.replicas)
        counting = self.counting
        factors = {
            n: untrained.pop(n) for n in (() if counting is None else counting.factors.factor_names)
        }
        return {name: values[name] for name in trained} | factors, untrained


def names_to_send(module: ModuleTrace, anchors: Sequence[str]) -> tuple[str, ...]:
    """Returns what a program sends: outputs, what has become of written inputs, and anchors."""
    outputs = [output.name for output in module.graph.outputs if isinstance(output, Ref)]
    written = [str(module.inputs[index]) for index in find_written_inputs(module)]
    return (*outputs, *written, *anchors)


def find_written_inputs(module: ModuleTrace) -> tuple[int, ...]:
    """Returns which inputs a module writes to."""
    names = find_written_names(module)
    return tuple(i for i, name in enumerate(module.inputs) if name in names)


def find_written_names(module: ModuleTrace) -> frozenset[str]:
    """Finds the names in a module's graph that get more than one value."""
    inputs = {name for name in module.inputs if name is not None}
    inputs |= {name for names in module.names.values() for name in names}
    return frozenset(name for n in module.graph.nodes for name in n.results if name in inputs)


def find_written_buffers(module: ModuleTrace) -> tuple[str, ...]:
    """Finds the buffers that a module writes to."""
    names = find_written_names(module)
    return tuple(
        name for name, graph_names in module.names.items() if not names.isdisjoint(graph_names)
    )
