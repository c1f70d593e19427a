"""The base class of PopTorch's optimizers: variable attributes, and a state on the IPU."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch

from ipujax.ground import Keywords, OptimizerStateError
from ipujax.poptorch.poptorch_checks import check

_IPU = ("ipu_state", "ipu_param")


@check.guard
class VariableAttributes:
    """The set of an optimizer's attributes that may change while a program is in use.

    Attributes that the constructor was given are variable, all others constant. Here every number
    is data of the program, so that a constant one may change, too; but a `momentum` that is 0 and
    constant has no velocity.

    Args:
      variable_attributes: the names of the attributes that may change.
      allowed_attributes: the names of all attributes.
    """

    def __init__(
        self, variable_attributes: Iterable[str], allowed_attributes: Iterable[str]
    ) -> None:
        self._variable_attributes = list(variable_attributes)
        self._allowed_attributes = list(allowed_attributes)

    @property
    def variable(self) -> frozenset[str]:
        """The names of the attributes that may change."""
        return frozenset(self._variable_attributes)

    def isConstant(self, attr: str) -> bool:
        """Returns whether an attribute is constant."""
        return attr not in self._variable_attributes

    def markAsConstant(self, attr: str) -> None:
        """Makes an attribute constant.

        Raises:
          PopTorchError: (a `ValueError`) the optimizer has no such attribute.
        """
        self._check_attribute_name(attr)
        self._variable_attributes = [name for name in self._variable_attributes if name != attr]

    def markAsVariable(self, attr: str) -> None:
        """Makes an attribute variable.

        Raises:
          PopTorchError: (a `ValueError`) the optimizer has no such attribute.
        """
        self._check_attribute_name(attr)
        if self.isConstant(attr):
            self._variable_attributes.append(attr)

    def _check_attribute_name(self, attr: str) -> None:
        if attr not in self._allowed_attributes:
            allowed = ", ".join(sorted(self._allowed_attributes))
            raise check.value_error(
                f"the optimizer has no attribute {attr!r}", f"use one of: {allowed}"
            )


def drop_none_arguments(**arguments: object) -> Keywords:
    """Selects the arguments that are not None."""
    return {name: value for name, value in arguments.items() if value is not None}


@check.guard
class Optimizer(torch.optim.Optimizer):
    """A base class of the optimizers of `poptorch.optim`, beside torch's.

    Attributes:
      variable_attrs: the attributes that may change.
      loss_scaling: the factor of the loss before it is differentiated.
      ipu_state_is_dirty: whether a state was loaded that the IPU does not have yet.
      host_state_is_dirty: whether the IPU has a state that the host does not have yet.
    """

    variable_attrs: VariableAttributes
    loss_scaling: float

    own_defaults: ClassVar[Mapping[str, Any]] = {}
    """The attributes that PopTorch adds to torch's class, with their defaults."""

    def _set_poptorch_attributes(
        self, torch_arguments: Mapping[str, Any], **own_arguments: Any
    ) -> None:
        """Sets the attributes that PopTorch adds, and records which arguments were given.

        Args:
          torch_arguments: the given arguments of torch's class, except `params`.
          **own_arguments: the arguments that PopTorch adds; None for those that were not given.
        """
        for name, default in self.own_defaults.items():
            value = default if own_arguments[name] is None else own_arguments[name]
            if name.endswith("accum_type") and value not in (torch.float16, torch.float32):
                raise check.value_error(
                    f"{name} of {type(self).__name__} is {value}, but an IPU keeps float16 or "
                    "float32",
                    "give torch.float32 or torch.float16",
                )
            if name in ("max_grad_norm", "loss_scaling") and not value > 0:
                raise check.value_error(
                    f"{name} of {type(self).__name__} is {value}", "give a positive number"
                )
            setattr(self, name, value)
        variable = [*torch_arguments, *drop_none_arguments(**own_arguments)]
        self.variable_attrs = VariableAttributes(variable, [*self.defaults, "loss_scaling"])
        self._state_dict: dict[str, Any] = dict.fromkeys(_IPU)
        self._loaded: tuple[Mapping[str, Any], Any] = {}, None
        self.ipu_state_is_dirty = False
        self.host_state_is_dirty = False

    def has_state(self) -> bool:
        """Returns whether the IPU's state is on the host."""
        return all(self._state_dict.get(name) is not None for name in _IPU)

    def store_ipu_state(
        self, ipu_state: Mapping[str, object], ipu_param: Mapping[str, object]
    ) -> None:
        """Stores the IPU's state and numbers: tensors under PopART's names."""
        loaded, numbers = self._loaded
        reported_numbers = {} if numbers != self._current_settings() else loaded
        self._state_dict = {
            "ipu_state": dict(ipu_state),
            "ipu_param": {**ipu_param, **reported_numbers},
        }
        self.host_state_is_dirty = False

    @property
    def loaded_state(self) -> Mapping[str, Any]:
        """The loaded state that the IPU does not have yet, under PopART's names."""
        return (self._state_dict["ipu_state"] or {}) if self.ipu_state_is_dirty else {}

    def state_dict(self) -> Keywords:
        """Returns torch's state dict with `ipu_state` and `ipu_param` under PopART's names.

        These two are dicts of tensors once there is a program on the IPU, else None. `ipu_param`
        only reports: the numbers that act are those in `param_groups`.
        """
        torch_state = super().state_dict()  # which may first ask the IPU for its state
        return {**torch_state, **{name: copy.copy(self._state_dict[name]) for name in _IPU}}

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """Loads a state of `state_dict`; a program in use gets it before it runs again.

        Where `ipu_state` and torch's own `state` disagree, the first is used. `ipu_param` is
        reported until the optimizer's numbers change.

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
        torch_state = {name: value for name, value in state_dict.items() if name not in _IPU}
        super().load_state_dict(torch_state)
        self._state_dict = {name: copy.copy(state_dict[name]) for name in _IPU}
        self._loaded = self._state_dict["ipu_param"] or {}, self._current_settings()
        self.ipu_state_is_dirty, self.host_state_is_dirty = True, False

    def _current_settings(self) -> list[Any]:
        groups = self.param_groups
        group_settings = [{k: v for k, v in group.items() if k != "params"} for group in groups]
        return [self.loss_scaling, *group_settings]

    def __getstate__(self) -> Keywords:
        names = (*self.own_defaults, "variable_attrs", "_state_dict", "_loaded")
        attributes = {name: getattr(self, name) for name in names}
        dirty = {"ipu_state_is_dirty": self.has_state(), "host_state_is_dirty": False}
        return {**super().__getstate__(), **attributes, **dirty}
