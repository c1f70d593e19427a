"""The class `PoplarExecutor`: a module that runs as a program on virtual IPUs."""

from __future__ import annotations

import datetime
import functools
import os
import time
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from ipujax.doors.torch import to_torch
from ipujax.ground import (
    PopTorchError,
    PyTree,
    api_boundary,
    count_replica_groups,
    current_instance,
)
from ipujax.poptorch.batch_split import BatchSplit
from ipujax.poptorch.buffers import check_updatable_buffers, find_buffers_per_replica
from ipujax.poptorch.compilation_bar import compilation_bar
from ipujax.poptorch.enums import AutoStage, CommGroupType, ConnectionType, OutputMode
from ipujax.poptorch.model_arguments import Arguments, Signature, collect_matching_tensors
from ipujax.poptorch.module_hooks import call_post_compile_hooks, call_pre_compile_hooks
from ipujax.poptorch.optim.rules import State
from ipujax.poptorch.options import Options
from ipujax.poptorch.output_reductions import choose_reductions
from ipujax.poptorch.planned_stages import plan_stages, recomputes_stages
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_custom_ops import trace_with_replicas
from ipujax.poptorch.poptorch_devices import configure_ipus_for_model
from ipujax.poptorch.poptorch_errors import convert_errors
from ipujax.poptorch.poptorch_forward import Forward, names_to_send
from ipujax.poptorch.poptorch_log import logger
from ipujax.poptorch.poptorch_programs import (
    Program,
    build_inference_program,
    build_training_program,
)
from ipujax.poptorch.poptorch_structures import rebuild_structure
from ipujax.poptorch.poptorch_weights import suspend_watching
from ipujax.poptorch.saving import Saved, SavedData
from ipujax.poptorch.step_counters import Run, count_inputs_and_outputs_transferred
from ipujax.poptorch.tensor_anchors import Anchors, choose_anchors, list_anchor_names
from ipujax.poptorch.trace_model import TracedModule, trace_module
from ipujax.poptorch.wrapped_model import WrappedModel, copy_module_values


