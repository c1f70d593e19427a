"""What a Keras model does in each of its modes, as loops on the device.

Keras's own step is a pure function of the model's arrays and a batch. So many of them as
`steps_per_execution` says are one loop, fed by an infeed: the numbers are Keras's own.
"""

from __future__ import annotations

import abc
import dataclasses as dc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ipujax.distribution.collectives import averaged
from ipujax.driver.stages import Executable
from ipujax.frontends.keras_backend import keras
from ipujax.ipu_outfeed_queue import IPUOutfeedMode
from ipujax.keras.batches import Batches
from ipujax.keras.checks import check_share, check_shares
from ipujax.keras.gradients import Update, keep_state_between_updates
from ipujax.keras.instances import agree_on_batches, of_the_chief
from ipujax.keras.mode import Arrays, Mode, State
from ipujax.keras.options import gradient_accumulation_options
from ipujax.keras.queue_options import prefetch_depth
from ipujax.system.log import get_logger
from ipujax.training import (
    Inference,
    ReplicaReduction,
    SelfDifferentiating,
    StepOutput,
    Training,
    TrainState,
)
from ipujax.training.device_loop import Advance, DeviceLoop
from ipujax.training.state import Tree


class Program(abc.ABC):
    """How a model does what a mode says.

    Attributes:
      mode: what it is to do.
    """

    def __init__(self, mode: Mode):
        self.mode = mode
        self._loops: dict[int, DeviceLoop] = {}
        self._latest: DeviceLoop | None = None
        self._agreed: Batches | None = None
        self._has_told = False

    @abc.abstractmethod
    def made_loop(self, micro_batches: int) -> DeviceLoop:
        """A loop on the device, of steps of so many micro-batches."""

    @abc.abstractmethod
    def carried(self, state: State) -> TrainState:
        """Keras's state as the loop carries it."""

    @abc.abstractmethod
    def given_back(self, carried: TrainState) -> State:
        """The same, undone."""

    def run(self, state: State, batches: Batches, most: int) -> tuple[Tree, State]:
        """Makes an execution of at most so many batches: what its steps say, and the new state.

        Raises:
          StopIteration: the data has ended.
          KerasError: (a `ValueError`) the replicas and micro-batches cannot share the batches.
        """
        if self.mode.is_shared:
            state = self._together(state, batches)
        carried, said = self.carried(state), []
        if self._latest is None and self.mode.replicas > 1 and self.mode.stages is None:
            self._settle(carried, batches, most)
        check_shares(self.mode, batches, most)
        self._tell_of_incomplete(batches)
        while most and (advance := self._advance(carried, batches, most, bool(said))) is not None:
            made, advance = advance
            most -= made
            if made:
                carried = advance.state
                said.append(advance.results)
        if not said:
            raise StopIteration
        state = self.given_back(carried)
        return self._joined(said, state), state

    def _together(self, state: State, batches: Batches) -> State:
        """The state that all processes go on from: first of all that of process 0.

        Raises:
          DistributionError: (a `ValueError`) processes whose models or numbers of batches differ.
        """
        if batches.count is not None and batches is not self._agreed:
            agree_on_batches(self.mode, batches.count, batches.incomplete)
        self._agreed = batches
        return state if self._latest is not None else of_the_chief(self.mode, state)

    def _settle(self, carried: TrainState, batches: Batches, most: int) -> None:
        """Finds out how many replicas there are where layers are on IPUs of their own.

        A model is taken for one of one IPU; scopes such as `ipu_shard` in its layers are known
        once it was lowered. The program is one that the execution runs.
        """
        count = most if batches.count is None else min(most, batches.count)
        steps, micro_batches = self.divided(count)
        loop, first = self._loop_of(micro_batches), iter([{"batch": batches.first()}])
        lowered = loop.compile(carried, first, max(steps, 1)).lowered
        if lowered.replicas != self.mode.replicas:
            self.mode = dc.replace(self.mode, replicas=lowered.replicas)
            self._loops.clear()

    def _advance(
        self, carried: TrainState, batches: Batches, most: int, again: bool
    ) -> tuple[int, Advance] | None:
        """One device loop of at most so many batches, and how many; None at the end of the data."""
        mode = self.mode
        exact = mode.batches_per_step > 1 or mode.stages is not None or mode.is_shared
        series = batches.counted(most) if exact else batches.series()
        if mode.is_shared and batches.count is None:
            agree_on_batches(mode, series.left(most) if series else 0)
        if series is None:
            return None
        if exact:
            most = check_share(mode, series.left(most))
        elif again:  # what comes after a change of form is most often one last, smaller batch
            most = 1
        steps, micro_batches = self.divided(most)
        loop = self._latest = self._loop_of(micro_batches)
        advance = loop.advance(carried, series, steps)
        made = advance.steps * micro_batches * mode.replicas
        series.used += made
        batches.used += made
        return made, advance

    def _tell_of_incomplete(self, batches: Batches) -> None:
        """Says, once, what an incomplete last batch costs."""
        if batches.incomplete and not self._has_told:
            self._has_told = True
            get_logger().info(
                "The last batch for model `%s` has %d examples only: it is a program of its own, "
                "which takes another compilation. A batch_size that divides the number of "
                "examples, or steps_per_epoch, saves that",
                self.mode.model.name,
                batches.incomplete,
            )

    def divided(self, batches: int) -> tuple[int, int]:
        """So many batches as steps, and micro-batches in each."""
        return batches // self.mode.batches_per_step, self.mode.accumulation

    def _loop_of(self, micro_batches: int) -> DeviceLoop:
        if micro_batches not in self._loops:
            self._loops[micro_batches] = self.made_loop(micro_batches)
        return self._loops[micro_batches]

    def _joined(self, said: list[Tree], state: State) -> Tree:
        said = list(map(self.said, said))
        if self.mode.kind == "predict":
            axes = 2 if self.mode.replicas > 1 else 1
            return jax.tree.map(lambda *parts: _concatenated(parts, axes), *said)
        if self.mode.all_replicas == 1:
            return said[-1]
        return _logs_of_all(self.mode, said[-1], state[-1])

    def said(self, results: Tree) -> Tree:
        """What Keras's step says, of what the loop sends."""
        return results

    @property
    def options(self) -> dict[str, Any]:
        """Of all loops."""
        mode = self.mode
        keeps_all = mode.kind == "predict"
        return {
            "outfeed_mode": IPUOutfeedMode.ALL if keeps_all else IPUOutfeedMode.LAST,
            "state_reduction": self.reduced if mode.all_replicas > 1 else None,
            "device": mode.device,
            "prefetch_depth": prefetch_depth(mode.model),
            "alone": mode.is_alone,
            "name": f"{mode.model.name}_{mode.kind}",
            "names": self.carried(mode.names_of_state),
        }

    @property
    def training_options(self) -> dict[str, Any]:
        """Of loops that train."""
        mean, none = ReplicaReduction.MEAN, ReplicaReduction.NONE
        reduction = mean if self.mode.reduces else none
        return self.options | {
            "reduction_method": self.mode.reduction,
            "replica_reduction": reduction,
        }

    def reduced(self, before: Tree, after: Tree) -> Tree:
        """The untrained state that all replicas leave, non-trainable variables and metrics'."""
        untrained = self.mode.untrained
        return untrained.together(after[0]), untrained.added_up(before[1], after[1])

    @property
    def executable(self) -> Executable | None:
        """The program that ran last."""
        return None if self._latest is None else self._latest.executable


