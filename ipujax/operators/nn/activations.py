"""Activation functions of Popnn."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from ipujax.ground import check


@check.guard
def gelu(x: ArrayLike, approximate: bool = True, name: str | None = None) -> jax.Array:
    """Computes the Gaussian error linear unit (seed 001, 18.14.7; facts nn.gelu_tanh, nn.gelu_erf).

    float16 is computed in float32, where the cube of any float16 number is finite.

    Args:
      x: floating-point numbers of any shape.
      approximate: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) if true, else
        0.5 x (1 + erf(x / sqrt(2))).
      name: a named scope for the operation.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      ConfigTypeError: (a `TypeError`) `approximate` is no bool.
      OperatorError: (a `ValueError`) `x` holds no floating-point numbers.
    """
    array = check.require_floats(x, "the operand of gelu")
    is_approximate = check.require_flag(approximate, "`approximate` of gelu")
    with check.operator_scope(name):
        wide = array.astype(jnp.promote_types(array.dtype, jnp.float32))
        return jax.nn.gelu(wide, is_approximate).astype(array.dtype)


@check.guard
def swish(x: ArrayLike, name: str | None = None) -> jax.Array:
    """Computes x sigmoid(x) (seed 001, 18.14.7; fact nn.swish).

    Args:
      x: floating-point numbers of any shape.
      name: a named scope for the operation.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      OperatorError: (a `ValueError`) `x` holds no floating-point numbers.
    """
    array = check.require_floats(x, "the operand of swish")
    with check.operator_scope(name):
        return array * jax.nn.sigmoid(array)


@check.guard
def hard_sigmoid(x: ArrayLike, name: str | None = None) -> jax.Array:
    """Computes 0.2 x + 0.5, clipped to [0, 1] (seed 001, 18.14.7; the slope is Popnn's).

    Its derivative is 0.2 from -2.5 to 2.5, both included, and 0 beyond.

    Args:
      x: floating-point numbers of any shape.
      name: a named scope for the operation.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      OperatorError: (a `ValueError`) `x` holds no floating-point numbers.
    """
    array = check.require_floats(x, "the operand of hard_sigmoid")
    with check.operator_scope(name):
        line = 0.2 * array + 0.5
        flat = jnp.clip(lax.stop_gradient(line), 0.0, 1.0)
        return jnp.where(jnp.abs(array) > 2.5, flat, line)
