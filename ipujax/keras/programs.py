"""What a Keras model does in each of its modes, as loops on the device.

Keras's own step is a pure function of the model's arrays and a batch. So many of them as
`steps_per_execution` says are one loop, fed by an infeed: the numbers are Keras's own.
"""

from __future__ import annotations

import abc
import dataclasses as dc
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ipujax.driver.stages import Executable
from ipujax.ipu_outfeed_queue import IPUOutfeedMode
from ipujax.keras.backend import keras
from ipujax.keras.batches import Batches
from ipujax.keras.checks import check_share, check_shares
from ipujax.keras.gradients import Update
from ipujax.keras.replicas import Untrained
from ipujax.training import Inference, SelfDifferentiating, StepOutput, Training, TrainState
from ipujax.training.device_loop import Advance, DeviceLoop
from ipujax.training.state import Tree

Arrays = list[jax.Array]
State = tuple[Arrays, ...]
"""A model's arrays as Keras's trainer has them: trainable variables, non-trainable ones, those of
the optimizer, those of metrics; of a mode those that it has."""


@dc.dataclass(frozen=True)
class Mode:
    """What a program is to do.

    Attributes:
      model: a Keras model.
      kind: "train", "test" or "predict".
      device: the logical device.
      replicas: copies of the model on it.
      accumulation: micro-batches in a weight update.
    """

    model: Any
    kind: str
    device: str
    replicas: int = 1
    accumulation: int = 1

    @property
    def batches_per_step(self) -> int:
        """How many batches one step of the loop takes, over all replicas."""
        return self.replicas * self.accumulation

    @functools.cached_property
    def untrained(self) -> Untrained:
        """What the model's untrained arrays are."""
        generators = {id(v) for v in seed_states(self.model)}
        variables = self.model.non_trainable_variables
        seeds = (i for i, variable in enumerate(variables) if id(variable) in generators)
        return Untrained(self.replicas, tuple(seeds))


