"""What PopTorch's optimizers have beside torch's: attributes that vary, and a state on the IPU."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Container, Iterable, Mapping
from typing import Any, ClassVar

import torch

from ipujax.errors import OptimizerStateError
from ipujax.poptorch.checks import check

_IPU = ("ipu_state", "ipu_param")


@check.guard
class VariableAttributes:
    """Which attributes of an optimizer may change while a program is in use.

    What the optimizer was made with is variable, everything else constant. Here every number is
    data of the program, so that a constant one may change, too; but a `momentum` that is 0 and
    constant keeps no velocity.

    Args:
      variable_attributes: the names of those that may change.
      allowed_attributes: all names.
    """

    def __init__(
        self, variable_attributes: Iterable[str], allowed_attributes: Iterable[str]
    ) -> None:
        self._variable_attributes = list(variable_attributes)
        self._allowed_attributes = list(allowed_attributes)

    @property
    def variable(self) -> frozenset[str]:
        """The names of those that may change."""
        return frozenset(self._variable_attributes)

    def isConstant(self, attr: str) -> bool:
        """Whether an attribute is constant."""
        return attr not in self._variable_attributes

    def markAsConstant(self, attr: str) -> None:
        """Makes an attribute constant.

        Raises:
          PopTorchError: (a `ValueError`) the optimizer has no such attribute.
        """
        self._check(attr)
        self._variable_attributes = [name for name in self._variable_attributes if name != attr]

    def markAsVariable(self, attr: str) -> None:
        """Makes an attribute variable.

        Raises:
          PopTorchError: (a `ValueError`) the optimizer has no such attribute.
        """
        self._check(attr)
        if self.isConstant(attr):
            self._variable_attributes.append(attr)

    def _check(self, attr: str) -> None:
        if attr not in self._allowed_attributes:
            listed = ", ".join(sorted(self._allowed_attributes))
            raise check.refuse(f"the optimizer has no attribute {attr!r}", f"use one of: {listed}")


def arguments_of(names: Mapping[str, Any]) -> dict[str, Any]:
    """A constructor's arguments but for the parameters, from its `locals()` at its beginning.

    PopTorch's constructors have fifteen of them, which would else be written three times each.
    """
    return {name: value for name, value in names.items() if name not in ("self", "params")}


def given(arguments: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """Those of some names that are not None."""
    return {k: value for k, value in arguments.items() if k in names and value is not None}


def taken_by(kind: type[torch.optim.Optimizer], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are given, and that the constructor of a class of torch's takes."""
    return given(arguments, inspect.signature(kind).parameters)


@check.guard
class Optimizer(torch.optim.Optimizer):
    """What all optimizers of `poptorch.optim` are, beside being one of torch's.

    Attributes:
      variable_attrs: which attributes may change.
      loss_scaling: by what the loss is multiplied before it is differentiated.
      ipu_state_is_dirty: whether a state was loaded that the IPU does not have yet.
      host_state_is_dirty: whether the IPU has a state that the host does not have yet.
    """

    variable_attrs: VariableAttributes
    loss_scaling: float

    own_defaults: ClassVar[Mapping[str, Any]] = {}
    """What PopTorch adds to the attributes of torch's class, with its defaults."""

    def _set_own(self, arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        """Sets what PopTorch adds, and notes what was given.

        Args:
          arguments: all but the parameters; None for those that were not given.
          defaults: torch's own.
        """
        for name, default in self.own_defaults.items():
            value = default if arguments[name] is None else arguments[name]
            if name.endswith("accum_type") and value not in (torch.float16, torch.float32):
                raise check.refuse(
                    f"{name} of {type(self).__name__} is {value}, but an IPU keeps float16 or "
                    "float32",
                    "give torch.float32 or torch.float16",
                )
            if name in ("max_grad_norm", "loss_scaling") and not value > 0:
                raise check.refuse(
                    f"{name} of {type(self).__name__} is {value}", "give a positive number"
                )
            setattr(self, name, value)
        variable = [name for name, value in arguments.items() if value is not None]
        self.variable_attrs = VariableAttributes(variable, [*defaults, "loss_scaling"])
        self._state_dict: dict[str, Any] = dict.fromkeys(_IPU)
        self._loaded: tuple[Mapping[str, Any], Any] = {}, None
        self.ipu_state_is_dirty = False
        self.host_state_is_dirty = False

    def has_state(self) -> bool:
        """Whether there is a state of the IPU on the host."""
        return all(self._state_dict.get(name) is not None for name in _IPU)

    def keep(self, ipu_state: Mapping[str, Any], ipu_param: Mapping[str, Any]) -> None:
        """Takes over what the IPU has: tensors under PopART's names."""
        loaded, numbers = self._loaded
        still = {} if numbers != self._numbers() else loaded
        self._state_dict = {"ipu_state": dict(ipu_state), "ipu_param": {**ipu_param, **still}}
        self.host_state_is_dirty = False

    @property
    def loaded_state(self) -> Mapping[str, Any]:
        """The state that was loaded and that the IPU does not have yet, under PopART's names."""
        return (self._state_dict["ipu_state"] or {}) if self.ipu_state_is_dirty else {}

    def state_dict(self) -> dict[str, Any]:
        """Torch's, and beside it `ipu_state` and `ipu_param` under PopART's names.

        These two are dicts of tensors once there is a program on the IPU, else None. `ipu_param`
        only reports: the numbers that act are those in `param_groups`.
        """
        theirs = super().state_dict()  # which may first ask the IPU for its state
        return {**theirs, **{name: copy.copy(self._state_dict[name]) for name in _IPU}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over a state that `state_dict` gave; a program in use gets it before it runs again.

        Where `ipu_state` and torch's own `state` disagree, the first is right. What `ipu_param`
        has is reported until the optimizer's numbers change.

        Raises:
          OptimizerStateError: (a `RuntimeError`) an empty state, or one that torch alone made.
        """
        if not state_dict:
            raise OptimizerStateError(
                "Cannot load optimizer state dictionary because it is empty.",
                fix="give what state_dict() of an optimizer of poptorch.optim gave",
            )
        if not all(name in state_dict for name in _IPU):
            raise OptimizerStateError(
                "Only IPU optimizer states can be loaded onto the IPU.",
                fix="give what state_dict() of an optimizer of poptorch.optim gave, or use the "
                "class of torch.optim",
            )
        theirs = {name: value for name, value in state_dict.items() if name not in _IPU}
        super().load_state_dict(theirs)
        self._state_dict = {name: copy.copy(state_dict[name]) for name in _IPU}
        self._loaded = self._state_dict["ipu_param"] or {}, self._numbers()
        self.ipu_state_is_dirty, self.host_state_is_dirty = True, False

    def _numbers(self) -> list[Any]:
        groups = self.param_groups
        own = [{k: v for k, v in group.items() if k != "params"} for group in groups]
        return [self.loss_scaling, *own]

    def __getstate__(self) -> dict[str, Any]:
        names = (*self.own_defaults, "variable_attrs", "_state_dict", "_loaded")
        own = {name: getattr(self, name) for name in names}
        dirty = {"ipu_state_is_dirty": self.has_state(), "host_state_is_dirty": False}
        return {**super().__getstate__(), **own, **dirty}
