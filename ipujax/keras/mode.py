"""What one of a Keras model's programs is to do."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from ipujax.distribution.join import here, instance_count
from ipujax.frontends.keras import names_of
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from ipujax.keras.replicas import Untrained

Arrays = list[jax.Array]
State = tuple[Arrays, ...]
"""A model's arrays as Keras's trainer has them: trainable variables, non-trainable ones, those of
the optimizer, those of metrics; in evaluation and prediction those that these have."""


@dc.dataclass(frozen=True)
class Mode:
    """What a program is to do.

    Attributes:
      model: a Keras model.
      kind: "train", "test" or "predict".
      device: the logical device.
      replicas: copies of the model on it.
      instances: processes that run the program together, each with so many replicas of its own.
      reduces: whether the gradients of replicas are averaged.
      accumulation: micro-batches in a weight update.
      reduction: of their gradients.
      stages: of the pipeline; None if the model is none.
      pipeline: arguments of `pipelining_ops.pipeline`.
    """

    model: Any
    kind: str
    device: str
    replicas: int = 1
    reduces: bool = True
    accumulation: int = 1
    reduction: Reduction = Reduction.MEAN
    stages: int | None = None
    pipeline: Mapping[str, Any] = dc.field(default_factory=dict[str, Any])
    instances: int = 1

    @property
    def is_alone(self) -> bool:
        """Whether the program is this process's, and not that of all processes."""
        return self.instances < instance_count()

    @property
    def is_shared(self) -> bool:
        """Whether other processes run the program, too."""
        return here().count > 1 and not self.is_alone

    @property
    def all_replicas(self) -> int:
        """Copies of the model in all processes."""
        return self.replicas * self.instances

    @property
    def batches_per_step(self) -> int:
        """How many batches a weight update, or a step without one, takes in this process."""
        return self.replicas * self.accumulation

    @functools.cached_property
    def names(self) -> list[str]:
        """Of the trainable variables; all differ."""
        return names_of(self.model.trainable_variables)

    @property
    def names_of_state(self) -> tuple[Any, ...]:
        """The names of all arrays of a `State`, in their places."""
        model = self.model
        kinds = [model.trainable_variables, model.non_trainable_variables]
        if self.kind == "train":
            kinds.append(model.optimizer.variables)
        if self.kind != "predict":
            kinds.append(model.metrics_variables)
        return tuple(map(names_of, kinds))

    def named(self, trained: Arrays) -> dict[str, jax.Array]:
        """The trainable variables by their names."""
        return dict(zip(self.names, trained, strict=True))

    def unnamed(self, trained: Mapping[str, jax.Array]) -> Arrays:
        """The same, undone."""
        return [trained[name] for name in self.names]

    @functools.cached_property
    def untrained(self) -> Untrained:
        """What the model's untrained arrays are."""
        states = {id(variable) for variable in seed_states(self.model)}
        variables = self.model.non_trainable_variables
        return Untrained(
            self.all_replicas, tuple(i for i, v in enumerate(variables) if id(v) in states)
        )


def seed_states(model: Any) -> Iterator[Any]:
    """The variables in which a model's seed generators count."""
    for layer in model._flatten_layers():
        for generator in layer._seed_generators:
            yield generator.state
