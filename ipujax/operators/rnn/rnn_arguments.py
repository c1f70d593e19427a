"""Checks of the arguments of recurrent layers, while tracing."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from ipujax.ground import HALF_OR_SINGLE, PyTree, check, parse_dtype, values_if_known
from ipujax.operators.rnn.gate_activations import ACTIVATIONS


def check_layer_dtype(dtype: DTypeLike, argument: str) -> np.dtype[np.generic]:
    """Returns a dtype that layers can compute in (fact `rnn.dtype`)."""
    parsed_dtype = parse_dtype(dtype)
    if parsed_dtype is None or parsed_dtype.name not in HALF_OR_SINGLE:
        raise check.value_error(f"{argument} is {dtype!r}", "use jnp.float16 or jnp.float32")
    return np.dtype(parsed_dtype.name)


def check_activation(activation: object, argument: str) -> str:
    """Returns the name of an activation; a function such as `jnp.tanh` stands for its name.

    Those of gates give values from 0 to 1, but for tanh.

    Raises:
      OperatorError: (a `ValueError`) for what is no activation.
    """
    names = [allowed for allowed in ACTIVATIONS if argument == "activation" or allowed != "relu"]
    name = getattr(activation, "__name__", activation) if callable(activation) else activation
    return check.require_one_of(name, names, argument)


def require_layer_operand(x: ArrayLike, dtype: DTypeLike, argument: str) -> jax.Array:
    """Returns an array of the layer's dtype; converts a value that is no JAX array."""
    dtype = np.dtype(dtype)
    if not isinstance(x, jax.Array):
        return jnp.asarray(x, dtype)
    if x.dtype != dtype:
        raise check.value_error(
            f"{argument} came as {x.dtype}, but the layer computes in {dtype.name}",
            f"cast with .astype(jnp.{dtype.name})",
        )
    return x


def is_within_sequence(seq_len: ArrayLike, steps: int, batch: int, layer: str) -> jax.Array:
    """Returns whether each step lies within its sequence, bool [time, batch, 1]."""
    lengths = jnp.asarray(seq_len)
    if lengths.shape != (batch,) or not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise check.value_error(
            f"the seq_len of {layer} is {lengths.dtype} {list(lengths.shape)}, but inputs have "
            f"{batch} sequences of {steps} time steps",
            f"give one integer for each sequence of the batch, [{batch}]; inputs are [time, batch, "
            "input_size], or with time_major=False [batch, time, input_size]",
        )
    values = values_if_known(seq_len)
    if values is not None and (np.any(values < 0) or np.any(values > steps)):
        raise check.value_error(
            f"the seq_len of {layer} has lengths from {values.min()} to {values.max()}, but "
            f"inputs have {steps} time steps",
            f"use lengths from 0 to {steps}",
        )
    return (jnp.arange(steps)[:, None] < lengths)[..., None]


def refuse_gradients(layer: str, results: PyTree) -> PyTree:
    """Returns results of a layer called with `training=False`; differentiating them raises."""
    # Made here, so that it names the line of the call and not that of the backward pass.
    error = check.value_error(
        f"{layer} was called with training=False, but its results are differentiated",
        "call it with training=True, or stop the gradient with jax.lax.stop_gradient",
    )
    return _return_without_gradient(error, results)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _return_without_gradient(error: Exception, results: PyTree) -> PyTree:
    return results


def _save_no_residuals(error: Exception, results: PyTree) -> tuple[object, None]:
    return results, None


def _refuse_gradient(error: Exception, residuals: None, cotangents: PyTree) -> PyTree:
    raise error


_return_without_gradient.defvjp(_save_no_residuals, _refuse_gradient)
