"""The weights, optimizer and device of a wrapped module and its program."""

from __future__ import annotations

import abc
import copy
import datetime
import weakref
from typing import Any

import jax.numpy as jnp
import torch

from ipujax.doors.torch import first_name_of_tensors, to_jax
from ipujax.ground import PopTorchError, PyTree
from ipujax.poptorch.blocks import module_repr
from ipujax.poptorch.buffers import get_updatable_buffer_names
from ipujax.poptorch.enums import ConnectionType
from ipujax.poptorch.optim.link import OptimizerLink, select_names
from ipujax.poptorch.optim.optimizer_log import OptimizerLog
from ipujax.poptorch.optim.optimizer_loss_scaling import read_loss_scaling
from ipujax.poptorch.optim.rules import State
from ipujax.poptorch.options import Options
from ipujax.poptorch.output_reductions import adapt_options_to_optimizer
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_programs import Program, scales_loss
from ipujax.poptorch.poptorch_weights import (
    Watch,
    collect_named_tensors,
    find_trainer,
    suspend_watching,
    write_module_tensors,
)
from ipujax.poptorch.step_counters import PerformanceCounters, Run

_trained_modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
"""The modules that a wrapper trains."""


class WrappedModel(PerformanceCounters):
    """A wrapped module and its program, once there is one."""

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options,
        optimizer: torch.optim.Optimizer | None = None,
    ):
        # A copy is traced, so that later changes of the module's mode or other attributes, also by
        # another wrapper, change nothing here.
        self._model = copy.copy(model)
        self._parameter = next(model.parameters(), None)
        self._user_model = self._model if optimizer is None else model
        self._options, self._optimizer = options, optimizer
        self._program: Program | None = None
        self._last_run: Run | None = None
        self._compilation: datetime.timedelta | None = None
        self._link: OptimizerLink | None = None
        self._optimizer_log = OptimizerLog(
            options._relax_optimizer_checks  # pyright: ignore[reportPrivateUsage]
        )
        self._has_newer_weights = False
        self._is_attached = False
        self._version = 0
        self._seen_version = 0
        self._watch: Watch | None = None
        if optimizer is not None:
            _trained_modules.add(model)
            self._watch = Watch(model, self.copyWeightsToHostIfNeeded, self.destroy)
            self._options = adapt_options_to_optimizer(optimizer, options)
            self._link = self._link_optimizer(optimizer)

    @abc.abstractmethod
    def _build_program(self, state: State | None = None) -> Program:
        """Builds another program of the traced module for the current optimizer."""

    # --- the module -------------------------------------------------------------------------------

    @property
    def model(self) -> torch.nn.Module:
        """The wrapped module."""
        return self._user_model

    @property
    def options(self) -> Options:
        """The frozen options of the model."""
        return self._options

    @property
    def training(self) -> bool:
        """Returns whether calls train the module."""
        return self._optimizer is not None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_user_model"], name)

    def __repr__(self) -> str:
        return module_repr(self._user_model)

    def isCompiled(self) -> bool:
        """Returns whether there is a program."""
        return self._program is not None

    def isAttachedToDevice(self) -> bool:
        """Returns whether the program is on a device."""
        return self._is_attached

    def _require_program(self) -> Program:
        if self._program is None:
            raise PopTorchError("Model has not been compiled or has been destroyed.")
        return self._program

    # --- weights ----------------------------------------------------------------------------------

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Copies newer weights from the device to the module; returns whether there were any."""
        if not self._has_newer_weights:
            return False
        self.copyWeightsToHost()
        return True

    def copyWeightsToHost(self) -> None:
        """Copies the weights from the device to the module's tensors."""
        program = self._require_program()
        self._has_newer_weights = False
        write_module_tensors(self._user_model, program.variables)
        self._version += 1

    def copyWeightsToDevice(self) -> None:
        """Copies the module's current weights to the program."""
        program = self._require_program()
        self._has_newer_weights = False
        with suspend_watching(self._user_model):
            program.replace_values(copy_module_values(self._user_model))

    def copyNamedBuffersToDevice(self) -> None:
        """Copies the buffers of `Options.updatableNamedBuffers` to the program.

        Raises:
          PopTorchError: (a `ValueError`) that option names none, or there is no program.
        """
        names = get_updatable_buffer_names(self._options)
        if not names:
            raise check.value_error(
                "no buffers can be updated", "name them by Options.updatableNamedBuffers([...])"
            )
        values = copy_module_values(self._user_model)
        self._require_program().replace_values({name: values[name] for name in names})

    def _copy_trainer_weights(self) -> None:
        """Copies the weights of a wrapper that trains the same parameters, if it has newer ones."""
        trainer = None if self._parameter is None else find_trainer(self._parameter)
        if trainer is None:
            return
        trainer.copyWeightsToHostIfNeeded()
        if trainer._version != self._seen_version:
            self._seen_version = trainer._version
            self.copyWeightsToDevice()

    def load_state_dict(self, state_dict: dict[str, torch.Tensor], strict: bool = True) -> Any:
        """Loads a state dict into the module, and to the device."""
        result = self._user_model.load_state_dict(state_dict, strict)
        if self._is_attached:
            self.copyWeightsToDevice()
        return result

    # --- the optimizer ----------------------------------------------------------------------------

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Replaces the optimizer, or its hyperparameters.

        New hyperparameters need no compilation; another kind of optimizer does.

        Raises:
          PopTorchError: (a `ValueError`) an optimizer that is not known, or a model that does not
            train.
        """
        if self._link is None:
            raise check.value_error("an inference model has no optimizer", "use trainingModel")
        old_rule = self._link.rule
        self._options = adapt_options_to_optimizer(optimizer, self._options, self.isCompiled())
        if optimizer is not self._link.optimizer:
            link = self._link_optimizer(optimizer)
            self._link.release_optimizer()
            self._link, self._optimizer = link, optimizer
        program = self._program
        if program is None:
            return
        state = self._link.start_program_state(program.optimizer_state, old_rule)
        if self._link.rule == old_rule and scales_loss(self._link.rule) == scales_loss(old_rule):
            program.optimizer_state = state
        else:
            self.copyWeightsToHostIfNeeded()
            self._program = self._build_program(state)
        self._link.mark_program_newer()

    def _link_optimizer(self, optimizer: torch.optim.Optimizer) -> OptimizerLink:
        weak_self = weakref.ref(self)

        def current_state() -> State | None:
            program = None if (executor := weak_self()) is None else executor._program
            return None if program is None else program.optimizer_state

        names = first_name_of_tensors(self._user_model)
        if self._program is not None:
            names = select_names(self._program.forward.module.trainable, names)
        scaling = read_loss_scaling(self._options._Popart.options)  # pyright: ignore[reportPrivateUsage]
        return OptimizerLink(optimizer, names, current_state, self._optimizer_log, scaling)

    def _load_optimizer_state(self) -> None:
        """Loads the optimizer's new state, if any, into the program."""
        if self._link is not None and self._program is not None:
            state = self._program.optimizer_state
            if (loaded := self._link.take_loaded_state(state)) is not state:
                self._program.optimizer_state = loaded

    # --- the device -------------------------------------------------------------------------------

    def attachToDevice(self) -> None:
        """Attaches the program to the device with the module's current weights."""
        self._require_program()
        if self._options.connection_type is ConnectionType.Never:
            raise check.value_error("Trying to attach to an offline device (ConnectionType.Never)")
        if self._is_attached:
            raise check.value_error("Device is already attached")
        self._is_attached = True
        self.copyWeightsToDevice()
        self._load_optimizer_state()

    def detachFromDevice(self) -> None:
        """Copies the weights to the module and detaches from the device."""
        self._require_program()
        if not self._is_attached:
            raise check.value_error("Device is not attached")
        self.copyWeightsToHostIfNeeded()
        self._read_optimizer_state()
        self._is_attached = False

    def _read_optimizer_state(self) -> None:
        if self._link is not None:
            self._link.copy_state_to_optimizer()

    def destroy(self) -> None:
        """Copies the weights to the module and drops the program."""
        if self._program is not None:
            self.copyWeightsToHostIfNeeded()
        if self._link is not None:
            self._link.release_optimizer()
        if self._watch is not None:
            self._watch.stop_watching()
        _trained_modules.discard(self._user_model)
        self._program = None
        self._is_attached = False


def has_trainer(module: torch.nn.Module) -> bool:
    """Returns whether a wrapper trains a module already."""
    return module in _trained_modules


def copy_module_values(module: torch.nn.Module) -> dict[str, PyTree]:
    """Copies a module's parameters and buffers to JAX arrays, by name."""
    return {
        name: jnp.array(to_jax(tensor)) for name, tensor in collect_named_tensors(module).items()
    }
