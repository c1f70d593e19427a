"""A model of another library as variables and a JAX function."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from ipujax.doors.models.frontend_checks import check
from ipujax.ground import PyTree
from ipujax.pipelines import StageOutput, split_into_stages

Tree = Any
"""A pytree of arrays."""

Variables = dict[str, Any]
"""Arrays by name."""


@check.guard
class Part(NamedTuple):
    """A call of one part of a model, such as a layer.

    Attributes:
      name: the names of the enclosing modules and its own name, joined by `/`.
      stage: the pipeline stage that it is assigned to, or None.
    """

    name: str
    stage: int | None


@check.guard
@dc.dataclass(frozen=True, eq=False)
class Model:
    """A model of another library as named variables and a JAX function.

    Attributes:
      variables: the initial arrays, by the library's names.
      trainable: the names of the variables that the library trains.
      function: computes `apply`; it takes the key by position.
      find_parts: computes `parts`.
    """

    variables: Variables
    trainable: tuple[str, ...]
    function: Callable[..., tuple[Tree, Variables]]
    find_parts: Callable[[], tuple[Part, ...]]

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts in order of execution, one for each call."""
        return self.find_parts()

    def apply(
        self, variables: Mapping[str, Tree], *inputs: Tree, key: jax.Array | None = None
    ) -> tuple[Tree, Variables]:
        """Computes the model. This is plain JAX, which any transformation of JAX accepts.

        Args:
          variables: the values of all variables.
          inputs: the inputs of the library's own model.
          key: the random key; None to draw from the random state in the variables.

        Returns:
          The outputs, and the variables after the call: training updates some, such as moving
          statistics.

        Raises:
          FrontendError: (a `ValueError`) the variables' names differ from the model's.
        """
        check.require_instance(variables, Mapping, "the variables")
        if mismatched_names := self.variables.keys() ^ variables.keys():
            name = min(mismatched_names)
            problem = "is missing among" if name in self.variables else "is none of"
            raise check.value_error(
                f"{name!r} {problem} the variables of the model",
                "give values for all of `model.variables`, by their names",
            )
        return self.function(dict(variables), inputs, key)

    def split(self, variables: Mapping[str, Tree]) -> tuple[Variables, Variables | None]:
        """Returns the trained variables and the others as a state, None if there are no others."""
        trained = {name: variables[name] for name in self.trainable}
        state = {name: value for name, value in variables.items() if name not in trained}
        return trained, state or None

    def stages(self, *inputs: Tree, key: Tree = None) -> tuple[Callable[..., PyTree], ...]:
        """Returns the model's stages, as `pipelining_ops.pipeline` takes them.

        Their variables and state are those that `split` returns. The first stage takes the inputs,
        and the key after them if there is one; the last returns the outputs.

        Args:
          inputs: arrays or avals with the shapes of a micro-batch.
          key: a key or its aval, if each micro-batch has its own key.

        Raises:
          PipelineError: (a `ValueError`) the parts have no stages, or cannot run in them.
        """
        variables, state = self.split(self.variables)

        def run_model_forward(variables: Variables, *arguments: Tree) -> Tree:
            state_values, *args = arguments if state is not None else ({}, *arguments)
            microbatch_key = args.pop() if key is not None else None
            outputs, variables_after = self.apply(
                {**variables, **state_values}, *args, key=microbatch_key
            )
            return (
                outputs if state is None else StageOutput(outputs, self.split(variables_after)[1])
            )

        return split_into_stages(
            run_model_forward, variables, state, inputs if key is None else (*inputs, key)
        )
