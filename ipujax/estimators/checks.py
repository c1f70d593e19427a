"""The checks of estimators' arguments."""

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
