"""A module and its program: which of the two has the newer weights, and who has the device."""

from __future__ import annotations

import abc
import copy
import datetime
import weakref
from typing import Any

import jax.numpy as jnp
import torch

from ipujax.errors import PopTorchError
from ipujax.frontends.pytorch.arrays import to_jax
from ipujax.frontends.pytorch.capture import first_names
from ipujax.poptorch.blocks import module_repr
from ipujax.poptorch.buffers import updatable
from ipujax.poptorch.checks import check
from ipujax.poptorch.counters import Measured, Run
from ipujax.poptorch.enums import ConnectionType
from ipujax.poptorch.optim.link import Link, only
from ipujax.poptorch.optim.log import OptimizerLog
from ipujax.poptorch.optim.loss_scaling import loss_scaling_of
from ipujax.poptorch.optim.rules import State
from ipujax.poptorch.options import Options
from ipujax.poptorch.programs import Program, scales_loss
from ipujax.poptorch.reductions import options_for
from ipujax.poptorch.weights import Watch, tensors_of, unwatched, watcher_of, write

_trained: weakref.WeakKeyDictionary[torch.nn.Module, Held] = weakref.WeakKeyDictionary()
"""Who trains each module."""


class Held(Measured):
    """A module that is held by a wrapper, and its program, once there is one."""

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options,
        optimizer: torch.optim.Optimizer | None = None,
    ):
        # What is traced is a copy: that the module's mode, or another attribute of its own, is
        # changed later, or by another wrapper, changes nothing here.
        self._model = copy.copy(model)
        self._parameter = next(model.parameters(), None)
        self._user_model = self._model if optimizer is None else model
        self._options, self._optimizer = options, optimizer
        self._program: Program | None = None
        self._last_run: Run | None = None
        self._compilation: datetime.timedelta | None = None
        self._link: Link | None = None
        self._optimizer_log = OptimizerLog(
            options._relax_optimizer_checks  # pyright: ignore[reportPrivateUsage]
        )
        self._has_newer_weights = False
        self._is_attached = False
        self._version = 0
        self._seen_version = 0
        self._watch: Watch | None = None
        if optimizer is not None:
            _trained[model] = self
            self._watch = Watch(model, self.copyWeightsToHostIfNeeded, self.destroy)
            self._options = options_for(optimizer, options)
            self._link = self._linked(optimizer)

    @abc.abstractmethod
    def _program_of(self, state: State | None = None) -> Program:
        """Another program of the traced module, for the optimizer that there is now."""

    # --- what it is -------------------------------------------------------------------------------

    @property
    def model(self) -> torch.nn.Module:
        """The module."""
        return self._user_model

    @property
    def options(self) -> Options:
        """Its options; they cannot be changed any more."""
        return self._options

    @property
    def training(self) -> bool:
        """Whether calls train."""
        return self._optimizer is not None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_user_model"], name)

    def __repr__(self) -> str:
        return module_repr(self._user_model)

    def isCompiled(self) -> bool:
        """Whether there is a program."""
        return self._program is not None

    def isAttachedToDevice(self) -> bool:
        """Whether the program is on a device."""
        return self._is_attached

    def _compiled(self) -> Program:
        if self._program is None:
            raise PopTorchError("Model has not been compiled or has been destroyed.")
        return self._program

    # --- weights ----------------------------------------------------------------------------------

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Brings the module up to date; says whether it was not."""
        if not self._has_newer_weights:
            return False
        self.copyWeightsToHost()
        return True

    def copyWeightsToHost(self) -> None:
        """Gives the module's tensors the values that they have on the device."""
        program = self._compiled()
        self._has_newer_weights = False
        write(self._user_model, program.variables)
        self._version += 1

    def copyWeightsToDevice(self) -> None:
        """Gives the program the values that the module's tensors have now."""
        program = self._compiled()
        self._has_newer_weights = False
        with unwatched(self._user_model):
            program.load(own_values(self._user_model))

    def copyNamedBuffersToDevice(self) -> None:
        """Gives the program the values of the buffers of `Options.updatableNamedBuffers`.

        Raises:
          PopTorchError: (a `ValueError`) that option names none, or there is no program.
        """
        names = updatable(self._options)
        if not names:
            raise check.refuse(
                "no buffers can be updated", "name them by Options.updatableNamedBuffers([...])"
            )
        values = own_values(self._user_model)
        self._compiled().load({name: values[name] for name in names})

    def _follow_training(self) -> None:
        """Takes over the weights of a wrapper that trains these parameters, if it has new ones."""
        trainer = None if self._parameter is None else watcher_of(self._parameter)
        if trainer is None:
            return
        trainer.copyWeightsToHostIfNeeded()
        if trainer._version != self._seen_version:
            self._seen_version = trainer._version
            self.copyWeightsToDevice()

    def load_state_dict(self, state_dict: dict[str, torch.Tensor], strict: bool = True) -> Any:
        """As the module's, also for the device."""
        result = self._user_model.load_state_dict(state_dict, strict)
        if self._is_attached:
            self.copyWeightsToDevice()
        return result

    # --- the optimizer ----------------------------------------------------------------------------

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Goes on with another optimizer, or other numbers of the same.

        Other learning rates and the like compile nothing; another kind of optimizer does.

        Raises:
          PopTorchError: (a `ValueError`) an optimizer that is not known, or a model that does not
            train.
        """
        if self._link is None:
            raise check.refuse("an inference model has no optimizer", "use trainingModel")
        before = self._link.rule
        self._options = options_for(optimizer, self._options, self.isCompiled())
        if optimizer is not self._link.optimizer:
            link = self._linked(optimizer)
            self._link.close()
            self._link, self._optimizer = link, optimizer
        program = self._program
        if program is None:
            return
        state = self._link.begin(program.optimizer_state, before)
        if self._link.rule == before and scales_loss(self._link.rule) == scales_loss(before):
            program.optimizer_state = state
        else:
            self.copyWeightsToHostIfNeeded()
            self._program = self._program_of(state)
        self._link.changed()

    def _linked(self, optimizer: torch.optim.Optimizer) -> Link:
        own = weakref.ref(self)

        def current() -> State | None:
            program = None if (executor := own()) is None else executor._program
            return None if program is None else program.optimizer_state

        names = first_names(self._user_model)
        if self._program is not None:
            names = only(self._program.forward.module.trainable, names)
        scaling = loss_scaling_of(self._options._Popart.options)  # pyright: ignore[reportPrivateUsage]
        return Link(optimizer, names, current, self._optimizer_log, scaling)

    def _load_optimizer_state(self) -> None:
        """Gives the program what the optimizer has loaded, if anything."""
        if self._link is not None and self._program is not None:
            state = self._program.optimizer_state
            if (loaded := self._link.refreshed(state)) is not state:
                self._program.optimizer_state = loaded

    # --- the device -------------------------------------------------------------------------------

    def attachToDevice(self) -> None:
        """Puts the program, and the module's weights as they are now, on the device."""
        self._compiled()
        if self._options.connection_type is ConnectionType.Never:
            raise check.refuse("Trying to attach to an offline device (ConnectionType.Never)")
        if self._is_attached:
            raise check.refuse("Device is already attached")
        self._is_attached = True
        self.copyWeightsToDevice()
        self._load_optimizer_state()

    def detachFromDevice(self) -> None:
        """Gives the device back, once the module has its weights."""
        self._compiled()
        if not self._is_attached:
            raise check.refuse("Device is not attached")
        self.copyWeightsToHostIfNeeded()
        self._read_optimizer_state()
        self._is_attached = False

    def _read_optimizer_state(self) -> None:
        if self._link is not None:
            self._link.read()

    def destroy(self) -> None:
        """Gives the module its weights, and drops the program."""
        if self._program is not None:
            self.copyWeightsToHostIfNeeded()
        if self._link is not None:
            self._link.close()
        if self._watch is not None:
            self._watch.end()
        _trained.pop(self._user_model, None)
        self._program = None
        self._is_attached = False


def is_trained(module: torch.nn.Module) -> bool:
    """Whether a wrapper trains a module already."""
    return module in _trained


def own_values(module: torch.nn.Module) -> dict[str, Any]:
    """Copies of a module's parameters and buffers, by name."""
    return {name: jnp.array(to_jax(tensor)) for name, tensor in tensors_of(module).items()}
