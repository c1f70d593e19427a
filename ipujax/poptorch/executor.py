"""`PoplarExecutor`: a module that runs as a program on virtual IPUs when it is called."""

from __future__ import annotations

import datetime
import functools
import os
import time
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from ipujax.checks.lines import api_boundary
from ipujax.distribution.join import here, instance_count
from ipujax.errors import PopTorchError
from ipujax.frontends.pytorch.arrays import to_torch
from ipujax.poptorch.anchors import Anchors, anchors_of, tensor_names
from ipujax.poptorch.arguments import Arguments, Signature, tensors_like
from ipujax.poptorch.buffers import check_updatable, own_buffers
from ipujax.poptorch.checks import check
from ipujax.poptorch.compilation_bar import compilation_bar
from ipujax.poptorch.counters import Run, moved_steps
from ipujax.poptorch.custom_operators import with_replicas
from ipujax.poptorch.devices import provide
from ipujax.poptorch.enums import CommGroupType, ConnectionType, OutputMode
from ipujax.poptorch.errors import as_poptorch
from ipujax.poptorch.forward import Forward, sent_names, written_inputs
from ipujax.poptorch.held import Held, own_values
from ipujax.poptorch.hooks import after_compilation, before_compilation
from ipujax.poptorch.log import logger
from ipujax.poptorch.optim.rules import State
from ipujax.poptorch.options import Options
from ipujax.poptorch.programs import (
    Program,
    inference_program,
    training_program,
)
from ipujax.poptorch.reductions import reductions_of
from ipujax.poptorch.saving import Saved, SavedData
from ipujax.poptorch.shares import Shares
from ipujax.poptorch.structures import rebuild
from ipujax.poptorch.tracing import Traced, traced
from ipujax.poptorch.weights import unwatched