class WholeSteps(Program):
    """Keras's steps, one after the other, each as it is."""

    def made_loop(self, micro_batches: int) -> Inference:
        """As `Program.made_loop`."""
        step, untrained = _step_of(self.mode), self.mode.untrained

        def apart(kept: Arrays, trained: Arrays, others: Tree, batch: Any) -> tuple[Arrays, Tree]:
            said, (trained, kept, *others) = step((trained, kept, *others), batch)
            return kept, (trained, others, said)

        apart = untrained.drawing_apart(apart)

        def one_step(_: Tree, state: State, batch: Any) -> StepOutput:
            kept, (trained, others, said) = apart(state[1], state[0], list(state[2:]), batch)
            return StepOutput(send=said, state=(trained, kept, *others))

        return Inference(one_step, accumulation=micro_batches, **self.options)

    def reduced(self, before: State, after: State) -> State:
        """As `Program.reduced`; the state has all of the model's arrays."""
        trained, kept, *metrics = after
        untrained = self.mode.untrained
        added = [untrained.added_up(before[2], new) for new in metrics]  # none in prediction
        return trained, untrained.together(kept), *added

    def carried(self, state: State) -> TrainState:
        """As `Program.carried`."""
        return TrainState((), state=tuple(state))

    def given_back(self, carried: TrainState) -> State:
        """As `Program.given_back`."""
        return carried.state


class SharedUpdates(Program):
    """Weight updates from the gradients of several micro-batches or replicas."""

    def made_loop(self, micro_batches: int) -> Training:
        """As `Program.made_loop`."""
        update = Update(self.mode.model)

        def apart(kept: Arrays, *others: Tree) -> tuple[Arrays, Tree]:
            gradients, said, kept, metrics = update.gradients(kept, *others)
            return kept, (gradients, said, metrics)

        apart = self.mode.untrained.drawing_apart(apart)

        def gradients(
            trained: Arrays, optimizer: Arrays, state: tuple[Arrays, Arrays], batch: Any
        ) -> tuple[Arrays, StepOutput]:
            kept, (gradients, said, metrics) = apart(state[0], trained, optimizer, state[1], batch)
            return gradients, StepOutput(send=said, state=(kept, metrics))

        accumulates = gradient_accumulation_options(self.mode.model)
        optimizer = update.optimizer()
        if self.mode.accumulation > 1:
            optimizer = keep_state_between_updates(optimizer, accumulates.storage, accumulates.name)
        return Training(
            SelfDifferentiating(gradients),
            optimizer,
            accumulation=micro_batches,
            accumulation_dtype=accumulates.dtype,
            **self.training_options,
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


def _concatenated(parts: tuple[Any, ...], axes: int) -> np.ndarray:
    """What the steps of several device loops predict, which their leading axes number, as one."""
    rows = [row for part in parts for row in part.reshape(-1, *part.shape[axes:])]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def _logs_of_all(mode: Mode, said: Tree, metrics: Arrays) -> Tree:
    """What the steps say, of all replicas together.

    Args:
      mode: of the program.
      said: by the last step of each replica of this process; with several, the leading axis is
        theirs.
      metrics: the metrics' variables after it.
    """
    model = mode.model
    pairs = list(zip(model.metrics_variables, metrics, strict=True))
    with keras().StatelessScope(state_mapping=pairs):
        results = model.get_metrics_result()
    if isinstance(said, dict) and said.keys() == results.keys():
        return results
    if mode.replicas > 1:
        said = jax.tree.map(lambda each: np.mean(each, axis=0, dtype=each.dtype), said)
    return said if mode.instances == 1 else averaged(said)
