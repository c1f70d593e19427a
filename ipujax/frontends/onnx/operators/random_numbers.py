"""Random numbers and dropout.

They come from the key that the model is given, or from the operator's seed where it has one: not
the numbers that other libraries make of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from onnx import TensorProto, helper

from ipujax.doors.graphs import Call
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.dtypes import dtype_of
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array


def _key(call: Call, seed: float | None) -> Array:
    if seed is None:
        return call.key
    return jax.random.key(int(np.float32(seed).view(np.int32)))


@operator("RandomNormal", folded=False)
def random_normal(
    call: Call,
    dtype: int = TensorProto.FLOAT,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    shape: Sequence[int] = (),
) -> Array:
    return mean + scale * jax.random.normal(_key(call, seed), tuple(shape), dtype_of(dtype))


@operator("RandomUniform", folded=False)
def random_uniform(
    call: Call,
    dtype: int = TensorProto.FLOAT,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    shape: Sequence[int] = (),
) -> Array:
    kind = dtype_of(dtype)
    return jax.random.uniform(_key(call, seed), tuple(shape), kind, low, high)


def _like(x: Any, dtype: int | None) -> dict[str, Any]:
    """The shape of an array, and its type where no other is told."""
    return {"shape": np.shape(x), "dtype": dtype or helper.np_dtype_to_tensor_dtype(x.dtype)}


@operator("RandomNormalLike", folded=False)
def random_normal_like(call: Call, x: Array, dtype: int | None = None, **attributes: Any) -> Array:
    return random_normal(call, **_like(x, dtype), **attributes)


@operator("RandomUniformLike", folded=False)
def random_uniform_like(call: Call, x: Array, dtype: int | None = None, **attributes: Any) -> Array:
    return random_uniform(call, **_like(x, dtype), **attributes)


@operator("Bernoulli", 15, folded=False)
def bernoulli(call: Call, p: Array, dtype: int | None = None, seed: float | None = None) -> Array:
    drawn = jax.random.bernoulli(_key(call, seed), jnp.asarray(p))
    return drawn.astype(p.dtype if dtype is None else dtype_of(dtype))


@operator("Multinomial", 7, folded=False)
def multinomial(
    call: Call,
    logits: Array,
    dtype: int = TensorProto.INT32,
    sample_size: int = 1,
    seed: float | None = None,
) -> Array:
    """Classes [batch, sample_size] from the logarithms of what they are likely."""
    logits = jnp.asarray(logits)
    drawn = jax.random.categorical(
        _key(call, seed), logits[:, None], shape=(len(logits), sample_size)
    )
    return drawn.astype(dtype_of(dtype))


@operator("Dropout", 12, static=("ratio", "training_mode"), folded=False)
def dropout(
    call: Call,
    x: Array,
    ratio: Any = None,
    training_mode: Any = None,
    seed: int | None = None,
) -> tuple[Array, Array]:
    """The result, and a mask of what is kept."""
    share = _share(0.5 if ratio is None else float(ratio))
    if training_mode is None or not np.all(training_mode) or share == 0:
        return jnp.asarray(x), jnp.ones(x.shape, bool)
    kept = jax.random.bernoulli(_key(call, seed), 1 - share, x.shape)
    return jnp.where(kept, x / (1 - share), 0).astype(x.dtype), kept


@operator("Dropout", 10)
def dropout_10(x: Array, ratio: float = 0.5) -> tuple[Array, Array]:
    """Up to opset 11 it only stands where dropout was while the model was trained."""
    _share(ratio)
    return x, jnp.ones(x.shape, bool)


@operator("Dropout", 7)
def dropout_7(x: Array, ratio: float = 0.5) -> tuple[Array, Array]:
    """As of opset 10; the mask has the type of the input."""
    _share(ratio)
    return x, jnp.ones_like(x)


@operator("ai.graphcore.ShapedDropout", folded=False)
def shaped_dropout(
    call: Call, x: Array, shape: Sequence[int], ratio: float = 0.5, training: bool = False
) -> Array:
    """Drops what broadcasts from a shape as one; `training` is said by who trains the model."""
    _share(ratio)
    try:
        fits = np.broadcast_shapes(x.shape, tuple(shape)) == x.shape
    except ValueError:
        fits = False
    if not fits:
        raise check.refuse(
            "ShapedDropout: incompatible input tensor and dropout shape. "
            f"{tuple(shape)} does not broadcast to {x.shape}",
            "give a shape of the same sizes, or of ones",
        )
    if not training:
        return jnp.asarray(x)
    kept = jax.random.bernoulli(call.key, 1 - ratio, tuple(shape))
    return jnp.where(kept, x / (1 - ratio), 0).astype(x.dtype)


def _share(ratio: float) -> float:
    """How much is dropped.

    Raises:
      FrontendError: (a `ValueError`) all of it, or more.
    """
    if not 0 <= ratio < 1:
        raise check.refuse(
            f"ratio value {ratio:g} is not valid. Please use a value in the interval [0,1)"
        )
    return ratio
