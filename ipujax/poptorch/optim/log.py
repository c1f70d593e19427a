"""What PopTorch's log says of an optimizer."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ipujax.poptorch.log import logger
from ipujax.poptorch.optim.attributes import Optimizer
from ipujax.poptorch.optim.rules import FORMULAS, dtypes_of, kind_of

_OWN = "optimizer attribute"


class OptimizerLog:
    """Says once what is strange about optimizers, and what numbers a program gets from them.

    Args:
      relaxed: whether what is ignored is no warning.
    """

    def __init__(self, relaxed: bool = False):
        self._level = logging.DEBUG if relaxed else logging.WARNING
        self._kind: type[torch.optim.Optimizer] | None = None
        self._known: set[tuple[bool, str]] = set()
        self._said: set[str] = set()
        self._lines: list[str] = []

    def given(self, optimizer: torch.optim.Optimizer) -> None:
        """Says what of an optimizer is ignored: a class's own code, and attributes that are new."""
        own, kind = type(optimizer), kind_of(optimizer)
        if own not in FORMULAS and not own.__module__.startswith(__package__ or ""):
            self._say(
                logging.WARNING,
                f"Optimizer {own.__name__} is a class of your own. Poptorch does not run Python "
                f"optimizer code directly: it computes what {kind.__name__} does.",
            )
        named = dict(_attributes(optimizer))
        if kind is not self._kind:
            self._kind = kind
            self._known = {(what == _OWN, name) for what, names in named.items() for name in names}
            return
        for what, names in named.items():
            if new := [name for name in names if (what == _OWN, name) not in self._known]:
                message = f"Ignoring unexpected {what} in {kind.__name__} optimizer: {new}"
                self._say(self._level, message)

    def updated(self, optimizer: torch.optim.Optimizer) -> None:
        """Says what numbers the program works with from here on, if they are others."""
        lines = described(optimizer)
        if lines != self._lines:
            self._lines = lines
            for line in lines:
                logger.debug("Updating %s", line)

    def _say(self, level: int, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            logger.log(level, message)


def described(optimizer: torch.optim.Optimizer) -> list[str]:
    """An optimizer's numbers under PopART's names: its defaults, then each parameter group's."""
    kind, types = kind_of(optimizer).__name__, dtypes_of(optimizer)
    combined = getattr(optimizer, "use_combined_accum", False)  # else velocities are of the loss
    scaling = getattr(optimizer, "loss_scaling", 1.0)
    factor = _value(optimizer, "loss_scaling", scaling, scaling)
    end = (
        f"accumType={types.accumulated}, firstOrderMomentumAccumType={types.first}, "
        f"secondOrderMomentumAccumType={types.second}, "
        f"useTfVariant={int(getattr(optimizer, 'use_tf_variant', False))}, "
        f"maxGradNorm={getattr(optimizer, 'max_grad_norm', math.inf):g}"
    )

    def line(settings: Mapping[str, Any], prefix: str, *more: str) -> str:
        own = {name: settings[name] for name in optimizer.defaults if name in settings}
        numbers = sorted(f"{_popart(k, prefix)}={v}" for k, v in _numbers(optimizer, own))
        if kind == "SGD" and not combined:
            numbers.append(f"{_popart('velocity_scaling', prefix)}={factor}")
        return ", ".join([kind, *numbers, *more, end])

    loss = f"lossScaling={factor}"
    first = f"graph optimizer with {line(optimizer.defaults, 'default_', loss)}"
    groups = enumerate(optimizer.param_groups)
    return [first, *(f"group {i} optimizer with {line(group, '')}" for i, group in groups)]


def _attributes(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, list[str]]]:
    """The names of what an optimizer has, by what they are."""
    yield "default group variable", list(optimizer.defaults)
    expected = {"defaults", "state", "param_groups", "variable_attrs"}
    if isinstance(optimizer, Optimizer):
        expected |= {*optimizer.own_defaults, "ipu_state_is_dirty", "host_state_is_dirty"}
    attributes = vars(optimizer).items()
    # Schedulers put a function around `step`, and torch keeps private things.
    public = [k for k, v in attributes if k not in expected and k[0] != "_" and not callable(v)]
    yield _OWN, public
    for index, group in enumerate(optimizer.param_groups):
        yield f"group {index} attribute", [name for name in group if name != "params"]


def _numbers(
    optimizer: torch.optim.Optimizer, settings: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if name == "betas":
            for index, beta in enumerate(value, 1):
                yield f"beta{index}", _value(optimizer, name, beta, value)
        elif isinstance(value, (int, float, torch.Tensor)) and not isinstance(value, bool):
            yield name, _value(optimizer, name, value, value)


def _value(optimizer: torch.optim.Optimizer, name: str, number: Any, value: Any) -> str:
    return f"{float(number):g}" + " (const)" * _is_constant(optimizer, name, value)


def _is_constant(optimizer: torch.optim.Optimizer, name: str, value: Any) -> bool:
    """Whether it was marked so, or in torch's own optimizers is what it is by default."""
    if isinstance(optimizer, Optimizer):
        return optimizer.variable_attrs.isConstant(name)
    parameter = inspect.signature(kind_of(optimizer)).parameters.get(name)
    return name != "lr" and (parameter is None or value == parameter.default)


def _popart(name: str, prefix: str) -> str:
    words = (prefix + ("learning_rate" if name == "lr" else name)).split("_")
    return words[0] + "".join(word.capitalize() for word in words[1:])
