"""Splits an optimizer's `compute_gradients` of one micro-batch into the tasks of the stages.

It takes all gradients, in the structure of the variables, but the stages compute them one after the
other, the last stage first. So it is traced once, and the backward task of each stage runs the part
of it that needs no gradients of earlier stages. A mapping of each gradient by itself thus stays
with the stage that has it; where gradients of several stages meet, as in a norm over all of them,
they wait for the first of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ipujax.ground import PipelineError
from ipujax.pipelines.pipeline_stages import Value
from ipujax.pipelines.traced_stages import Arrays, Model, compute_mapped_gradients
from lowering import jaxpr, shape_of


class GradientMapping:
    """The `compute_gradients` of a pipeline's optimizer, split by stages.

    Args:
      model: a pipeline whose optimizer maps gradients.

    Attributes:
      trained: the variables that have gradients; those of the others are zeros, and stay so.
      stages: the stage whose backward task makes the mapped gradient of each of them.
      awaited: those whose gradients are read by an earlier stage than the one that has them.
    """

    def __init__(self, model: Model):
        self.model, self.trained = model, list(model.stage_accumulating_gradient)
        self._variables, self._outputs = list(model.variables), model.output_leaves
        operands = [*self.trained, *self._variables, *self._outputs]
        self._closed = jaxpr.trace_flat(self._map_all_gradients, [value.aval for value in operands])
        first = _first_stages(
            self._closed, [model.stage_accumulating_gradient[value] for value in self.trained]
        )
        pairs = zip(self.trained, first, strict=True)
        self.stages = {
            value: min(stage, model.stage_accumulating_gradient[value]) for value, stage in pairs
        }
        self._parts = {stage: self._trace_stage_part(stage) for stage in set(self.stages.values())}
        self.awaited = {
            value
            for stage in self._parts
            for value in self.gradients_read_by(stage)
            if model.stage_accumulating_gradient[value] > stage
        }

    def _map_all_gradients(self, *flat: jax.Array) -> list[jax.Array]:
        """Maps flat gradients, given with the variables and the last stage's outputs."""
        count = len(self.trained)
        gradients = dict(zip(self.trained, flat[:count], strict=True))
        arrays = flat[count : count + len(self._variables)]
        structure = jax.tree.structure(self.model.tree)
        leaves = [
            gradients[value]
            if value in gradients
            else jnp.zeros(value.aval.shape, value.aval.dtype)
            for value in self._variables
        ]
        tree = structure.unflatten(leaves)
        output = self.model.call_optimizer_on_leaves(flat[count + len(self._variables) :])
        mapped = compute_mapped_gradients(output, tree, structure.unflatten(arrays))
        try:
            gradient_of = dict(zip(self._variables, structure.flatten_up_to(mapped), strict=True))
        except ValueError as error:
            raise PipelineError(
                f"compute_gradients of {output.opt!r} returned another structure than that of the "
                f"variables: {error}",
                fix="return a gradient for each variable",
            ) from error
        return [self._check_gradient(value, gradient_of[value]) for value in self.trained]

    def _check_gradient(self, value: Value, gradient: object) -> jax.Array:
        shape = shape_of(value.aval)
        if not isinstance(gradient, jax.Array) or gradient.shape != shape:
            raise PipelineError(
                f"compute_gradients gives {gradient} as the gradient of variable "
                f"{self.model.variables[value]}, whose shape is {list(shape)}",
                fix="return an array of the gradient's shape",
            )
        return gradient

    def _trace_stage_part(self, stage: int) -> tuple[jaxpr.ClosedJaxpr, list[int]]:
        """Traces the gradients that one stage can compute; returns its operands' numbers too."""
        return jaxpr.prune_unused(self._closed, [self.stages[v] == stage for v in self.trained])

    def _operand_numbers(self, stage: int) -> list[int]:
        return self._parts[stage][1] if stage in self._parts else []

    def gradients_read_by(self, stage: int) -> list[Value]:
        """Returns the variables whose gradients a stage's part reads."""
        return [self.trained[i] for i in self._operand_numbers(stage) if i < len(self.trained)]

    def values_read_by(self, stage: int) -> list[Value]:
        """Returns the variables and outputs of the last stage that a stage's part reads."""
        values, count = [*self._variables, *self._outputs], len(self.trained)
        return [values[i - count] for i in self._operand_numbers(stage) if i >= count]

    def map_stage_gradients(
        self, stage: int, look_up: Callable[[Value], jax.Array], gradients: Arrays
    ) -> Arrays:
        """Computes the mapped gradients of a stage.

        Args:
          stage: its number.
          look_up: returns the arrays of `values_read_by`.
          gradients: at least those of `gradients_read_by`.
        """
        if stage not in self._parts:
            return {}
        closed, _ = self._parts[stage]
        operands = [
            *(gradients[v] for v in self.gradients_read_by(stage)),
            *map(look_up, self.values_read_by(stage)),
        ]
        flat = jaxpr.run_equations(closed.jaxpr, closed.consts, operands)
        stage_variables = [value for value in self.trained if self.stages[value] == stage]
        return dict(zip(stage_variables, flat, strict=True))


def _first_stages(closed: jaxpr.ClosedJaxpr, owners: Sequence[int]) -> list[int]:
    """Returns for each result the first stage whose gradients it depends on."""
    graph = closed.jaxpr
    first: dict[object, int] = dict(zip(graph.invars[: len(owners)], owners, strict=True))
    none = max(owners, default=0)

    def stage_of_atom(atom: jaxpr.Atom) -> int:
        return none if isinstance(atom, jaxpr.Literal) else first.get(atom, none)

    for eqn in graph.eqns:
        stage = min(map(stage_of_atom, eqn.invars), default=none)
        first.update(dict.fromkeys(eqn.outvars, stage))
    return list(map(stage_of_atom, graph.outvars))
