"""The argument checks of estimators."""

import math
from collections.abc import Iterable

from ipujax.ground import ArrayChecks, EstimatorError, EstimatorTypeError

check = ArrayChecks(EstimatorTypeError, EstimatorError)


def check_steps(steps: int | None, per_loop: int) -> None:
    """Refuses a number of steps that is no multiple of the steps in a device loop."""
    if steps is not None and check.require_integer(steps, "steps", at_least=1) % per_loop:
        raise check.value_error(
            f"steps is {steps}, but must be a multiple of iterations_per_loop, which is {per_loop}",
            f"give a multiple of {per_loop}",
        )


def check_number(value: object, argument_name: str, at_least: float | None = None) -> float:
    """Returns a finite number; a bool is refused.

    Raises:
      EstimatorError: (a `ValueError`) infinity, NaN, or a number that is too small.
      EstimatorTypeError: (a `TypeError`) a value of another type.
    """
    number = check.require_number(value, argument_name, "give a Python number")
    if not math.isfinite(number):
        raise check.value_error(f"{argument_name} is {value}", "give a finite number")
    if at_least is not None and number < at_least:
        raise check.value_error(f"{argument_name} is {value}", f"give at least {at_least}")
    return number


def check_metric_names(names: Iterable[str], reserved: Iterable[str]) -> None:
    """Refuses metrics with the names of values that every evaluation gives.

    Raises:
      EstimatorError: (a `ValueError`) a metric has one of the reserved names.
    """
    for name in sorted(set(names).intersection(reserved)):
        raise check.value_error(
            f"a metric is called {name!r}, and an evaluation has a value of its own by this name",
            "give the metric another name",
        )
