"""Linear functions of arrays that say how they are transposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax

from ipujax.operators.closed_over import lift_closed_over
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
    lifted, closed_over, _ = lift_closed_over(
        lambda *arrays: function(arrays[:count], arrays[count:]), (*fixed, *operands)
    )
    all_fixed = (*fixed, *closed_over)
    num_fixed = len(all_fixed)

    def run(*arrays: jax.Array) -> list[jax.Array]:
        return lifted(*arrays[:count], *arrays[num_fixed:], *arrays[count:num_fixed])

    def transpose_operands(arrays: Arrays, cotangents: Arrays) -> Arrays:
        return transpose(arrays[:count], cotangents)

    body = jaxpr.make_jaxpr(run)(*all_fixed, *operands)
    return ops.linear_map_p.bind(
        *all_fixed, *operands, body=body, num_fixed=num_fixed, transpose=transpose_operands
    )
