"""The batching of operations that cannot be run for all replicas at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax.numpy as jnp
from jax import Array, lax

from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    Literal,
    bind_equation,
    body_of_call,
    rewrite_equations,
    typed_jax,
)


def add_missing_batching_rules(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Gives a batching rule to the operations that JAX has none for, at any depth.

    On one device replicas are a vmapped axis, which primitives from elsewhere, most callbacks of
    the host and ordered effects refuse, as some of JAX's own do for some of their operands.

    Before: any jaxpr.
    After:  under vmap such an operation runs once for each replica, in their order; a `clamp` by
            computed bounds is a minimum of a maximum.
    """
    if replicas == 1:
        return closed
    return rewrite_equations(
        closed, EquationFinder(lambda eqn: not _can_vectorize(eqn)), _replace_by_sequential_vmap
    )


def _replace_by_sequential_vmap(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
    if eqn.primitive is lax.clamp_p:
        rewriter.replace_by_function(eqn, _clamp)
    else:

        def run_for_one_replica(*operands: Array) -> list[Array]:
            return bind_equation(eqn, operands)

        rewriter.replace_by_function(eqn, typed_jax.sequential_vmap(run_for_one_replica))


def _clamp(low: Array, x: Array, high: Array) -> Array:
    low, high = (jnp.broadcast_to(bound, x.shape) for bound in (low, high))
    return lax.min(lax.max(x, low), high)


_IF_LITERAL: dict[str, Callable[[int], Iterable[int]]] = {
    "dce_sink": range,
    "ragged_dot_general": range,
    "reduce": lambda count: range(count // 2, count),
    "reduce_window": lambda count: range(count // 2, count),
    "clamp": lambda count: (2,),
}
"""The operations that JAX 0.10.2 vectorizes only where some operands are the same for all.

Each entry maps the number of operands to those operands; only literals are known to be the same.
"""


def _can_vectorize(eqn: JaxprEqn) -> bool:
    """Returns whether vmap has a rule for an equation, its bodies left aside."""
    name, params = eqn.primitive.name, eqn.params
    if name == "pure_callback":
        return params["vmap_method"] is not None
    if name == "io_callback":
        return not params["ordered"]
    if name in _IF_LITERAL:
        return all(isinstance(eqn.invars[i], Literal) for i in _IF_LITERAL[name](len(eqn.invars)))
    has_rule = eqn.primitive in typed_jax.fancy_primitive_batchers  # the table of all rules
    return has_rule or eqn.primitive.call_primitive or body_of_call(eqn) is not None
