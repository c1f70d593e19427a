"""Operators that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ipujax.frontends.onnx.operators.table import operator

_UNARY: dict[str, Callable[[jax.Array], jax.Array]] = {
    "Identity": lambda x: x,
    "Relu": jax.nn.relu,
    "Sigmoid": jax.nn.sigmoid,
    "Sqrt": jnp.sqrt,
    "Tanh": jnp.tanh,
    "Exp": jnp.exp,
    "Neg": jnp.negative,
}

_BINARY: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "Add": jnp.add,
    "Mul": jnp.multiply,
    "Sub": jnp.subtract,
}

for _name, _function in (_UNARY | _BINARY).items():
    operator(_name)(_function)


@operator("Div")
def div(x: jax.Array, y: jax.Array) -> jax.Array:
    """Integers are rounded towards zero, as in C."""
    return jax.lax.div(*jnp.broadcast_arrays(x, y))
