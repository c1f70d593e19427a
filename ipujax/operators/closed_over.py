"""What a function closes over, as operands of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from lowering import jaxpr

is_mapped, is_traced = jaxpr.is_mapped, jaxpr.is_tracer


def lift_closed_over(
    function: Callable[..., Any], operands: Sequence[Any]
) -> tuple[Callable[..., list[jax.Array]], list[jax.Array], Any]:
    """Traces a function once, and makes operands of the traced values that it closes over.

    Args:
      function: of arrays; it returns a pytree of arrays.
      operands: their shapes and dtypes.

    Returns:
      A function of the operands and then of the closed-over values, which gives the leaves of the
      result; these values; and the result, as a pytree of shapes and dtypes.
    """
    closed, results = jaxpr.make_jaxpr(function, return_shape=True)(*operands)
    traced = [n for n, const in enumerate(closed.consts) if jaxpr.is_tracer(const)]

    def run(*arrays: jax.Array) -> list[jax.Array]:
        consts = list(closed.consts)
        for number, array in zip(traced, arrays[len(operands) :], strict=True):
            consts[number] = array
        return jaxpr.run_equations(closed.jaxpr, consts, arrays[: len(operands)])

    return run, [closed.consts[number] for number in traced], results
