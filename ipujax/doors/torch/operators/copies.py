"""Operators that return a tensor unchanged or in another dtype."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.doors.torch.operators.table import operator

_UNCHANGED = (
    "clone.default", "contiguous.default", "alias.default", "alias_copy.default", "lift.default",
    "lift_fresh.default", "lift_fresh_copy.default", "resolve_conj.default",
    "resolve_neg.default", "requires_grad_.default", "pin_memory.default", "_to_copy.default",
    "to.device", "to.dtype", "to.other", "to.dtype_layout", "to.prim_Device", "to.prim_dtype",
    "to.prim_other", "type_as.default", "chalf.default",
    *(f"_cast_{name}.default" for name in ("Byte", "Char", "Double", "Float", "Half", "Int",
                                           "Long", "Short")),
)  # fmt: skip
_DETACHED = ("detach.default", "detach_.default", "detach_copy.default", "data.default")
_ASSERTIONS = (
    "_assert_async.default", "_assert_async.msg", "_assert_tensor_metadata.default",
    "_assert_scalar.default", "sym_constrain_range.default",
    "sym_constrain_range_for_size.default", "_functional_assert_async.msg",
)  # fmt: skip


@operator(*(f"aten.{name}" for name in _UNCHANGED), takes_call=True)
def return_in_traced_dtype(call: Call, x: jax.Array, *_: object, **__: object) -> jax.Array:
    """Returns the tensor: its dtype is converted to the traced one, and layouts do not exist."""
    is_made_real = jnp.iscomplexobj(x) and not jnp.issubdtype(call.aval.dtype, jnp.complexfloating)
    return x.real if is_made_real else x


@operator(*(f"aten.{name}" for name in _DETACHED))
def detach(x: jax.Array) -> jax.Array:
    return jax.lax.stop_gradient(x)


@operator(*(f"aten.{name}" for name in _ASSERTIONS))
def ignore_assertion(*_: object, **__: object) -> None:
    """Ignores an assertion, which PyTorch has checked during the trace."""


@operator("aten.copy.default", takes_call=True)
def copy(call: Call, x: jax.Array, source: jax.Array, non_blocking: bool = False) -> jax.Array:
    return jnp.broadcast_to(return_in_traced_dtype(call, source), call.aval.shape)


@jax.custom_jvp
def zero_with_derivative_of(x: jax.Array) -> jax.Array:
    """Returns zeros that have the derivative of `x`.

    `x - stop_gradient(x)` would be NaN where x is infinite, and a floating-point fault.
    """
    return jnp.zeros_like(x)


@zero_with_derivative_of.defjvp
def _differentiate_zero(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return jnp.zeros_like(primals[0]), tangents[0]
