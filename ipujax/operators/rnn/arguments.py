"""The arguments of recurrent layers, checked while tracing."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.checks.arguments import HALF_OR_SINGLE, dtype_of
from ipujax.checks.arrays import check, known
from ipujax.operators.rnn.activations import ACTIVATIONS


def check_dtype(dtype: Any, what: str) -> np.dtype[Any]:
    """A dtype that layers compute in (fact `rnn.dtype`)."""
    known = dtype_of(dtype)
    if known is None or known.name not in HALF_OR_SINGLE:
        raise check.refuse(f"{what} is {dtype!r}", "use jnp.float16 or jnp.float32")
    return np.dtype(known.name)


def activation_name(given: Any, argument: str) -> str:
    """The name of an activation; a function, such as `jnp.tanh`, stands for its own name.

    Those of gates give values from 0 to 1, but for tanh.

    Raises:
      OperatorError: (a `ValueError`) for what is no activation.
    """
    names = [known for known in ACTIVATIONS if argument == "activation" or known != "relu"]
    name = getattr(given, "__name__", given) if callable(given) else given
    return check.one_of(name, names, argument)


def operand(x: Any, dtype: np.dtype[Any], what: str) -> jax.Array:
    """An array of a layer's dtype; what is no JAX array yet is converted."""
    if not isinstance(x, jax.Array):
        return jnp.asarray(x, dtype)
    if x.dtype != dtype:
        raise check.refuse(
            f"{what} came as {x.dtype}, but the layer computes in {dtype.name}",
            f"cast with .astype(jnp.{dtype.name})",
        )
    return x


def live_steps(seq_len: Any, steps: int, batch: int, layer: str) -> jax.Array:
    """Which steps lie within their sequence, bool [time, batch, 1]."""
    lengths = jnp.asarray(seq_len)
    if lengths.shape != (batch,) or not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise check.refuse(
            f"the seq_len of {layer} is {lengths.dtype} {list(lengths.shape)}, but inputs have "
            f"{batch} sequences of {steps} time steps",
            f"give one integer for each sequence of the batch, [{batch}]; inputs are [time, batch, "
            "input_size], or with time_major=False [batch, time, input_size]",
        )
    values = known(seq_len)
    if values is not None and (np.any(values < 0) or np.any(values > steps)):
        raise check.refuse(
            f"the seq_len of {layer} has lengths from {values.min()} to {values.max()}, but "
            f"inputs have {steps} time steps",
            f"use lengths from 0 to {steps}",
        )
    return (jnp.arange(steps)[:, None] < lengths)[..., None]


def inference_only(layer: str, results: Any) -> Any:
    """The results of a layer that was called with `training=False`: no gradient may reach them."""
    # Made here, so that it names the line of the call and not that of the backward pass.
    error = check.refuse(
        f"{layer} was called with training=False, but its results are differentiated",
        "call it with training=True, or stop the gradient with jax.lax.stop_gradient",
    )
    return _without_gradient(error, results)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _without_gradient(error: Exception, results: Any) -> Any:
    return results


def _keep_nothing(error: Exception, results: Any) -> tuple[Any, None]:
    return results, None


def _refuse_gradient(error: Exception, kept: None, cotangents: Any) -> Any:
    raise error


_without_gradient.defvjp(_keep_nothing, _refuse_gradient)
