"""What an optimizer makes of the gradients of one micro-batch: its `compute_gradients`, in tasks.

It wants all gradients, in the structure of the variables, and stages have theirs one after the
other, the last stage first. So it is traced once, and the backward task of each stage runs the part
of it that needs no gradients of earlier stages. A mapping of each gradient by itself thus stays
with the stage that has it; where gradients of several stages meet, as in a norm over all of them,
they wait for the first of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ipujax.errors import PipelineError
from ipujax.pipelines.model import Arrays, Model, mapped_by
from ipujax.pipelines.stages import Value
from lowering import jaxpr, shape_of


class GradientMapping:
    """`compute_gradients` of a pipeline's optimizer.

    Args:
      model: a pipeline whose optimizer maps gradients.

    Attributes:
      trained: the variables that have gradients; those of the others are zeros, and stay so.
      stages: the stage whose backward task makes the mapped gradient of each of them.
      awaited: those whose gradients are read by an earlier stage than the one that has them.
    """

    def __init__(self, model: Model):
        self.model, self.trained = model, list(model.owners)
        self._variables, self._outputs = list(model.variables), model.output_leaves
        operands = [*self.trained, *self._variables, *self._outputs]
        self._closed = jaxpr.trace_flat(self._all, [value.aval for value in operands])
        first = _first_stages(self._closed, [model.owners[value] for value in self.trained])
        pairs = zip(self.trained, first, strict=True)
        self.stages = {value: min(stage, model.owners[value]) for value, stage in pairs}
        self._parts = {stage: self._part(stage) for stage in set(self.stages.values())}
        self.awaited = {
            value
            for stage in self._parts
            for value in self.gradients(stage)
            if model.owners[value] > stage
        }

    def _all(self, *flat: jax.Array) -> list[jax.Array]:
        """The mapped gradients of gradients, variables and the last stage's outputs, all flat."""
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
        output = self.model.optimizer(flat[count + len(self._variables) :])
        mapped = mapped_by(output, tree, structure.unflatten(arrays))
        try:
            made = dict(zip(self._variables, structure.flatten_up_to(mapped), strict=True))
        except ValueError as error:
            raise PipelineError(
                f"compute_gradients of {output.opt!r} returned another structure than that of the "
                f"variables: {error}",
                fix="return a gradient for each variable",
            ) from error
        return [self._checked(value, made[value]) for value in self.trained]

    def _checked(self, value: Value, gradient: object) -> jax.Array:
        shape = shape_of(value.aval)
        if not isinstance(gradient, jax.Array) or gradient.shape != shape:
            raise PipelineError(
                f"compute_gradients gives {gradient} as the gradient of variable "
                f"{self.model.variables[value]}, whose shape is {list(shape)}",
                fix="return an array of the gradient's shape",
            )
        return gradient

    def _part(self, stage: int) -> tuple[jaxpr.ClosedJaxpr, list[int]]:
        """What makes the gradients that one stage can make, and of which operands."""
        return jaxpr.without_unused(self._closed, [self.stages[v] == stage for v in self.trained])

    def _read(self, stage: int) -> list[int]:
        return self._parts[stage][1] if stage in self._parts else []

    def gradients(self, stage: int) -> list[Value]:
        """The variables whose gradients a stage's part reads."""
        return [self.trained[i] for i in self._read(stage) if i < len(self.trained)]

    def others(self, stage: int) -> list[Value]:
        """What else it reads: variables, and outputs of the last stage."""
        values, count = [*self._variables, *self._outputs], len(self.trained)
        return [values[i - count] for i in self._read(stage) if i >= count]

    def mapped(self, stage: int, of: Callable[[Value], jax.Array], gradients: Arrays) -> Arrays:
        """The mapped gradients that a stage makes.

        Args:
          stage: its number.
          of: looks up `others`.
          gradients: at least those of `gradients`.
        """
        if stage not in self._parts:
            return {}
        closed, _ = self._parts[stage]
        operands = [*(gradients[v] for v in self.gradients(stage)), *map(of, self.others(stage))]
        flat = jaxpr.run_equations(closed.jaxpr, closed.consts, operands)
        made = [value for value in self.trained if self.stages[value] == stage]
        return dict(zip(made, flat, strict=True))


def _first_stages(closed: jaxpr.ClosedJaxpr, owners: Sequence[int]) -> list[int]:
    """For each result the first stage of whose gradients it is made."""
    graph = closed.jaxpr
    first: dict[object, int] = dict(zip(graph.invars[: len(owners)], owners, strict=True))
    none = max(owners, default=0)

    def of(atom: jaxpr.Atom) -> int:
        return none if isinstance(atom, jaxpr.Literal) else first.get(atom, none)

    for eqn in graph.eqns:
        stage = min(map(of, eqn.invars), default=none)
        first.update(dict.fromkeys(eqn.outvars, stage))
    return list(map(of, graph.outvars))
