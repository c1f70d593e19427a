"""Linear functions of arrays that say how they are transposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax

from lowering import jaxpr, ops

Arrays = Sequence[jax.Array]


def run_linear_map(
    function: Callable[[Arrays, Arrays], Arrays],
    transpose: Callable[[Arrays, Arrays], Arrays],
    fixed: Arrays,
    operands: Arrays,
) -> list[jax.Array]:
    """Runs a function that is linear in some arrays; reverse-mode gradients take its transpose.

    Args:
      function: `fixed` and `operands` -> results; forward-mode derivatives are its own.
      transpose: `fixed` and the results' cotangents -> the operands' cotangents.
      fixed: the arrays in which it need not be linear.
      operands: those in which it is.
    """
    count = len(fixed)

    def run(*arrays: jax.Array) -> Arrays:
        return function(arrays[:count], arrays[count:])

    body = jaxpr.make_jaxpr(run)(*fixed, *operands)
    return ops.linear_map_p.bind(*fixed, *operands, body=body, num_fixed=count, transpose=transpose)
