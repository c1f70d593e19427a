"""Callbacks of the host that a program makes once, however many replicas it has.

They get the first replica's values, and all replicas get their results. On one device replicas
are a vmapped axis, over which the callback takes its first row; on devices of their own, all but
the first are told not to call.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering import marks
from lowering.jaxpr import (
    FIRST,
    FIRST_IN_ORDER,
    Aval,
    Effect,
    JaxprEqn,
    Primitive,
    bind_equation,
    is_ordered,
    mlir,
    name_stack,
)
from lowering.ops.collectives import REPLICAS
from lowering.ops.define import define
from lowering.ops.types import Array, Arrays, Dims, Results

_CALLBACKS = frozenset({"io_callback", "debug_callback", "debug_print"})


def is_shared_callback(eqn: JaxprEqn) -> bool:
    """Whether an equation calls the host once for all replicas, by JAX's means.

    A `pure_callback` is no effect: it is arithmetic of each replica. What stands outside of
    compiled code is done once in any case.
    """
    if eqn.primitive.name not in _CALLBACKS:
        return False
    marked = marks.read(name_stack(eqn))
    return not marked.each_replica and marked.outside is None


def call_first(eqn: JaxprEqn, operands: Arrays, here: Array | None) -> list[Array]:
    """Makes a callback for the first replica; traced inside the axis of the replicas.

    Args:
      eqn: the callback.
      operands: of one replica.
      here: bool[], whether the first replica gets there; the others' is not looked at. None where
        it always does.

    Returns:
      What the host returned to the first replica; zeros where that did not get there.
    """
    is_first = lax.axis_index(REPLICAS) == 0
    calls = is_first if here is None else is_first & here
    results = first_callback_p.bind(calls, *operands, eqn=eqn)
    return [lax.all_gather(result, REPLICAS)[0] for result in results]


def _avals(*_: Aval, eqn: JaxprEqn) -> list[Aval]:
    return [var.aval for var in eqn.outvars]


def _effects(*_: Aval, eqn: JaxprEqn) -> set[Effect]:
    return {FIRST_IN_ORDER if is_ordered(eqn) else FIRST}


def _vmap(primitive: Primitive, values: Arrays, dims: Dims, *, eqn: JaxprEqn) -> Results:
    pairs = zip(values, dims, strict=True)
    first = [x if dim is None else lax.index_in_dim(x, 0, dim, False) for x, dim in pairs]
    return primitive.bind(*first, eqn=eqn), [None] * len(eqn.outvars)


def _lower(ctx: Any, *operands: Any, eqn: JaxprEqn) -> Any:
    """As JAX lowers the callback, under a condition; its order is that of our effect."""

    def guarded(calls: Array, *operands: Array) -> list[Array]:
        avals: list[Aval] = [var.aval for var in eqn.outvars]
        zeros = [jnp.zeros(aval.shape, aval.dtype) for aval in avals]
        return lax.cond(calls, lambda: bind_equation(eqn, operands), lambda: zeros)

    rule = mlir.lower_fun(guarded, multiple_results=True)
    if not is_ordered(eqn):
        return rule(ctx, *operands)
    (effect,) = eqn.effects
    tokens = mlir.TokenSet({effect: ctx.tokens_in.get(FIRST_IN_ORDER)})
    inner = ctx.replace(tokens_in=tokens)
    results = rule(inner, *operands)
    token = {FIRST_IN_ORDER: inner.tokens_out.get(effect)}
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet(token)))
    return results


first_callback_p = define("ipu_first_callback", _avals, several=True, effects=_effects, vmap=_vmap)
mlir.register_lowering(first_callback_p, _lower, cacheable=False)