@check.guard
class PoplarExecutor(Held):
    """A module that runs on virtual IPUs; made by `trainingModel` and `inferenceModel`.

    It is called as the module is. The first call, or `compile`, traces and compiles the module for
    arguments of these shapes. What is not found here is an attribute of the module.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options,
        optimizer: torch.optim.Optimizer | None = None,
    ):
        super().__init__(model, options, optimizer)
        self._traced: Traced | None = None
        self._compiled_for: Arguments | None = None
        self._rng_state = [_seed_of(options), 0]
        self._anchors, self._anchored = Anchors(), dict[str, torch.Tensor]()

    # --- compiling --------------------------------------------------------------------------------

    @api_boundary
    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Traces and compiles the module for arguments like these.

        Raises:
          PopTorchError: (a `ValueError`) arguments that do not fit, or no loss to train for.
          FrontendError: (the same) a module that cannot be traced.
          LoweringError: a program that does not fit its IPUs.
        """
        if self._program is None:
            self._compile(self._signature.bound(args, kwargs))

    def _compile(self, given: Arguments) -> Program:
        before_compilation()
        started, shares = time.perf_counter(), self._shares
        tensors = given.tensors
        micro_batches = [shares.micro_batch(tensor.detach()) for tensor in tensors]
        args, kwargs = rebuild((given.args, given.kwargs), micro_batches)
        strategy = self._options._execution_strategy  # pyright: ignore[reportPrivateUsage]
        is_shown = self._options._show_compilation_progress_bar  # pyright: ignore[reportPrivateUsage]
        with compilation_bar(is_shown) as advance, as_poptorch():
            with with_replicas(shares.replicas * self._together):
                self._traced = found = traced(
                    self._model, args, kwargs, strategy, training=self.training
                )
            advance()
            provide(shares.replicas, found.staged.ipu_count, self._options, self.training)
            program = self._program_of()
            program.compile(tensors, self._keys())
            if here().count > 1 and self._together == instance_count():
                program.begin_alike()
            advance()
        self._program, self._compiled_for = program, given.forms()
        self._is_attached = self._options.connection_type is not ConnectionType.Never
        if self._link is not None and self._is_attached:
            self._link.changed()
        self._compilation = datetime.timedelta(seconds=time.perf_counter() - started)
        after_compilation()
        return program

    def _program_of(self, state: State | None = None) -> Program:
        found = cast(Traced, self._traced)
        captured = found.captured
        module, name = self._user_model, type(self._user_model).__name__
        check_updatable(module, self._options)
        with unwatched(module):
            values = own_values(module)
        replicas = self._shares.replicas * self._together
        own = own_buffers(module, captured, self._options, replicas)
        loss = found.loss
        self._anchors = anchors = anchors_of(captured, loss, self._options)
        forward = Forward(
            module=captured,
            placement=found.staged,
            loss=loss,
            sent=sent_names(captured, anchors.values),
            gradients_of=anchors.gradients,
            own=own,
            replicas=replicas,
        )
        if self._link is None or found.loss is None:
            return inference_program(forward, self._shares, values, name)
        state = self._link.begin(trained=captured.trainable) if state is None else state
        reductions = reductions_of(self._options)
        program = training_program(forward, self._link.rule, reductions, self._shares, values, name)
        program.optimizer_state = state
        return program

    @functools.cached_property
    def _signature(self) -> Signature:
        return Signature(self._model)

    @functools.cached_property
    def _shares(self) -> Shares:
        options = self._options
        accumulation = options.Training.gradient_accumulation if self.training else 1
        return Shares(
            options.device_iterations,
            accumulation,
            options.replication_factor,
            options.input_group_size,
            options.input_cgt is CommGroupType.Orthogonal,
            options.Distributed.processId,
            options.Distributed.numProcesses,
        )

    @property
    def _together(self) -> int:
        """How many processes run the program together, with replicas of their own."""
        return self._shares.processes if self.training else 1

    # --- running ----------------------------------------------------------------------------------

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives for a combined batch, and in training a weight update or more.

        Args:
          args: as the module takes them; tensors have the rows of all micro-batches.
          kwargs: the same.

        Returns:
          The module's outputs, of those micro-batches that the output mode asks for.

        Raises:
          PopTorchError: (a `ValueError`) arguments that the program was not compiled for, or a
            device that is offline; besides as `compile`.
        """
        if self._is_offline:
            raise check.refuse(
                "Trying to run a model on an offline device (ConnectionType.Never)",
                "call compile(...), or use another connectionType",
            )
        entered = time.perf_counter()
        given = self._signature.bound(args, kwargs)
        program = self._program or self._compile(given)
        tensors = tensors_like(cast(Arguments, self._compiled_for), given)
        _warn_of_gradients(tensors)
        if not self._is_attached:
            self.attachToDevice()
        self._prepare(program)
        started = time.perf_counter()
        with as_poptorch():
            results = program.run(tensors, self._keys())
        ended = time.perf_counter()
        self._rng_state[1] += self._shares.count * self._shares.processes
        outputs = self._returned(program, results, tensors)
        counts = len(tensors), len(outputs), *self._moved
        self._last_run = Run(entered, started, ended, time.perf_counter(), *counts)
        return cast(Traced, self._traced).rebuilt(outputs)

    def _returned(
        self, program: Program, results: list[np.ndarray], tensors: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """The outputs; gives inputs that the module wrote to, and anchors, their new values."""
        shares, (mode, period) = self._shares, self._output_mode
        written, anchors = written_inputs(program.forward.module), self._anchors
        if written or anchors:
            end = len(results) - len(anchors)
            self._anchored = anchors.read(results[end:], shares, mode)
            results, changed = results[: end - len(written)], results[end - len(written) : end]
            for index, leaf in zip(written, changed, strict=True):
                tensors[index].data.copy_(to_torch(shares.combined(leaf, OutputMode.All)))
        outputs = [to_torch(shares.combined(leaf, mode, period)) for leaf in results]
        for output in outputs:
            output.backward = _refuse_backward  # pyright: ignore[reportAttributeAccessIssue]
        return outputs

    def _prepare(self, program: Program) -> None:
        """Gives a program what it has to know before it runs, and expects of it what is newer."""
        if self._link is None:
            self._follow_training()
            return
        self._load_optimizer_state()
        self._has_newer_weights = True
        self._link.changed()

    # What the options say, which nobody can change any more, is looked up once.

    @functools.cached_property
    def _is_offline(self) -> bool:
        return self._options.connection_type is ConnectionType.Never

    @functools.cached_property
    def _output_mode(self) -> tuple[OutputMode, int]:
        return self._options.output_mode, self._options.output_return_period

    @functools.cached_property
    def _moved(self) -> tuple[int, int]:
        return moved_steps(self._shares, self._options)

    def _keys(self) -> np.ndarray:
        """The data of the keys of the next micro-batches, `uint32[count, 2]`."""
        seed, drawn = self._rng_state
        numbers = drawn + self._shares.numbers
        return np.array([(seed & 0xFFFFFFFF, int(n) & 0xFFFFFFFF) for n in numbers], np.uint32)

    @property
    def rng_state(self) -> list[int]:
        """The seed, and how many micro-batches, of all processes, have drawn; may be set.

        Raises:
          PopTorchError: (a `ValueError`) there is no program yet.
        """
        self._compiled()
        return [*self._rng_state]

    @rng_state.setter
    def rng_state(self, state: list[int]) -> None:
        self._compiled()
        self._rng_state = [*state]

    # --- values of the graph ----------------------------------------------------------------------

    def getTensorNames(self) -> list[str]:
        """The names of all values that `Options.anchorTensor` can keep.

        Raises:
          PopTorchError: (a `ValueError`) there is no program yet.
        """
        program = self._compiled()
        return list(tensor_names(program.forward.module, program.forward.loss))

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """What a value that `Options.anchorTensor` keeps was in the last call.

        Raises:
          PopTorchError: (a `ValueError`) there is no such anchor, or the model has not run.
        """
        if short_name in self._anchors.updated:
            return to_torch(self._compiled().variables[self._anchors.updated[short_name]])
        if short_name not in self._anchored:
            raise check.refuse(
                f"there is no anchor {short_name!r} with a value",
                "name it by Options.anchorTensor(...), and call the model",
            )
        return self._anchored[short_name]

    # --- files ------------------------------------------------------------------------------------

    def compileAndExport(
        self, filename: str | os.PathLike[str], *args: Any, export_model: bool = True, **kwargs: Any
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
        """Saves what `poptorch.load` makes this model of again.

        Args:
          filename: a file, or a folder for a file `model.poptorch`.
          export_model: whether the module, whose class must then be importable, and the optimizer
            are in the file. Without, it can only be given to `loadExecutable`.
          save_rng_state: whether random numbers go on where they are.

        Raises:
          PopTorchError: (a `ValueError`) there is no program yet, or the module cannot be pickled.
        """
        self._compiled()
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
        ).write(filename)

    def loadExecutable(self, filename: str | os.PathLike[str]) -> None:
        """Compiles for the arguments that a saved model was compiled for.

        Nothing that the file names is run.

        Raises:
          PopTorchFileError: (an `OSError`) no file, or one that holds no model.
        """
        if self._program is None:
            self._compile(SavedData.read(filename).arguments)


def _warn_of_gradients(inputs: Sequence[torch.Tensor]) -> None:
    for tensor in inputs:
        if tensor.requires_grad:
            logger.warning(
                "Input tensor has requires_grad=True set. This tensor will be detached because "
                "backward pass via inputs is not supported."
            )
            return


def _refuse_backward(*_: Any, **__: Any) -> None:
    raise PopTorchError(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a "
        "trainingModel, the backwards pass is performed automatically when invoking the model. If "
        "you're using an inferenceModel, you should use a trainingModel instead."
    )


def _seed_of(options: Options) -> int:
    return options.random_seed if options.exists("random_seed") else torch.initial_seed()
