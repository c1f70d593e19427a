"""The mode of a Keras model's program: its kind, device, replicas and pipeline."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax

from ipujax.doors.keras import name_variables
from ipujax.ground import Keywords, PyTree, count_replica_groups, current_instance
from ipujax.keras.untrained_variables import UntrainedVariables
from ipujax.optimizers import GradientAccumulationReductionMethod as Reduction

if TYPE_CHECKING:
    import keras

Arrays = list[jax.Array]
State = tuple[Arrays, ...]
"""A model's arrays as Keras's trainer has them: trainable variables, non-trainable ones, those of
the optimizer, those of metrics; evaluation and prediction have fewer."""


@dc.dataclass(frozen=True)
class ProgramMode:
    """The settings of one program of a Keras model.

    Attributes:
      model: a Keras model.
      kind: "train", "test" or "predict".
      device: the logical device.
      replicas: copies of the model on the device.
      instances: processes that run the program together, each with `replicas` replicas.
      reduces: whether the gradients of replicas are averaged.
      accumulation: micro-batches in a weight update.
      reduction: the reduction of the micro-batches' gradients.
      stages: the number of pipeline stages; None if the model is no pipeline.
      pipeline: arguments of `pipelining_ops.pipeline`.
      is_planned: whether a plan of one replica assigned the stages.
    """

    model: keras.Model
    kind: str
    device: str
    replicas: int = 1
    reduces: bool = True
    accumulation: int = 1
    reduction: Reduction = Reduction.MEAN
    stages: int | None = None
    pipeline: Mapping[str, Any] = dc.field(default_factory=Keywords)
    instances: int = 1
    is_planned: bool = False

    @property
    def is_alone(self) -> bool:
        """True if this process runs the program without the others."""
        return self.instances < count_replica_groups()

    @property
    def is_shared(self) -> bool:
        """True if several processes run the program together."""
        return current_instance().count > 1 and not self.is_alone

    @property
    def all_replicas(self) -> int:
        """The number of copies of the model in all processes."""
        return self.replicas * self.instances

    @property
    def batches_per_step(self) -> int:
        """The number of batches that a step takes in this process."""
        return self.replicas * self.accumulation

    @functools.cached_property
    def trainable_names(self) -> list[str]:
        """The names of the trainable variables; all differ."""
        return name_variables(self.model.trainable_variables)

    @property
    def state_names(self) -> tuple[Any, ...]:
        """The names of all arrays of a `State`, in its structure."""
        model = self.model
        kinds = [model.trainable_variables, model.non_trainable_variables]
        if self.kind == "train":
            kinds.append(model.optimizer.variables)
        if self.kind != "predict":
            kinds.append(model.metrics_variables)
        return tuple(map(name_variables, kinds))

    def key_by_name(self, trainable: Arrays) -> dict[str, jax.Array]:
        """Returns the trainable variables by their names."""
        return dict(zip(self.trainable_names, trainable, strict=True))

    def list_by_name(self, trainable: Mapping[str, jax.Array]) -> Arrays:
        """Returns the trainable variables as a list, from a mapping by name."""
        return [trainable[name] for name in self.trainable_names]

    @functools.cached_property
    def untrained_reductions(self) -> UntrainedVariables:
        """The reduction over replicas of the model's untrained variables."""
        states = {id(variable) for variable in seed_states(self.model)}
        variables = self.model.non_trainable_variables
        return UntrainedVariables(
            self.all_replicas, tuple(i for i, v in enumerate(variables) if id(v) in states)
        )


def seed_states(model: Any) -> Iterator[PyTree]:
    """Yields the variables that hold the states of a model's seed generators."""
    for layer in model._flatten_layers():
        for generator in layer._seed_generators:
            yield generator.state
