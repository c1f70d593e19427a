"""The primitive of callbacks that a program makes once, for its first replica.

Such a callback gets the first replica's values, and all replicas get its results. On one device
replicas are a vmapped axis, of which the callback takes the first row; on devices of their own, all
but the first replica skip the call.
"""

from __future__ import annotations

from typing import Any

from jax import lax

from lowering import marks
from lowering.jaxprs import (
    FIRST_REPLICA_EFFECT,
    ORDERED_FIRST_REPLICA_EFFECT,
    Aval,
    Effect,
    JaxprEqn,
    Primitive,
    bind_equation,
    is_ordered,
    mlir,
    name_stack,
    typed_jax,
)
from lowering.ops.collective_primitives import REPLICAS
from lowering.ops.define import define_primitive
from lowering.ops.types import Array, Arrays, Dims, Results

_CALLBACKS = frozenset({"io_callback", "debug_callback", "debug_print"})


def is_shared_callback(eqn: JaxprEqn) -> bool:
    """Returns whether an equation is a callback that is made once for all replicas.

    A `pure_callback` is no effect: it is arithmetic of each replica. What stands outside of
    compiled code is done once in any case.
    """
    if eqn.primitive.name not in _CALLBACKS:
        return False
    eqn_marks = marks.read_marks(name_stack(eqn))
    return not eqn_marks.each_replica and eqn_marks.outside is None


def call_for_first_replica(
    eqn: JaxprEqn, operands: Arrays, is_reached: Array | None
) -> list[Array]:
    """Makes a callback for the first replica; traced inside the axis of the replicas.

    Args:
      eqn: the callback.
      operands: the operands of one replica.
      is_reached: bool[], whether the first replica runs the equation (other replicas' values do not
        matter); None if it always does.

    Returns:
      The results of the first replica's call; zeros if it does not run the equation.
    """
    is_first = lax.axis_index(REPLICAS) == 0
    calls = is_first if is_reached is None else is_first & is_reached
    results = first_callback_p.bind(calls, *operands, eqn=eqn)
    return [typed_jax.all_gather(result, REPLICAS)[0] for result in results]


def _callback_avals(*_: Aval, eqn: JaxprEqn) -> list[Aval]:
    return [var.aval for var in eqn.outvars]


def _callback_effects(*_: Aval, eqn: JaxprEqn) -> set[Effect]:
    return {ORDERED_FIRST_REPLICA_EFFECT if is_ordered(eqn) else FIRST_REPLICA_EFFECT}


def _vmap_first_callback(
    primitive: Primitive, values: Arrays, dims: Dims, *, eqn: JaxprEqn
) -> Results:
    pairs = zip(values, dims, strict=True)
    first_rows = [x if dim is None else lax.index_in_dim(x, 0, dim, False) for x, dim in pairs]
    return primitive.bind(*first_rows, eqn=eqn), [None] * len(eqn.outvars)


def _lower_first_callback(ctx: Any, *operands: Any, eqn: JaxprEqn) -> Any:
    """Lowers the callback as JAX does, under a condition; its order is that of our effect."""

    def call_if_first(calls: Array, *operands: Array) -> list[Array]:
        avals: list[Aval] = [var.aval for var in eqn.outvars]
        zeros = [typed_jax.zeros(aval.shape, aval.dtype) for aval in avals]
        return typed_jax.cond(calls, lambda: bind_equation(eqn, operands), lambda: zeros)

    rule = typed_jax.lower_fun(call_if_first, multiple_results=True)
    if not is_ordered(eqn):
        return rule(ctx, *operands)
    (effect,) = eqn.effects
    tokens = mlir.TokenSet({effect: ctx.tokens_in.get(ORDERED_FIRST_REPLICA_EFFECT)})
    inner_context = ctx.replace(tokens_in=tokens)
    results = rule(inner_context, *operands)
    token = {ORDERED_FIRST_REPLICA_EFFECT: inner_context.tokens_out.get(effect)}
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet(token)))
    return results


first_callback_p = define_primitive(
    "ipu_first_callback",
    _callback_avals,
    has_several_results=True,
    effects=_callback_effects,
    vmap=_vmap_first_callback,
)
typed_jax.register_lowering(first_callback_p, _lower_first_callback, cacheable=False)
