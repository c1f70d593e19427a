"""The functions that Keras's trainer calls for each execution."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import jax

from ipujax.distribution.join import instance_count
from ipujax.driver.stages import Executable
from ipujax.frontends.keras_backend import keras
from ipujax.keras.batches import Batches
from ipujax.keras.checks import check, check_ipus, check_model
from ipujax.keras.mode import Mode, State
from ipujax.keras.options import (
    check_options,
    gradient_accumulation_options,
    pipelining_options,
)
from ipujax.keras.pipeline_stage import PipelineStage
from ipujax.keras.pipelined import PipelinedInference, PipelinedTraining
from ipujax.keras.programs import Program, SharedUpdates, WholeSteps
from ipujax.keras.staged import is_pipelined, staged
from ipujax.keras.stages import gives_stages, is_graph, leaves, stages_of
from ipujax.keras.strategy import Strategy
from ipujax.report.report import Report
from ipujax.system.devices import SYSTEM
from ipujax.training.state import Tree

# What users call the modes, and what Keras calls their functions.
_KINDS = {"train": "train", "evaluate": "test", "predict": "predict"}
_ORDER = itertools.count(1)


class Function:
    """A `train_function`, `test_function` or `predict_function` of a Keras model.

    Args:
      model: the model.
      kind: "train", "test" or "predict".
      strategy: that is in force.
    """

    def __init__(self, model: Any, kind: str, strategy: Strategy):
        check_model(model)
        self._model, self._kind, self.strategy = model, kind, strategy
        self._generation = SYSTEM.generation
        self._program: Program | None = None
        self._structure: Any = None
        self.epochs: Any = None  # a weak reference to the `EpochIterator` of the `fit` that runs
        self.made = 0  # in which order programs were made

    def __call__(self, state: State, batches: Iterator[Any]) -> tuple[Tree, State]:
        """Makes an execution: what the steps say, and the new state.

        Raises:
          StopIteration: the data has ended.
          KerasError: (a `ValueError`) the batches do not fit the model's options.
        """
        most = self._model.steps_per_execution
        if not isinstance(batches, Batches):  # of train_on_batch and its kin
            read = list(itertools.islice(batches, most))
            batches = Batches(iter(read), count=len(read))
        structure = jax.tree.structure(state)
        if self._program is None or structure != self._structure:  # layers came or went
            self._program, self._structure = self._new_program(state, batches), structure
            self.made = next(_ORDER)
        return self._program.run(state, batches, most)

    def _new_program(self, state: State, batches: Batches) -> Program:
        """The program for the options that the model has now."""
        mode = self._mode(state, batches)
        if mode.stages is not None:
            return (PipelinedTraining if mode.kind == "train" else PipelinedInference)(mode)
        if mode.kind == "train" and mode.batches_per_step * mode.instances > 1:
            return SharedUpdates(mode)
        return WholeSteps(mode)

    def _mode(self, state: State, batches: Batches) -> Mode:
        model, kind, strategy = self._model, self._kind, self.strategy
        stages = self._stages(state, batches)
        if kind == "train":
            check_options(model, is_pipelined=stages is not None)
        if stages is None:
            options = gradient_accumulation_options(model)
            ipus, arguments = 1, {}
        else:
            options = pipelining_options(model)
            mapping = list(options.device_mapping or range(stages))
            ipus, arguments = max(mapping) + 1, {**options.arguments, "device_mapping": mapping}
            check_ipus(model, ipus, strategy.device)
        accumulation = options.gradient_accumulation_steps_per_replica
        return Mode(
            model,
            kind,
            strategy.device,
            strategy.replicas(ipus),
            strategy.reduces,
            accumulation or 1 if kind == "train" else 1,
            options.reduction_method,
            stages,
            arguments,
            1 if kind == "predict" else instance_count(),
        )

    def _stages(self, state: State, batches: Batches) -> int | None:
        """How many stages the model has; None if it is no pipeline."""
        model = self._model
        if is_graph(model) and not gives_stages(model):
            numbers = list(leaves(stages_of(model)))
        elif PipelineStage.was_entered or is_pipelined(model):
            numbers = self._traced(state, batches)
        else:
            numbers = []
        return max((number for number in numbers if number is not None), default=-1) + 1 or None

    def _traced(self, state: State, batches: Batches) -> Iterable[int]:
        """The stages that a subclassed model's `call` says, of the model or inside it."""
        model = self._model

        def call(trained: Any, kept: Any, batch: Any) -> Any:
            inputs = keras().utils.unpack_x_y_sample_weight(batch)[0]
            told = {"training": self._kind == "train"} if model._call_has_training_arg else {}
            return model.stateless_call(trained, kept, inputs, **told)

        with staged(model) as traced:
            jax.eval_shape(call, state[0], state[1], batches.first())
        return traced.stages

    def is_for(self, strategy: Strategy) -> bool:
        """Whether it was made for this strategy, and the configuration that is in force."""
        return self.strategy == strategy and self._generation == SYSTEM.generation

    @property
    def executable(self) -> Executable | None:
        """The program that ran last."""
        return None if self._program is None else self._program.executable


def report(model: Any, mode: str | None = None) -> Report:
    """What a model's program would cost on its IPUs.

    Args:
      model: the model.
      mode: "train", "evaluate" or "predict"; None for the program that trains or, if there is none,
        the one that was made last.

    Raises:
      KerasError: (a `ValueError`) another mode, or one that has not run in the scope of a
        strategy.
    """
    if mode is not None:
        check.one_of(mode, _KINDS, "the mode to report")
    ran: dict[str, tuple[int, Executable]] = {}
    for name, kind in _KINDS.items():
        function = getattr(model, f"{kind}_function")
        if isinstance(function, Function) and function.executable is not None:
            ran[name] = function.made, function.executable
    if mode is None:
        mode = (
            "train" if "train" in ran else max(ran, key=lambda name: ran[name][0], default="train")
        )
    if mode not in ran:
        raise check.refuse(
            f"model {model.name!r} has no program yet" + (f" to {mode}" if ran else ""),
            "fit, evaluate or predict in the scope of an IPUStrategy first",
        )
    return ran[mode][1].report()
