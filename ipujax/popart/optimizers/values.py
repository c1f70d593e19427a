"""Hyperparameters: a default for all weights, and values of some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ipujax.popart.checks import check

Given = Mapping[str, tuple[float, bool]]
"""Values by name, each with whether it is constant."""


@check.guard
class OptimizerValue(NamedTuple):
    """A hyperparameter.

    Attributes:
      value: as it is now.
      constant: whether `updateOptimizerFromHost` leaves it alone.
    """

    value: float
    constant: bool = True

    def val(self) -> float:
        """The value."""
        return self.value

    def isConst(self) -> bool:
        """Whether it never changes."""
        return self.constant


@check.guard
class OptimizerValueMap:
    """A hyperparameter of all weights.

    Args:
      default: of weights that have none of their own.
    """

    def __init__(self, default: OptimizerValue):
        self._default = default
        self.specific: dict[str, OptimizerValue] = {}

    def getDefault(self) -> OptimizerValue:
        """That of weights that have none of their own."""
        return self._default

    def of(self, weight: str) -> OptimizerValue:
        """That of a weight."""
        return self.specific.get(weight, self._default)

    def check_replacement(self, other: OptimizerValueMap, what: str) -> None:
        """Makes sure that another's values can take the place of these.

        Raises:
          PopARTError: (a `ValueError`) constants that change, or values of other weights.
        """
        if self.specific.keys() != other.specific.keys():
            raise check.refuse(
                f"{what}: the optimizer has values of its own for {sorted(self.specific)}, and "
                f"the new one for {sorted(other.specific)}",
                "call insertSpecific for the same weights",
            )
        for weight in (None, *self.specific):
            old = self._default if weight is None else self.specific[weight]
            new = other._default if weight is None else other.specific[weight]
            if old.constant != new.constant or (old.constant and old.value != new.value):
                raise check.refuse(
                    f"{what}{f' of {weight!r}' if weight else ''} is {_told(old)}, and the new "
                    f"optimizer has {_told(new)}",
                    "create the session with a value that is not constant: (value, False)",
                )


def _told(value: OptimizerValue) -> str:
    return f"{'a constant' if value.constant else 'a variable'} {value.value}"


def value_of(given: Any, what: str) -> OptimizerValue:
    """A value as users write it: a number, or `(number, is_constant)`.

    Raises:
      PopARTTypeError: (a `TypeError`) something else.
    """
    if isinstance(given, tuple | list) and len(given) == 2:
        first = (
            float(given[0]) if isinstance(given[0], bool) else given[0]
        )  # nesterov: (True, True)
        number = check.number(first, what, "give a number")
        if not math.isfinite(number):
            raise check.refuse(f"{what} is {number}", "give a finite number")
        return OptimizerValue(number, check.flag(given[1], f"{what}: constant"))
    raise check.other_than("a pair of a number and whether it is constant", given, what)
