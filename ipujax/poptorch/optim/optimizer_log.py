"""The lines of PopTorch's log about an optimizer."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ipujax.poptorch.optim.attributes import Optimizer
from ipujax.poptorch.optim.rules import FORMULAS, find_known_class, get_accumulator_dtypes
from ipujax.poptorch.poptorch_log import logger

_OPTIMIZER_ATTRIBUTE = "optimizer attribute"


class OptimizerLog:
    """A log of an optimizer's ignored attributes, and of the numbers that a program gets.

    Args:
      relaxed: whether ignored attributes are logged at DEBUG instead of as warnings.
    """

    def __init__(self, relaxed: bool = False):
        self._level = logging.DEBUG if relaxed else logging.WARNING
        self._kind: type[torch.optim.Optimizer] | None = None
        self._known: set[tuple[bool, str]] = set()
        self._said: set[str] = set()
        self._lines: list[str] = []

    def log_ignored_attributes(self, optimizer: torch.optim.Optimizer) -> None:
        """Logs what is ignored of an optimizer: a subclass's own code, and new attributes."""
        user_class, kind = type(optimizer), find_known_class(optimizer)
        if user_class not in FORMULAS and not user_class.__module__.startswith(__package__ or ""):
            self._log_once(
                logging.WARNING,
                f"Optimizer {user_class.__name__} is a class of your own. Poptorch does not run "
                f"Python optimizer code directly: it computes what {kind.__name__} does.",
            )
        names_by_kind = dict(_list_attribute_names(optimizer))
        if kind is not self._kind:
            self._kind = kind
            self._known = {
                (kind_of_names == _OPTIMIZER_ATTRIBUTE, name)
                for kind_of_names, names in names_by_kind.items()
                for name in names
            }
            return
        for what, names in names_by_kind.items():
            if new := [
                name for name in names if (what == _OPTIMIZER_ATTRIBUTE, name) not in self._known
            ]:
                message = f"Ignoring unexpected {what} in {kind.__name__} optimizer: {new}"
                self._log_once(self._level, message)

    def log_changed_numbers(self, optimizer: torch.optim.Optimizer) -> None:
        """Logs the numbers that the program uses from now on, if they have changed."""
        lines = describe_numbers(optimizer)
        if lines != self._lines:
            self._lines = lines
            for line in lines:
                logger.debug("Updating %s", line)

    def _log_once(self, level: int, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            logger.log(level, message)


def describe_numbers(optimizer: torch.optim.Optimizer) -> list[str]:
    """Describes an optimizer's numbers under PopART's names: defaults, then each group."""
    kind, types = find_known_class(optimizer).__name__, get_accumulator_dtypes(optimizer)
    combined = getattr(optimizer, "use_combined_accum", False)  # else velocities are of the loss
    scaling = getattr(optimizer, "loss_scaling", 1.0)
    factor = _format_number_value(optimizer, "loss_scaling", scaling, scaling)
    end = (
        f"accumType={types.accumulated}, firstOrderMomentumAccumType={types.first}, "
        f"secondOrderMomentumAccumType={types.second}, "
        f"useTfVariant={int(getattr(optimizer, 'use_tf_variant', False))}, "
        f"maxGradNorm={getattr(optimizer, 'max_grad_norm', math.inf):g}"
    )

    def format_settings(settings: Mapping[str, object], prefix: str, *extra_parts: str) -> str:
        known_settings = {name: settings[name] for name in optimizer.defaults if name in settings}
        numbers = sorted(
            f"{_popart_name(k, prefix)}={v}"
            for k, v in _format_settings_values(optimizer, known_settings)
        )
        if kind == "SGD" and not combined:
            numbers.append(f"{_popart_name('velocity_scaling', prefix)}={factor}")
        return ", ".join([kind, *numbers, *extra_parts, end])

    loss = f"lossScaling={factor}"
    first = f"graph optimizer with {format_settings(optimizer.defaults, 'default_', loss)}"
    groups = enumerate(optimizer.param_groups)
    return [
        first,
        *(f"group {i} optimizer with {format_settings(group, '')}" for i, group in groups),
    ]


def _list_attribute_names(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, list[str]]]:
    """Yields the names of an optimizer's attributes, by their kind."""
    yield "default group variable", list(optimizer.defaults)
    expected = {"defaults", "state", "param_groups", "variable_attrs"}
    if isinstance(optimizer, Optimizer):
        expected |= {*optimizer.own_defaults, "ipu_state_is_dirty", "host_state_is_dirty"}
    attributes = vars(optimizer).items()
    # Schedulers put a function around `step`, and torch keeps private things.
    public = [k for k, v in attributes if k not in expected and k[0] != "_" and not callable(v)]
    yield _OPTIMIZER_ATTRIBUTE, public
    for index, group in enumerate(optimizer.param_groups):
        yield f"group {index} attribute", [name for name in group if name != "params"]


def _format_settings_values(
    optimizer: torch.optim.Optimizer, settings: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if name == "betas":
            for index, beta in enumerate(value, 1):
                yield f"beta{index}", _format_number_value(optimizer, name, beta, value)
        elif isinstance(value, (int, float, torch.Tensor)) and not isinstance(value, bool):
            yield name, _format_number_value(optimizer, name, value, value)


def _format_number_value(
    optimizer: torch.optim.Optimizer, name: str, number: Any, value: Any
) -> str:
    return f"{float(number):g}" + " (const)" * _is_constant_attribute(optimizer, name, value)


def _is_constant_attribute(optimizer: torch.optim.Optimizer, name: str, value: object) -> bool:
    """Returns whether an attribute is marked as constant, or in torch's classes is a default."""
    if isinstance(optimizer, Optimizer):
        return optimizer.variable_attrs.isConstant(name)
    parameter = inspect.signature(find_known_class(optimizer)).parameters.get(name)
    return name != "lr" and (parameter is None or value == parameter.default)


def _popart_name(name: str, prefix: str) -> str:
    words = (prefix + ("learning_rate" if name == "lr" else name)).split("_")
    return words[0] + "".join(word.capitalize() for word in words[1:])
