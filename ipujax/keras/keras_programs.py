"""The programs of a Keras model: training, evaluation and prediction as device loops.

Keras's own step is a pure function of the model's arrays and a batch. `steps_per_execution` of
them are one loop, fed by an infeed: the numbers are Keras's own.
"""

from __future__ import annotations

import abc
import dataclasses as dc
from collections.abc import Callable

import jax
import numpy as np

from ipujax.distribution import average_over_processes
from ipujax.doors.keras import import_keras
from ipujax.driver import Executable
from ipujax.ground import Keywords, PyTree
from ipujax.host import IPUOutfeedMode
from ipujax.keras.keras_batches import Batches
from ipujax.keras.keras_checks import check_batch_count, check_execution_shares
from ipujax.keras.keras_gradients import SplitTrainStep, log_gradient_reduction
from ipujax.keras.model_options import gradient_accumulation_options
from ipujax.keras.process_agreement import agree_on_batches, broadcast_chief_state
from ipujax.keras.program_mode import Arrays, ProgramMode, State
from ipujax.keras.queue_options import prefetch_depth
from ipujax.optimizers import store_state_between_updates
from ipujax.system import get_logger
from ipujax.training import (
    Advance,
    DeviceLoop,
    Inference,
    ReplicaReduction,
    SelfDifferentiating,
    StepOutput,
    Training,
    TrainState,
    Tree,
)


