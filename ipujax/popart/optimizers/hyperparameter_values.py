"""The values of a hyperparameter: a default for all weights, and values of some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ipujax.popart.popart_checks import check

NamedValues = Mapping[str, tuple[float, bool]]
"""Values by name, each with a flag that makes it constant."""


@check.guard
class OptimizerValue(NamedTuple):
    """The value of a hyperparameter.

    Attributes:
      value: the current value.
      constant: whether `updateOptimizerFromHost` cannot change it.
    """

    value: float
    constant: bool = True

    def val(self) -> float:
        """Returns the value."""
        return self.value

    def isConst(self) -> bool:
        """Returns whether the value never changes."""
        return self.constant


@check.guard
class OptimizerValueMap:
    """The values of a hyperparameter for all weights.

    Args:
      default: the value of weights that have none of their own.
    """

    def __init__(self, default: OptimizerValue):
        self._default = default
        self.specific: dict[str, OptimizerValue] = {}

    def getDefault(self) -> OptimizerValue:
        """Returns the value of weights that have none of their own."""
        return self._default

    def get_value_for_weight(self, weight: str) -> OptimizerValue:
        """Returns the value of a weight."""
        return self.specific.get(weight, self._default)

    def check_replacement(self, replacement: OptimizerValueMap, name: str) -> None:
        """Checks that another's values can replace these without compilation.

        Raises:
          PopARTError: (a `ValueError`) constants that change, or values of other weights.
        """
        if self.specific.keys() != replacement.specific.keys():
            raise check.value_error(
                f"{name}: the optimizer has values of its own for {sorted(self.specific)}, and "
                f"the new one for {sorted(replacement.specific)}",
                "call insertSpecific for the same weights",
            )
        for weight in (None, *self.specific):
            old = self._default if weight is None else self.specific[weight]
            new = replacement._default if weight is None else replacement.specific[weight]
            if old.constant != new.constant or (old.constant and old.value != new.value):
                raise check.value_error(
                    f"{name}{f' of {weight!r}' if weight else ''} is {_describe_value(old)}, and "
                    f"the new optimizer has {_describe_value(new)}",
                    "create the session with a value that is not constant: (value, False)",
                )


def _describe_value(value: OptimizerValue) -> str:
    return f"{'a constant' if value.constant else 'a variable'} {value.value}"


def parse_value(pair: object, name: str) -> OptimizerValue:
    """Parses a value as users write it: `(number, is_constant)`.

    Raises:
      PopARTTypeError: (a `TypeError`) something else.
    """
    if isinstance(pair, tuple | list) and len(pair) == 2:
        first = float(pair[0]) if isinstance(pair[0], bool) else pair[0]  # nesterov: (True, True)
        number = check.require_number(first, name, "give a number")
        if not math.isfinite(number):
            raise check.value_error(f"{name} is {number}", "give a finite number")
        return OptimizerValue(number, check.require_flag(pair[1], f"{name}: constant"))
    raise check.wrong_type_error("a pair of a number and whether it is constant", pair, name)
