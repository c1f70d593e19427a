"""The train, test and predict functions that Keras's trainer calls for each execution."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import jax

from ipujax.doors.keras import import_keras
from ipujax.driver import Executable
from ipujax.ground import Keywords, PyTree, count_replica_groups
from ipujax.keras.keras_batches import Batches
from ipujax.keras.keras_checks import check, check_ipus, check_model
from ipujax.keras.keras_programs import KerasProgram, SharedUpdateProgram, WholeStepProgram
from ipujax.keras.model_options import (
    check_training_options,
    gradient_accumulation_options,
    pipelining_options,
)
from ipujax.keras.model_stages import (
    is_graph,
    iterate_stage_numbers,
    needs_trace_for_stages,
    stages_of_model,
)
from ipujax.keras.pipeline_programs import PipelinedInference, PipelinedTraining
from ipujax.keras.pipeline_stage import PipelineStage
from ipujax.keras.planned_stages import plan_stages
from ipujax.keras.program_mode import ProgramMode, State
from ipujax.keras.stage_tracing import has_pipeline_stages, trace_in_stages
from ipujax.keras.strategy import Strategy
from ipujax.planner import Plan
from ipujax.report import Report
from ipujax.system import SYSTEM
from ipujax.training import Tree

if TYPE_CHECKING:
    import keras

# The modes by the names that users give, and the kinds by which Keras calls their functions.
_KINDS = {"train": "train", "evaluate": "test", "predict": "predict"}
_ORDER = itertools.count(1)


class ExecutionFunction:
    """A `train_function`, `test_function` or `predict_function` of a Keras model.

    Args:
      model: the model.
      kind: "train", "test" or "predict".
      strategy: the strategy in whose scope the function runs.
    """

    def __init__(self, model: keras.Model, kind: str, strategy: Strategy):
        check_model(model)
        self._model, self._kind, self.strategy = model, kind, strategy
        self._generation = SYSTEM.generation
        self._program: KerasProgram | None = None
        self._structure: PyTree = None
        self.epochs: Any = None  # a weak reference to the `EpochIterator` of the `fit` that runs
        self.made = 0  # the rank of the program among all that were made

    def __call__(self, state: State, batches: Iterator[PyTree]) -> tuple[Tree, State]:
        """Runs one execution; returns what its steps give, and the new state.

        Raises:
          StopIteration: the data has ended.
          KerasError: (a `ValueError`) the batches do not fit the model's options.
        """
        max_batches = self._model.steps_per_execution
        if not isinstance(batches, Batches):  # of train_on_batch and its kin
            batches_read = list(itertools.islice(batches, max_batches))
            batches = Batches(iter(batches_read), count=len(batches_read))
        structure = jax.tree.structure(state)
        if self._program is None or structure != self._structure:  # layers came or went
            self._program, self._structure = self._build_program(state, batches), structure
            self.made = next(_ORDER)
        return self._program.run_execution(state, batches, max_batches)

    def _build_program(self, state: State, batches: Batches) -> KerasProgram:
        """Returns a new program for the model's current options."""
        mode = self._build_mode(state, batches)
        if mode.stages is not None:
            return (PipelinedTraining if mode.kind == "train" else PipelinedInference)(mode)
        if mode.kind == "train" and mode.batches_per_step * mode.instances > 1:
            return SharedUpdateProgram(mode)
        return WholeStepProgram(mode)

    def _build_mode(self, state: State, batches: Batches) -> ProgramMode:
        model, kind, strategy = self._model, self._kind, self.strategy
        plan = self._plan_stages(state, batches)
        stages = self._count_model_stages(state, batches)
        if kind == "train" and plan is None:
            check_training_options(model, is_pipelined=stages is not None)
        options, ipus_per_replica = pipelining_options(model), 1
        arguments: Keywords = {**options.arguments}
        if stages is None and plan is None:
            options, arguments = gradient_accumulation_options(model), {}
        elif stages is not None:
            mapping = list(options.device_mapping or range(stages))
            arguments["device_mapping"] = mapping
            if plan is not None:
                chosen = {"pipeline_schedule": plan.schedule}
                arguments = {**chosen, **arguments, "device_mapping": list(plan.device_mapping)}
            ipus_per_replica = max(arguments["device_mapping"]) + 1
            check_ipus(model, ipus_per_replica, strategy.device)
        accumulation = options.gradient_accumulation_steps_per_replica
        return ProgramMode(
            model,
            kind,
            strategy.device,
            1 if plan is not None else strategy.count_replicas(ipus_per_replica),
            strategy.reduces,
            accumulation or 1 if kind == "train" else 1,
            options.reduction_method,
            stages,
            arguments,
            1 if kind == "predict" else count_replica_groups(),
            is_planned=plan is not None,
        )

    def _plan_stages(self, state: State, batches: Batches) -> Plan | None:
        """Plans the model's stages, if its options say so."""
        model, options = self._model, pipelining_options(self._model)
        if not options.is_planned:
            return None
        if self._kind == "train":
            check_training_options(model, is_pipelined=True)
        micro_batches = options.gradient_accumulation_steps_per_replica or model.steps_per_execution
        settings = {**options.arguments, "micro_batches": micro_batches}
        batch = batches.peek_batch()
        return plan_stages(model, self._kind, self.strategy.device, settings, state, batch)

    def _count_model_stages(self, state: State, batches: Batches) -> int | None:
        """Returns the number of the model's pipeline stages; None if it is no pipeline."""
        model = self._model
        if is_graph(model) and not needs_trace_for_stages(model):
            numbers = list(iterate_stage_numbers(stages_of_model(model)))
        elif PipelineStage.was_entered or has_pipeline_stages(model):
            numbers = self._trace_stages(state, batches)
        else:
            numbers = []
        return max((number for number in numbers if number is not None), default=-1) + 1 or None

    def _trace_stages(self, state: State, batches: Batches) -> Iterable[int]:
        """Returns the stages that `PipelineStage` scopes give while the model is traced."""
        model = self._model

        def call_model(trained: PyTree, non_trainable: PyTree, batch: PyTree) -> PyTree:
            inputs = import_keras().utils.unpack_x_y_sample_weight(batch)[0]
            training_argument = (
                {"training": self._kind == "train"} if model._call_has_training_arg else {}
            )
            return model.stateless_call(trained, non_trainable, inputs, **training_argument)

        with trace_in_stages(model) as trace:
            jax.eval_shape(call_model, state[0], state[1], batches.peek_batch())
        return trace.stages

    def was_built_for(self, strategy: Strategy) -> bool:
        """Returns whether the function was made for a strategy and the current configuration."""
        return self.strategy == strategy and self._generation == SYSTEM.generation

    @property
    def executable(self) -> Executable | None:
        """The program that ran last."""
        return None if self._program is None else self._program.executable


def report(model: keras.Model, mode: str | None = None) -> Report:
    """Returns the modelled cost of a model's program on its IPUs.

    Args:
      model: the model.
      mode: "train", "evaluate" or "predict"; None for the program that trains or, without one, the
        program that was made last.

    Raises:
      KerasError: (a `ValueError`) another mode, or one that has not run in the scope of a
        strategy.
    """
    if mode is not None:
        check.require_one_of(mode, _KINDS, "the mode to report")
    programs_by_mode: dict[str, tuple[int, Executable]] = {}
    for name, kind in _KINDS.items():
        function = getattr(model, f"{kind}_function")
        if isinstance(function, ExecutionFunction) and function.executable is not None:
            programs_by_mode[name] = function.made, function.executable
    if mode is None:
        mode = (
            "train"
            if "train" in programs_by_mode
            else max(programs_by_mode, key=lambda name: programs_by_mode[name][0], default="train")
        )
    if mode not in programs_by_mode:
        raise check.value_error(
            f"model {model.name!r} has no program yet"
            + (f" to {mode}" if programs_by_mode else ""),
            "fit, evaluate or predict in the scope of an IPUStrategy first",
        )
    return programs_by_mode[mode][1].report()
