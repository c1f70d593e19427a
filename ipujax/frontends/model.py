"""A model of another library, as JAX sees it."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from ipujax.frontends.checks import check
from ipujax.pipelines.cut import cut
from ipujax.pipelines.stages import StageOutput

Tree = Any
"""A pytree of arrays."""

Variables = dict[str, Any]
"""Arrays by name."""


@check.guard
class Part(NamedTuple):
    """A part of a model, such as a layer, each time that the model calls it.

    Attributes:
      name: the names of the modules that it is in, and its own, joined by `/`.
      stage: the pipeline stage that it is assigned to; None for none.
    """

    name: str
    stage: int | None


@check.guard
@dc.dataclass(frozen=True, eq=False)
class Model:
    """What a model of another library holds and computes.

    Attributes:
      variables: arrays by name, as the library names them; those that the model began with.
      trainable: the names of those that the library trains.
      function: called as `apply`, with the key by position.
      find_parts: gives `parts`.
    """

    variables: Variables
    trainable: tuple[str, ...]
    function: Callable[..., tuple[Tree, Variables]]
    find_parts: Callable[[], tuple[Part, ...]]

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts in order of execution, one for each time that it is called."""
        return self.find_parts()

    def apply(
        self, variables: Mapping[str, Tree], *inputs: Tree, key: jax.Array | None = None
    ) -> tuple[Tree, Variables]:
        """What the model computes; plain JAX, for any of its transformations.

        Args:
          variables: values of all variables.
          inputs: as the library's own model takes them.
          key: of random numbers; None for those that the variables' own state of them gives.

        Returns:
          The outputs, and the variables as training leaves them, such as moving statistics; else
          as they were.

        Raises:
          FrontendError: (a `ValueError`) other variables than the model has.
        """
        check.instance(variables, Mapping, "the variables")
        if other := self.variables.keys() ^ variables.keys():
            name = min(other)
            what = "is missing among" if name in self.variables else "is none of"
            raise check.refuse(
                f"{name!r} {what} the variables of the model",
                "give values for all of `model.variables`, by their names",
            )
        return self.function(dict(variables), inputs, key)

    def split(self, variables: Mapping[str, Tree]) -> tuple[Variables, Variables | None]:
        """The variables that are trained, and the others as a state; None if there are none."""
        trained = {name: variables[name] for name in self.trainable}
        state = {name: value for name, value in variables.items() if name not in trained}
        return trained, state or None

    def stages(self, *inputs: Tree, key: Tree = None) -> tuple[Callable[..., Any], ...]:
        """The model's stages, as `pipelining_ops.pipeline` takes them.

        Their variables and state are what `split` gives. The first stage is given the inputs, and
        the key after them if there is one; the last gives the outputs.

        Args:
          inputs: arrays, or avals, of the shapes to come.
          key: the same, where each micro-batch has a key of its own.

        Raises:
          PipelineError: (a `ValueError`) the parts have no stages, or cannot run in them.
        """
        variables, state = self.split(self.variables)

        def forward(variables: Variables, *given: Tree) -> Tree:
            before, *args = given if state is not None else ({}, *given)
            own = args.pop() if key is not None else None
            outputs, after = self.apply({**variables, **before}, *args, key=own)
            return outputs if state is None else StageOutput(outputs, self.split(after)[1])

        return cut(forward, variables, state, inputs if key is None else (*inputs, key))