@check.guard
class PoplarExecutor(WrappedModel):
    """A module that runs on virtual IPUs; made by `trainingModel` and `inferenceModel`.

    It is called as the module is. The first call, or `compile`, traces and compiles the module for
    arguments of these shapes. Other attributes are those of the module.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options,
        optimizer: torch.optim.Optimizer | None = None,
    ):
        super().__init__(model, options, optimizer)
        self._traced: TracedModule | None = None
        self._compiled_for: Arguments | None = None
        self._rng_state = [_initial_seed(options), 0]
        self._anchors, self._anchored = Anchors(), dict[str, torch.Tensor]()

    @property
    def _executable(self) -> Program | None:
        """The compiled program, which programs of the original's time ask for; None before."""
        return self._program

    # --- compiling --------------------------------------------------------------------------------

    @api_boundary
    def compile(self, *args: object, **kwargs: object) -> None:
        """Traces and compiles the module for arguments like these.

        Raises:
          PopTorchError: (a `ValueError`) arguments that do not fit, or no loss to train for.
          FrontendError: (the same) a module that cannot be traced.
          LoweringError: a program that does not fit its IPUs.
        """
        if self._program is None:
            self._compile_module(self._signature.bind_forward_arguments(args, kwargs))

    def _compile_module(self, arguments: Arguments) -> Program:
        call_pre_compile_hooks()
        started, batch_split = time.perf_counter(), self._batch_split
        tensors = arguments.tensors
        micro_batches = [
            batch_split.select_first_micro_batch(tensor.detach()) for tensor in tensors
        ]
        args, kwargs = rebuild_structure((arguments.args, arguments.kwargs), micro_batches)
        strategy = self._options._execution_strategy  # pyright: ignore[reportPrivateUsage]
        switches = self._options._Popart.options  # pyright: ignore[reportPrivateUsage]
        precision = self._options.Precision
        is_shown = self._options._show_compilation_progress_bar  # pyright: ignore[reportPrivateUsage]
        with compilation_bar(is_shown) as advance, convert_errors():
            with trace_with_replicas(batch_split.replicas * self._training_processes):
                self._traced = trace = trace_module(
                    self._model, args, kwargs, strategy, training=self.training,
                    strided_groups=bool(switches.get("groupNormStridedChannelGrouping")),
                    policy=precision.autocast_policy if precision.autocast_enabled else None,
                )  # fmt: skip
                if strategy.auto_stage is AutoStage.Auto:
                    self._traced = trace = plan_stages(
                        trace, self._options, batch_split, training=self.training
                    )
            advance()
            configure_ipus_for_model(
                batch_split.replicas, trace.staged.ipu_count, self._options, self.training
            )
            program = self._build_program()
            program.compile_for_inputs(tensors, self._random_keys())
            if current_instance().count > 1 and self._training_processes == count_replica_groups():
                program.broadcast_state()
            advance()
        self._program, self._compiled_for = program, arguments.drop_data()
        self._is_attached = self._options.connection_type is not ConnectionType.Never
        if self._link is not None and self._is_attached:
            self._link.mark_program_newer()
        self._compilation = datetime.timedelta(seconds=time.perf_counter() - started)
        call_post_compile_hooks()
        return program

    def _build_program(self, state: State | None = None) -> Program:
        trace = cast(TracedModule, self._traced)
        captured = trace.captured
        module, name = self._user_model, type(self._user_model).__name__
        check_updatable_buffers(module, self._options)
        with suspend_watching(module):
            values = copy_module_values(module)
        replicas = self._batch_split.replicas * self._training_processes
        replica_buffers = find_buffers_per_replica(module, captured, self._options, replicas)
        loss = trace.loss
        self._anchors = anchors = choose_anchors(captured, loss, self._options)
        forward = Forward(
            module=captured,
            placement=trace.staged,
            loss=loss,
            sent=names_to_send(captured, anchors.values),
            gradients_of=anchors.gradients,
            recomputes=recomputes_stages(trace.staged, self._options),
            own=replica_buffers,
            replicas=replicas,
        )
        if self._link is None or trace.loss is None:
            return build_inference_program(forward, self._batch_split, values, name)
        state = (
            self._link.start_program_state(trained=captured.trainable) if state is None else state
        )
        reductions = choose_reductions(self._options)
        program = build_training_program(
            forward, self._link.rule, reductions, self._batch_split, values, name
        )
        program.optimizer_state = state
        return program

    @functools.cached_property
    def _signature(self) -> Signature:
        return Signature(self._model)

    @functools.cached_property
    def _batch_split(self) -> BatchSplit:
        options = self._options
        accumulation = options.Training.gradient_accumulation if self.training else 1
        return BatchSplit(
            options.device_iterations,
            accumulation,
            options.replication_factor,
            options.input_group_size,
            options.input_cgt is CommGroupType.Orthogonal,
            options.Distributed.processId,
            options.Distributed.numProcesses,
        )

    @property
    def _training_processes(self) -> int:
        """The number of processes that run the program together, each with its own replicas."""
        return self._batch_split.processes if self.training else 1

    # --- running ----------------------------------------------------------------------------------

    @api_boundary
    def __call__(self, *args: object, **kwargs: object) -> PyTree:
        """Runs the module on a combined batch, and in training updates the weights.

        Args:
          args: the module's arguments; tensors have the rows of all micro-batches.
          kwargs: the module's arguments by name, likewise.

        Returns:
          The module's outputs, of those micro-batches that the output mode asks for.

        Raises:
          PopTorchError: (a `ValueError`) arguments that the program was not compiled for, or a
            device that is offline; besides as `compile`.
        """
        if self._is_offline:
            raise check.value_error(
                "Trying to run a model on an offline device (ConnectionType.Never)",
                "call compile(...), or use another connectionType",
            )
        entered = time.perf_counter()
        arguments = self._signature.bind_forward_arguments(args, kwargs)
        program = self._program or self._compile_module(arguments)
        tensors = collect_matching_tensors(cast(Arguments, self._compiled_for), arguments)
        _warn_of_input_gradients(tensors)
        if not self._is_attached:
            self.attachToDevice()
        self._prepare_run(program)
        started = time.perf_counter()
        with convert_errors():
            results = program.run_micro_batches(tensors, self._random_keys())
        ended = time.perf_counter()
        self._rng_state[1] += self._batch_split.count * self._batch_split.processes
        outputs = self._collect_outputs(program, results, tensors)
        counts = len(tensors), len(outputs), *self._transferred_steps
        self._last_run = Run(entered, started, ended, time.perf_counter(), *counts)
        return cast(TracedModule, self._traced).rebuild_outputs(outputs)

    def _collect_outputs(
        self, program: Program, results: list[np.ndarray], tensors: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Combines the results to outputs; updates anchors, and inputs that the module wrote to."""
        batch_split, (mode, period) = self._batch_split, self._output_mode
        written, anchors = program.forward.written, self._anchors
        if written or anchors:
            end = len(results) - len(anchors)
            self._anchored = anchors.combine_anchor_results(results[end:], batch_split, mode)
            results, input_values = results[: end - len(written)], results[end - len(written) : end]
            for index, leaf in zip(written, input_values, strict=True):
                tensors[index].data.copy_(
                    to_torch(batch_split.combine_micro_batches(leaf, OutputMode.All))
                )
        outputs = [
            to_torch(batch_split.combine_micro_batches(leaf, mode, period)) for leaf in results
        ]
        for output in outputs:
            output.backward = _refuse_backward  # pyright: ignore[reportAttributeAccessIssue]
        return outputs

    def _prepare_run(self, program: Program) -> None:
        """Updates the program before a run, and marks its weights as newer than the module's."""
        if self._link is None:
            self._copy_trainer_weights()
            return
        self._load_optimizer_state()
        self._has_newer_weights = True
        self._link.mark_program_newer()

    # The options are frozen, so their values are looked up once.

    @functools.cached_property
    def _is_offline(self) -> bool:
        return self._options.connection_type is ConnectionType.Never

    @functools.cached_property
    def _output_mode(self) -> tuple[OutputMode, int]:
        return self._options.output_mode, self._options.output_return_period

    @functools.cached_property
    def _transferred_steps(self) -> tuple[int, int]:
        return count_inputs_and_outputs_transferred(self._batch_split, self._options)

    def _random_keys(self) -> np.ndarray:
        """Returns the data of the random keys of the next micro-batches, `uint32[count, 2]`."""
        seed, used_keys = self._rng_state
        indices = self._indices_of_micro_batches
        if len(indices) == 1:  # Python's integers take a third of the time of NumPy's arrays
            key = seed & 0xFFFFFFFF, (used_keys + indices[0]) & 0xFFFFFFFF
            return np.array([key], np.uint32)
        keys = np.empty((len(indices), 2), np.uint32)
        keys[:, 0] = seed & 0xFFFFFFFF
        keys[:, 1] = (used_keys + np.asarray(indices)) & 0xFFFFFFFF
        return keys

    @functools.cached_property
    def _indices_of_micro_batches(self) -> Sequence[int] | np.ndarray:
        indices = self._batch_split.indices_among_all_processes
        return indices.tolist() if indices.size == 1 else indices

    @property
    def rng_state(self) -> list[int]:
        """The seed, and the number of micro-batches of all processes that used keys; may be set.

        Raises:
          PopTorchError: (a `ValueError`) there is no program yet.
        """
        self._require_program()
        return [*self._rng_state]

    @rng_state.setter
    def rng_state(self, state: list[int]) -> None:
        self._require_program()
        self._rng_state = [*state]

    # --- values of the graph ----------------------------------------------------------------------

    def getTensorNames(self) -> list[str]:
        """Returns the names of all values that `Options.anchorTensor` can keep.

        Raises:
          PopTorchError: (a `ValueError`) there is no program yet.
        """
        program = self._require_program()
        return list(list_anchor_names(program.forward.module, program.forward.loss))

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """Returns the value of an anchor in the last call.

        Raises:
          PopTorchError: (a `ValueError`) there is no such anchor, or the model has not run.
        """
        if short_name in self._anchors.updated:
            return to_torch(self._require_program().variables[self._anchors.updated[short_name]])
        if short_name not in self._anchored:
            raise check.value_error(
                f"there is no anchor {short_name!r} with a value",
                "name it by Options.anchorTensor(...), and call the model",
            )
        return self._anchored[short_name]

    # --- files ------------------------------------------------------------------------------------

    def compileAndExport(
        self,
        filename: str | os.PathLike[str],
        *args: object,
        export_model: bool = True,
        **kwargs: object,
    ) -> None:
        """Compiles the module for arguments like these, and saves it; see `compile` and `save`."""
        self.compile(*args, **kwargs)
        self.save(filename, export_model)

    def save(
        self,
        filename: str | os.PathLike[str],
        export_model: bool = True,
        save_rng_state: bool = True,
    ) -> None:
        """Saves the model, for `poptorch.load`.

        Args:
          filename: a file, or a folder for a file `model.poptorch`.
          export_model: whether the module, whose class must then be importable, and the optimizer
            are in the file. Without, it can only be given to `loadExecutable`.
          save_rng_state: whether a loaded model continues the sequence of random numbers.

        Raises:
          PopTorchError: (a `ValueError`) there is no program yet, or the module cannot be pickled.
        """
        self._require_program()
        self.copyWeightsToHostIfNeeded()
        self._read_optimizer_state()
        Saved(
            training=self.training,
            options=self._options,
            arguments=cast(Arguments, self._compiled_for),
            rng_state=self.rng_state if save_rng_state else None,
            mode=self._model.training,
            module=self._user_model if export_model else None,
            optimizer=self._optimizer if export_model else None,
        ).write_model_file(filename)

    def loadExecutable(self, filename: str | os.PathLike[str]) -> None:
        """Compiles the model for the arguments that a saved model was compiled for.

        No code that the file names is run.

        Raises:
          PopTorchFileError: (an `OSError`) no file, or one that holds no model.
        """
        if self._program is None:
            self._compile_module(SavedData.read_model_data(filename).arguments)


def _warn_of_input_gradients(inputs: Sequence[torch.Tensor]) -> None:
    for tensor in inputs:
        if tensor.requires_grad:
            logger.warning(
                "Input tensor has requires_grad=True set. This tensor will be detached because "
                "backward pass via inputs is not supported."
            )
            return


def _refuse_backward(*_: object, **__: object) -> None:
    raise PopTorchError(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a "
        "trainingModel, the backwards pass is performed automatically when invoking the model. If "
        "you're using an inferenceModel, you should use a trainingModel instead."
    )


def _initial_seed(options: Options) -> int:
    return options.random_seed if options.exists("random_seed") else torch.initial_seed()
