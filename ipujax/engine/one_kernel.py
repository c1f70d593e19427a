"""Programs of a single kernel are plain JAX functions, which `jax.jit` can take whole."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from ipujax.engine.placement import Placement
from lowering import ir, jaxpr


def run_kernel(
    program: ir.Program, placement: Placement, flat: Sequence[jax.Array]
) -> list[jax.Array]:
    """Evaluates a one-kernel program on arrays or tracers."""
    values: dict[int, jax.Array] = dict(zip(program.inputs, flat, strict=True))
    values.update(program.constants)
    for node in program.body.steps:
        if isinstance(node, ir.Execute):
            closed = node.kernel.jaxpr

            def kernel(*operands: jax.Array, closed: jaxpr.ClosedJaxpr = closed) -> list[jax.Array]:
                return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

            shared = [None] * len(node.reads)
            function = placement.replicated(kernel, 0, shared, [0] * len(node.writes))
            results = function(*[values[value] for value in node.reads])
            if placement.replicas > 1:
                results = [result[0] for result in results]
            values.update(zip(node.writes, results, strict=True))
    return [values[value] for value in program.outputs]
