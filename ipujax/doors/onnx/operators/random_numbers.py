"""ONNX random numbers and dropout.

Random numbers come from the model's key, or from the operator's seed if it has one. They differ
from those that other libraries draw from the same seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from onnx import TensorProto, helper

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.dtypes import dtype_of_onnx_type
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array


def _key_of_seed(call: Call, seed: float | None) -> Array:
    if seed is None:
        return call.key
    return jax.random.key(int(np.float32(seed).view(np.int32)))


@operator("RandomNormal", folded=False, takes_call=True)
def random_normal(
    call: Call,
    dtype: int = TensorProto.FLOAT,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    shape: Sequence[int] = (),
) -> Array:
    return mean + scale * jax.random.normal(
        _key_of_seed(call, seed), tuple(shape), dtype_of_onnx_type(dtype)
    )


@operator("RandomUniform", folded=False, takes_call=True)
def random_uniform(
    call: Call,
    dtype: int = TensorProto.FLOAT,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    shape: Sequence[int] = (),
) -> Array:
    jax_dtype = dtype_of_onnx_type(dtype)
    return jax.random.uniform(_key_of_seed(call, seed), tuple(shape), jax_dtype, low, high)


def _shape_and_type_of(x: Operand, dtype: int | None) -> dict[str, object]:
    """Returns the shape of an array, and its ONNX type unless another type is given."""
    return {"shape": np.shape(x), "dtype": dtype or helper.np_dtype_to_tensor_dtype(x.dtype)}


@operator("RandomNormalLike", folded=False, takes_call=True)
def random_normal_like(
    call: Call, x: Array, dtype: int | None = None, **attributes: object
) -> Array:
    return random_normal(call, **_shape_and_type_of(x, dtype), **attributes)


@operator("RandomUniformLike", folded=False, takes_call=True)
def random_uniform_like(
    call: Call, x: Array, dtype: int | None = None, **attributes: object
) -> Array:
    return random_uniform(call, **_shape_and_type_of(x, dtype), **attributes)


@operator("Bernoulli", 15, folded=False, takes_call=True)
def bernoulli(call: Call, p: Array, dtype: int | None = None, seed: float | None = None) -> Array:
    drawn = jax.random.bernoulli(_key_of_seed(call, seed), jnp.asarray(p))
    return drawn.astype(p.dtype if dtype is None else dtype_of_onnx_type(dtype))


@operator("Multinomial", 7, folded=False, takes_call=True)
def multinomial(
    call: Call,
    logits: Array,
    dtype: int = TensorProto.INT32,
    sample_size: int = 1,
    seed: float | None = None,
) -> Array:
    """Draws classes [batch, sample_size] from logarithms of their probabilities."""
    logits = jnp.asarray(logits)
    drawn = jax.random.categorical(
        _key_of_seed(call, seed), logits[:, None], shape=(len(logits), sample_size)
    )
    return drawn.astype(dtype_of_onnx_type(dtype))


@operator("Dropout", 12, static=("ratio", "training_mode"), folded=False, takes_call=True)
def dropout(
    call: Call,
    x: Array,
    ratio: Operand = None,
    training_mode: Operand = None,
    seed: int | None = None,
) -> tuple[Array, Array]:
    """Drops elements; returns the result and a mask of the kept elements."""
    drop_ratio = _check_drop_ratio(0.5 if ratio is None else float(ratio))
    if training_mode is None or not np.all(training_mode) or drop_ratio == 0:
        return jnp.asarray(x), jnp.ones(x.shape, bool)
    is_kept = jax.random.bernoulli(_key_of_seed(call, seed), 1 - drop_ratio, x.shape)
    return jnp.where(is_kept, x / (1 - drop_ratio), 0).astype(x.dtype), is_kept


@operator("Dropout", 10)
def dropout_10_without_training(x: Array, ratio: float = 0.5) -> tuple[Array, Array]:
    """Returns the input: up to opset 11, Dropout is active only in training frameworks."""
    _check_drop_ratio(ratio)
    return x, jnp.ones(x.shape, bool)


@operator("Dropout", 7)
def dropout_7_without_training(x: Array, ratio: float = 0.5) -> tuple[Array, Array]:
    """Returns the input and a mask of ones in its dtype."""
    _check_drop_ratio(ratio)
    return x, jnp.ones_like(x)


@operator("ai.graphcore.ShapedDropout", folded=False, takes_call=True)
def shaped_dropout(
    call: Call, x: Array, shape: Sequence[int], ratio: float = 0.5, training: bool = False
) -> Array:
    """Drops elements by a mask of a shape that broadcasts, if `training` is set."""
    _check_drop_ratio(ratio)
    try:
        is_broadcastable = np.broadcast_shapes(x.shape, tuple(shape)) == x.shape
    except ValueError:
        is_broadcastable = False
    if not is_broadcastable:
        raise check.value_error(
            "ShapedDropout: incompatible input tensor and dropout shape. "
            f"{tuple(shape)} does not broadcast to {x.shape}",
            "give a shape of the same sizes, or of ones",
        )
    if not training:
        return jnp.asarray(x)
    is_kept = jax.random.bernoulli(call.key, 1 - ratio, tuple(shape))
    return jnp.where(is_kept, x / (1 - ratio), 0).astype(x.dtype)


def _check_drop_ratio(ratio: float) -> float:
    """Returns the ratio of dropped elements after a check.

    Raises:
      FrontendError: (a `ValueError`) it is negative, or one or more.
    """
    if not 0 <= ratio < 1:
        raise check.value_error(
            f"ratio value {ratio:g} is not valid. Please use a value in the interval [0,1)"
        )
    return ratio
