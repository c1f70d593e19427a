"""The arguments of recurrent layers, checked while tracing."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.checks.arrays import check, known
from ipujax.operators.rnn.activations import ACTIVATIONS


def check_dtype(dtype: Any, what: str) -> np.dtype[Any]:
    """A dtype that layers compute in (fact `rnn.dtype`)."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = ""
    if name not in ("float16", "float32"):
        raise check.refuse(f"{what} is {dtype!r}", "use jnp.float16 or jnp.float32")
    return np.dtype(name)


def check_activation(name: Any, argument: str) -> str:
    """The name of an activation; those of gates give values from 0 to 1, but for tanh."""
    names = [known for known in ACTIVATIONS if argument == "activation" or known != "relu"]
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


def check_parameters(
    params: Any, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype[Any], layer: str
) -> tuple[jax.Array, jax.Array]:
    """The kernel and the biases of a layer."""
    if not isinstance(params, Mapping) or set(params) != set(shapes):
        given = sorted(params) if isinstance(params, Mapping) else type(params).__name__
        raise check.refuse(
            f"the params of {layer} are {given}, but must be a dict of {sorted(shapes)}",
            "give what `build` returned",
        )
    arrays = {name: operand(params[name], dtype, f"params[{name!r}] of {layer}") for name in shapes}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise check.refuse(
                f"params[{name!r}] of {layer} has shape {list(arrays[name].shape)}, but these "
                f"inputs need {list(shape)}",
                "give what `build` returned for inputs of this shape",
            )
    return arrays["kernel"], arrays["biases"]


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