class Program(abc.ABC):
    """A `train_function`, `test_function` or `predict_function` of a Keras model.

    Attributes:
      mode: what it is to do.
      loop: its loop on the device.
    """

    def __init__(self, mode: Mode):
        self.mode = mode
        self.loop = self.made_loop()

    @abc.abstractmethod
    def made_loop(self) -> DeviceLoop:
        """The loop on the device."""

    @abc.abstractmethod
    def carried(self, state: State) -> TrainState:
        """Keras's state as the loop carries it."""

    @abc.abstractmethod
    def given_back(self, carried: TrainState) -> State:
        """The same, undone."""

    def __call__(self, state: State, batches: Iterator[Any]) -> tuple[Tree, State]:
        """Makes an execution: what the steps say, and the new state.

        Raises:
          StopIteration: the data has ended.
          KerasError: (a `ValueError`) the batches cannot be shared by all replicas.
        """
        left = self.mode.model.steps_per_execution
        if not isinstance(batches, Batches):  # of train_on_batch and its kin
            read = list(itertools.islice(batches, left))
            batches = Batches(iter(read), count=len(read))
        check_shares(self.mode, batches, left)
        carried, said = self.carried(state), []
        while left and (advance := self._advance(carried, batches, left, bool(said))) is not None:
            left -= advance.steps * self.mode.batches_per_step
            if advance.steps:
                carried = advance.state
                said.append(advance.results)
        if not said:
            raise StopIteration
        state = self.given_back(carried)
        return self._joined(said, state), state

    def _advance(
        self, carried: TrainState, batches: Batches, most: int, again: bool
    ) -> Advance | None:
        """One device loop of at most so many batches; None at the end of the data."""
        each = self.mode.batches_per_step
        series = batches.series() if each == 1 else batches.counted(most)
        if series is None:
            return None
        if each > 1:
            most = check_share(self.mode, series.length)
        elif again:  # what comes after a change of form is most often one last, smaller batch
            most = 1
        advance = self.loop.advance(carried, series, most // each)
        series.used += advance.steps * each
        return advance

    def _joined(self, said: list[Tree], state: State) -> Tree:
        if self.mode.kind == "predict":
            axes = 3 if self.mode.replicas > 1 else 2
            return jax.tree.map(
                lambda *parts: np.concatenate([p.reshape(-1, *p.shape[axes:]) for p in parts]),
                *said,
            )
        if self.mode.replicas == 1:
            return said[-1]
        return logs_of_all(self.mode.model, said[-1], state[-1])

    @property
    def options(self) -> dict[str, Any]:
        """Of the loop."""
        mode = self.mode
        keeps_all = mode.kind == "predict"
        return {
            "outfeed_mode": IPUOutfeedMode.ALL if keeps_all else IPUOutfeedMode.LAST,
            "device": mode.device,
            "name": f"{mode.model.name}_{mode.kind}",
        }

    @property
    def executable(self) -> Executable | None:
        """The program that was compiled last."""
        return self.loop.executable


class WholeSteps(Program):
    """Keras's steps, one after the other, each as it is."""

    def made_loop(self) -> Inference:
        """As `Program.made_loop`."""
        mode = self.mode
        step, untrained = _step_of(mode), mode.untrained

        def reduced(before: State, after: State) -> State:
            trained, kept, *metrics = after
            metrics = [untrained.added_up(before[2], new) for new in metrics]  # none in predict
            return trained, untrained.together(before[1], kept), *metrics

        def apart(kept: Arrays, trained: Arrays, others: tuple[Arrays, ...], batch: Any) -> Any:
            said, (trained, kept, *others) = step((trained, kept, *others), batch)
            return kept, (trained, others, said)

        def one_step(_: Tree, state: State, batch: Any) -> StepOutput:
            trained, kept, *others = state
            kept, (trained, others, said) = untrained.drawing_apart(apart)(
                kept, trained, others, batch
            )
            return StepOutput(send=said, state=(trained, kept, *others))

        reduction = reduced if mode.replicas > 1 else None
        return Inference(one_step, state_reduction=reduction, **self.options)

    def carried(self, state: State) -> TrainState:
        """As `Program.carried`."""
        return TrainState((), state=tuple(state))

    def given_back(self, carried: TrainState) -> State:
        """As `Program.given_back`."""
        return carried.state


class SharedUpdates(Program):
    """Weight updates from the gradients of several micro-batches or replicas."""

    def made_loop(self) -> Training:
        """As `Program.made_loop`."""
        mode = self.mode
        update, untrained = Update(mode.model), mode.untrained

        def apart(kept: Arrays, *others: Tree) -> tuple[Arrays, Tree]:
            gradients, said, kept, metrics = update.gradients(kept, *others)
            return kept, (gradients, said, metrics)

        def gradients(
            trained: Arrays, optimizer: Arrays, state: tuple[Arrays, Arrays], batch: Any
        ) -> tuple[Arrays, StepOutput]:
            kept, (gradients, said, metrics) = untrained.drawing_apart(apart)(
                state[0], trained, optimizer, state[1], batch
            )
            return gradients, StepOutput(send=said, state=(kept, metrics))

        def reduced(before: Any, after: Any) -> Any:
            kept = untrained.together(before[0], after[0])
            return kept, untrained.added_up(before[1], after[1])

        return Training(
            SelfDifferentiating(gradients),
            update.optimizer,
            accumulation=mode.accumulation,
            reduction_method="mean",
            state_reduction=reduced if mode.replicas > 1 else None,
            **self.options,
        )

    def carried(self, state: State) -> TrainState:
        """As `Program.carried`."""
        trained, kept, optimizer, metrics = state
        return TrainState(trained, optimizer, (kept, metrics))

    def given_back(self, carried: TrainState) -> State:
        """As `Program.given_back`."""
        kept, metrics = carried.state
        return carried.variables, kept, carried.optimizer_state, metrics


def _step_of(mode: Mode) -> Callable[[State, Any], tuple[Tree, State]]:
    """Keras's own step: state and batch -> what it says, and the new state."""
    model = mode.model
    if mode.kind == "train":
        return model.train_step
    if mode.kind == "test":
        return model.test_step

    def predict(state: State, data: Any) -> tuple[Tree, State]:
        outputs, kept = model.predict_step(state, data)
        return outputs, (state[0], kept)

    return predict


def seed_states(model: Any) -> Iterator[Any]:
    """The variables in which a model's seed generators count."""
    for layer in model._flatten_layers():
        for generator in getattr(layer, "_seed_generators", ()):
            yield generator.state


def logs_of_all(model: Any, said: Tree, metrics: Arrays) -> Tree:
    """What the steps say, of all replicas together.

    Args:
      model: a Keras model.
      said: by each replica's last step; the leading axis is theirs.
      metrics: the metrics' variables after it.
    """
    pairs = list(zip(model.metrics_variables, metrics, strict=True))
    with keras().StatelessScope(state_mapping=pairs):
        results = model.get_metrics_result()
    if isinstance(said, dict) and said.keys() == results.keys():
        return results
    return jax.tree.map(lambda each: np.mean(each, axis=0, dtype=each.dtype), said)