class KerasProgram(abc.ABC):
    """A program of a Keras model in one mode; it holds the compiled device loops.

    Attributes:
      mode: the settings of the program.
    """

    def __init__(self, mode: ProgramMode):
        self.mode = mode
        self._loops: dict[int, DeviceLoop] = {}
        self._latest: DeviceLoop | None = None
        self._agreed: Batches | None = None
        self._computing: Tree = None
        self._has_told = False

    @abc.abstractmethod
    def build_loop(self, micro_batches: int) -> DeviceLoop:
        """Builds a device loop whose steps have a number of micro-batches."""

    @abc.abstractmethod
    def to_loop_state(self, state: State) -> TrainState:
        """Returns Keras's state as the state of the device loop."""

    @abc.abstractmethod
    def to_keras_state(self, loop_state: TrainState) -> State:
        """Returns the device loop's state as Keras's state."""

    def run_execution(self, state: State, batches: Batches, max_batches: int) -> tuple[Tree, State]:
        """Runs one execution; returns the outputs of its steps and the new state.

        Raises:
          StopIteration: the data has ended.
          KerasError: (a `ValueError`) the replicas and micro-batches cannot share the batches.
        """
        if self.mode.is_shared:
            state = self._synchronize_state(state, batches)
        loop_state, results = self.to_loop_state(state), []
        if self._latest is None and self.mode.replicas > 1 and self.mode.stages is None:
            self._correct_replica_count(loop_state, batches, max_batches)
        check_execution_shares(self.mode, batches, max_batches)
        log_gradient_reduction(self.mode)
        self._log_incomplete_batch(batches)
        while (
            max_batches
            and (advance := self._run_device_loop(loop_state, batches, max_batches, bool(results)))
            is not None
        ):
            batches_used, advance = advance
            max_batches -= batches_used
            if batches_used:
                loop_state = advance.state
                results.append(advance.results)
        if not results:
            raise StopIteration
        state = self.to_keras_state(loop_state)
        outputs = self._combine_outputs(results, state)
        # While an execution computes, the next one is read and stacked, but not one after that.
        jax.block_until_ready(self._computing)
        self._computing = outputs if self.mode.kind != "predict" else None
        return outputs, state

    def _synchronize_state(self, state: State, batches: Batches) -> State:
        """Returns the state that all processes go on from: at first, that of process 0.

        Raises:
          DistributionError: (a `ValueError`) processes whose models or numbers of batches differ.
        """
        if batches.count is not None and batches is not self._agreed:
            agree_on_batches(self.mode, batches.count, batches.incomplete)
        self._agreed = batches
        return state if self._latest is not None else broadcast_chief_state(self.mode, state)

    def _correct_replica_count(
        self, loop_state: TrainState, batches: Batches, max_batches: int
    ) -> None:
        """Corrects the number of replicas, where layers are on several IPUs.

        A model counts as one of one IPU; scopes such as `ipu_shard` in its layers are known once
        it was lowered. The execution runs the program that is compiled here.
        """
        count = max_batches if batches.count is None else min(max_batches, batches.count)
        steps, micro_batches = self.count_steps_and_micro_batches(count)
        loop, first_element = (
            self._find_or_build_loop(micro_batches),
            iter([{"batch": batches.peek_batch()}]),
        )
        lowered = loop.compile(loop_state, first_element, max(steps, 1)).lowered
        if lowered.replicas != self.mode.replicas:
            self.mode = dc.replace(self.mode, replicas=lowered.replicas)
            self._loops.clear()

    def _run_device_loop(
        self, loop_state: TrainState, batches: Batches, max_batches: int, is_continued: bool
    ) -> tuple[int, Advance] | None:
        """Runs one device loop; returns its batches and results, None at the end of the data."""
        mode = self.mode
        needs_equal_shares = mode.batches_per_step > 1 or mode.stages is not None or mode.is_shared
        series = (
            batches.next_series_of_known_length(max_batches)
            if needs_equal_shares
            else batches.next_series()
        )
        if mode.is_shared and batches.count is None:
            agree_on_batches(mode, series.count_unused(max_batches) if series else 0)
        if series is None:
            return None
        if needs_equal_shares:
            max_batches = check_batch_count(mode, series.count_unused(max_batches))
        elif is_continued:  # after a change of form, mostly one smaller last batch is left
            max_batches = 1
        steps, micro_batches = self.count_steps_and_micro_batches(max_batches)
        loop = self._latest = self._find_or_build_loop(micro_batches)
        advance = loop.run_single_loop(loop_state, series, steps)
        batches_used = advance.steps * micro_batches * mode.replicas
        series.used += batches_used
        batches.used += batches_used
        return batches_used, advance

    def _log_incomplete_batch(self, batches: Batches) -> None:
        """Logs, once, the cost of an incomplete last batch."""
        if batches.incomplete and not self._has_told:
            self._has_told = True
            get_logger().info(
                "The last batch for model `%s` has %d examples only: it is a program of its own, "
                "which takes another compilation. A batch_size that divides the number of "
                "examples, or steps_per_epoch, saves that",
                self.mode.model.name,
                batches.incomplete,
            )

    def count_steps_and_micro_batches(self, batches: int) -> tuple[int, int]:
        """Returns a number of batches as steps, and micro-batches in each step."""
        return batches // self.mode.batches_per_step, self.mode.accumulation

    def _find_or_build_loop(self, micro_batches: int) -> DeviceLoop:
        if micro_batches not in self._loops:
            self._loops[micro_batches] = self.build_loop(micro_batches)
        return self._loops[micro_batches]

    def _combine_outputs(self, outputs: list[Tree], state: State) -> Tree:
        outputs = list(map(self.select_outputs, outputs))
        if self.mode.kind == "predict":
            axes = 2 if self.mode.replicas > 1 else 1
            return jax.tree.map(lambda *parts: _concatenate_predictions(parts, axes), *outputs)
        if self.mode.all_replicas == 1:
            return outputs[-1]
        return _compute_logs_of_all_replicas(self.mode, outputs[-1], state[-1])

    def select_outputs(self, results: Tree) -> Tree:
        """Returns the outputs of Keras's step from the results that the loop sends."""
        return results

    @property
    def loop_options(self) -> Keywords:
        """The arguments that all device loops of the program take."""
        mode = self.mode
        keeps_all = mode.kind == "predict"
        return {
            "outfeed_mode": IPUOutfeedMode.ALL if keeps_all else IPUOutfeedMode.LAST,
            "awaits_results": keeps_all or mode.all_replicas > 1,
            "state_reduction": self.reduce_untrained if mode.all_replicas > 1 else None,
            "device": mode.device,
            "prefetch_depth": prefetch_depth(mode.model),
            "alone": mode.is_alone,
            "replicas": 1 if mode.is_planned else None,
            "name": f"{mode.model.name}_{mode.kind}",
            "names": self.to_loop_state(mode.state_names),
        }

    @property
    def training_options(self) -> Keywords:
        """The arguments that all device loops of training take."""
        mean, none = ReplicaReduction.MEAN, ReplicaReduction.NONE
        reduction = mean if self.mode.reduces else none
        return self.loop_options | {
            "reduction_method": self.mode.reduction,
            "replica_reduction": reduction,
        }

    def reduce_untrained(self, old: Tree, new: Tree) -> Tree:
        """Returns the untrained state that all replicas leave: non-trainable variables, metrics."""
        untrained = self.mode.untrained_reductions
        return untrained.average_non_trainable(new[0]), untrained.sum_metrics(old[1], new[1])

    @property
    def executable(self) -> Executable | None:
        """The executable of the loop that ran last."""
        return None if self._latest is None else self._latest.executable


