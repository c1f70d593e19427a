"""PyTorch operators related to the gamma function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from ipujax.doors.graphs import Call
from ipujax.doors.torch.operators.table import operator, promote_arguments


@operator("aten.polygamma.default", "aten.special_polygamma.default", takes_call=True)
def polygamma_in_result_dtype(call: Call, n: int, x: jax.Array) -> jax.Array:
    return polygamma(n, x.astype(call.aval.dtype))


@operator(
    "aten.digamma.default",
    "aten.special_digamma.default",
    "aten.special_psi.default",
    takes_call=True,
)
@promote_arguments
def digamma(x: jax.Array) -> jax.Array:
    return polygamma(0, x)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def polygamma(n: int, x: jax.Array) -> jax.Array:
    """Computes the derivative of order `n` of digamma.

    JAX's is wrong for negative numbers, where it is reflected (Abramowitz and Stegun, 6.4.7).
    """
    if n == 0:
        return jnp.where(x == 0, -jnp.copysign(jnp.inf, x), lax.digamma(x))
    is_negative = x < 0
    mirrored = special.polygamma(n, jnp.where(is_negative, 1 - x, x))
    cotangent = _derivative_of_cotangent(n)(jnp.where(is_negative, x, 0.5))
    result = jnp.where(is_negative, (-1) ** n * mirrored - cotangent, mirrored)
    return jnp.where(x == 0, jnp.inf if n % 2 else -jnp.inf, result)


@polygamma.defjvp
def _polygamma_jvp(n: int, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    (x,), (tangent,) = primals, tangents
    return polygamma(n, x), polygamma(n + 1, x) * tangent


def _derivative_of_cotangent(n: int) -> Callable[[jax.Array], jax.Array]:
    """Returns the derivative of order `n` of `pi * cot(pi * x)`."""
    if n == 0:
        return lambda x: jnp.pi / jnp.tan(jnp.pi * x)
    lower_derivative = _derivative_of_cotangent(n - 1)
    return lambda x: jax.jvp(lower_derivative, (x,), (jnp.ones_like(x),))[1]
