"""The checks of estimators' arguments."""

import math
from collections.abc import Iterable
from typing import Any

from ipujax.checks.arrays import ArrayChecks
from ipujax.errors import EstimatorError, EstimatorTypeError

check = ArrayChecks(EstimatorTypeError, EstimatorError)


def check_steps(steps: int | None, per_loop: int) -> None:
    """Steps are whole device loops; None for as many as there are."""
    if steps is not None and check.integer(steps, "steps", at_least=1) % per_loop:
        raise check.refuse(
            f"steps is {steps}, but must be a multiple of iterations_per_loop, which is {per_loop}",
            f"give a multiple of {per_loop}",
        )


def check_number(value: Any, what: str, at_least: float | None = None) -> float:
    """Returns a finite number; a bool is none.

    Raises:
      EstimatorError: (a `ValueError`) infinity, no number, or one that is too small.
      EstimatorTypeError: (a `TypeError`) a value of another type.
    """
    number = check.number(value, what, "give a Python number")
    if not math.isfinite(number):
        raise check.refuse(f"{what} is {value}", "give a finite number")
    if at_least is not None and number < at_least:
        raise check.refuse(f"{what} is {value}", f"give at least {at_least}")
    return number


def check_metric_names(names: Iterable[str], reserved: Iterable[str]) -> None:
    """Refuses metrics of which an evaluation has one of its own.

    Raises:
      EstimatorError: (a `ValueError`) there is such a metric.
    """
    for name in sorted(set(names).intersection(reserved)):
        raise check.refuse(
            f"a metric is called {name!r}, and an evaluation has a value of its own by this name",
            "give the metric another name",
        )
