"""The gamma function's relatives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from ipujax.doors.graphs import Call
from ipujax.frontends.pytorch.operators.table import operator, promoted


@operator("aten.polygamma.default", "aten.special_polygamma.default")
def polygamma_of(call: Call, n: int, x: jax.Array) -> jax.Array:
    return polygamma(n, x.astype(call.aval.dtype))


@operator("aten.digamma.default", "aten.special_digamma.default", "aten.special_psi.default")
@promoted
def digamma(x: jax.Array) -> jax.Array:
    return polygamma(0, x)


@operator("aten.mvlgamma.default", "aten.special_multigammaln.default")
@promoted
def mvlgamma(x: jax.Array, p: int) -> jax.Array:
    return special.multigammaln(x, p)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def polygamma(n: int, x: jax.Array) -> jax.Array:
    """The derivative of order `n` of digamma.

    That of JAX is wrong for negative numbers; there it is mirrored (Abramowitz and Stegun, 6.4.7).
    """
    if n == 0:
        return jnp.where(x == 0, -jnp.copysign(jnp.inf, x), lax.digamma(x))
    is_negative = x < 0
    mirrored = special.polygamma(n, jnp.where(is_negative, 1 - x, x))
    cotangent = _derivative(n)(jnp.where(is_negative, x, 0.5))
    result = jnp.where(is_negative, (-1) ** n * mirrored - cotangent, mirrored)
    return jnp.where(x == 0, jnp.inf if n % 2 else -jnp.inf, result)


@polygamma.defjvp
def _polygamma_jvp(n: int, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    (x,), (tangent,) = primals, tangents
    return polygamma(n, x), polygamma(n + 1, x) * tangent


def _derivative(n: int) -> Callable[[jax.Array], jax.Array]:
    """Of `pi * cot(pi * x)`."""
    if n == 0:
        return lambda x: jnp.pi / jnp.tan(jnp.pi * x)
    before = _derivative(n - 1)
    return lambda x: jax.jvp(before, (x,), (jnp.ones_like(x),))[1]