class WholeStepProgram(KerasProgram):
    """The program that runs Keras's steps one after the other, unchanged."""

    def build_loop(self, micro_batches: int) -> Inference:
        """Builds a device loop of Keras's own steps."""
        step, untrained = _find_keras_step(self.mode), self.mode.untrained_reductions

        def run_step(
            non_trainable: Arrays, trainable: Arrays, other_arrays: Tree, batch: PyTree
        ) -> tuple[Arrays, Tree]:
            outputs, (trainable, non_trainable, *other_arrays) = step(
                (trainable, non_trainable, *other_arrays), batch
            )
            return non_trainable, (trainable, other_arrays, outputs)

        run_step = untrained.offset_random_draws(run_step)

        def send_step_outputs(_: Tree, state: State, batch: PyTree) -> StepOutput:
            non_trainable, (trainable, other_arrays, outputs) = run_step(
                state[1], state[0], list(state[2:]), batch
            )
            return StepOutput(send=outputs, state=(trainable, non_trainable, *other_arrays))

        return Inference(send_step_outputs, accumulation=micro_batches, **self.loop_options)

    def reduce_untrained(self, old: State, new: State) -> State:
        """Returns the state that all replicas leave, from the arrays of all kinds."""
        trainable, non_trainable, *metrics = new
        untrained = self.mode.untrained_reductions
        # Prediction has no metrics.
        summed_metrics = [untrained.sum_metrics(old[2], metric) for metric in metrics]
        return trainable, untrained.average_non_trainable(non_trainable), *summed_metrics

    def to_loop_state(self, state: State) -> TrainState:
        """Returns Keras's state as the untrained state of the loop."""
        return TrainState((), state=tuple(state))

    def to_keras_state(self, loop_state: TrainState) -> State:
        """Returns the loop's untrained state, which is Keras's."""
        return loop_state.state


class SharedUpdateProgram(KerasProgram):
    """The program whose weight updates share gradients of micro-batches or replicas."""

    def build_loop(self, micro_batches: int) -> Training:
        """Builds a device loop of training with averaged gradients."""
        update = SplitTrainStep(self.mode.model)

        def split_off_non_trainable(
            non_trainable: Arrays, *other_arguments: Tree
        ) -> tuple[Arrays, Tree]:
            gradients, logs, non_trainable, metrics = update.compute_gradients_and_logs(
                non_trainable, *other_arguments
            )
            return non_trainable, (gradients, logs, metrics)

        split_off_non_trainable = self.mode.untrained_reductions.offset_random_draws(
            split_off_non_trainable
        )

        def compute_step_gradients(
            trained: Arrays, optimizer: Arrays, state: tuple[Arrays, Arrays], batch: PyTree
        ) -> tuple[Arrays, StepOutput]:
            non_trainable, (gradients, logs, metrics) = split_off_non_trainable(
                state[0], trained, optimizer, state[1], batch
            )
            return gradients, StepOutput(send=logs, state=(non_trainable, metrics))

        accumulation_options = gradient_accumulation_options(self.mode.model)
        optimizer = update.as_optax_optimizer()
        if self.mode.accumulation > 1 and not self.mode.is_planned:  # the state stays on the IPU
            optimizer = store_state_between_updates(
                optimizer, accumulation_options.storage, accumulation_options.scope_name
            )
        return Training(
            SelfDifferentiating(compute_step_gradients),
            optimizer,
            accumulation=micro_batches,
            accumulation_dtype=self.mode.pipeline.get(
                "gradient_accumulation_dtype", accumulation_options.dtype_of_accumulators
            ),
            **self.training_options,
        )

    def to_loop_state(self, state: State) -> TrainState:
        """Returns Keras's state with trained variables and optimizer state apart."""
        trainable, non_trainable, optimizer, metrics = state
        return TrainState(trainable, optimizer, (non_trainable, metrics))

    def to_keras_state(self, loop_state: TrainState) -> State:
        """Returns the state of the training loop as Keras's."""
        non_trainable, metrics = loop_state.state
        return loop_state.variables, non_trainable, loop_state.optimizer_state, metrics


def _find_keras_step(mode: ProgramMode) -> Callable[[State, object], tuple[Tree, State]]:
    """Returns Keras's own step: a function from state and batch to outputs and new state."""
    model = mode.model
    if mode.kind == "train":
        return model.train_step
    if mode.kind == "test":
        return model.test_step

    def run_predict_step(state: State, data: PyTree) -> tuple[Tree, State]:
        outputs, non_trainable = model.predict_step(state, data)
        return outputs, (state[0], non_trainable)

    return run_predict_step


def _concatenate_predictions(loop_outputs: tuple[PyTree, ...], leading_axes: int) -> np.ndarray:
    """Concatenates the predictions of several device loops."""
    rows = [row for array in loop_outputs for row in array.reshape(-1, *array.shape[leading_axes:])]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def _compute_logs_of_all_replicas(mode: ProgramMode, logs: Tree, metrics: Arrays) -> Tree:
    """Returns the logs of a step, of all replicas together.

    Args:
      mode: the mode of the program.
      logs: the logs of the last step; with several replicas, their leading axis counts them.
      metrics: the metrics' variables after that step.
    """
    model = mode.model
    pairs = list(zip(model.metrics_variables, metrics, strict=True))
    with import_keras().StatelessScope(state_mapping=pairs):
        results = model.get_metrics_result()
    if isinstance(logs, dict) and logs.keys() == results.keys():
        return results
    if mode.replicas > 1:
        logs = jax.tree.map(lambda leaf: np.mean(leaf, axis=0, dtype=leaf.dtype), logs)
    return logs if mode.instances == 1 else average_over_processes(logs)
