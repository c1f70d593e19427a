"""Normalizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from onnx import TensorProto

from ipujax.doors.graphs import Call
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.dtypes import dtype_of
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array
Axes = Sequence[int]
Normalize = Callable[..., tuple[Array, ...]]


def _wide(x: Array) -> Array:
    """In at least 32 bits: statistics of 16 are too coarse."""
    return jnp.asarray(x, jnp.promote_types(x.dtype, jnp.float32))


def _centred(x: Array, axes: Axes) -> tuple[Array, Array, Array]:
    """The differences from the mean, the mean, and the biased variance, with `keepdims`."""
    mean = jnp.mean(x, tuple(axes), keepdims=True)
    differences = x - mean
    return differences, mean, jnp.mean(jnp.square(differences), tuple(axes), keepdims=True)


def _by_channel(values: Array, x: Array) -> Array:
    """Values of the channels, which are dimension 1, to be combined with an array."""
    return jnp.reshape(_wide(values), (1, -1, *[1] * (x.ndim - 2)))


def _check_channels(x: Array, **others: Array) -> None:
    """Refuses what is not of the channels: a single number would be taken for all of them."""
    wanted = list(x.shape[1:2])
    for name, other in others.items():
        if list(other.shape) != wanted:
            raise check.refuse(
                f"the expected shape of {name} is to be {wanted}, that of the channels of "
                f"{list(x.shape)}, and not {list(other.shape)}",
                "give a number for each channel",
            )


@operator("BatchNormalization", 9)
def batch_normalization_9(call: Call, *inputs: Array, **attributes: float) -> tuple[Array, ...]:
    """It trains where the node asks for moving statistics."""
    is_training = len(call.node.results) > 1
    return normalization(is_training=is_training)(*inputs, **attributes)


@operator("BatchNormalization", 7)
def batch_normalization_7(
    call: Call, *inputs: Array, spatial: int = 1, **attributes: Any
) -> tuple[Array, ...]:
    """Without `spatial`, each element of an image has statistics of its own."""
    if spatial:
        return batch_normalization_9(call, *inputs, **attributes)
    is_training = len(call.node.results) > 1
    return normalize_elements(normalization(is_training=is_training), *inputs, **attributes)


def normalization(*, is_training: bool) -> Normalize:
    """Returns the function of a batch normalization before opset 14."""
    return train_batch_normalization if is_training else batch_normalization


def normalize_elements(
    normalize: Normalize, x: Array, *others: Array, **attributes: Any
) -> tuple[Array, ...]:
    """Normalizes each element of an image by statistics of its own.

    Args:
      normalize: `batch_normalization` or `train_batch_normalization`.
      x: [batch, *image].
      *others: scale, bias, mean and variance, [*image].
      **attributes: those of `normalize`.
    """
    flat = jnp.reshape(x, (x.shape[0], -1))
    result, *statistics = normalize(flat, *map(jnp.ravel, others), **attributes)
    return result.reshape(x.shape), *(s.reshape(x.shape[1:]) for s in statistics)


def train_batch_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> tuple[Array, ...]:
    """Returns the result, the moving mean and variance, and the batch's own, as before opset 14."""
    results = batch_normalization(x, scale, bias, mean, variance, epsilon, momentum, 1)
    _, own_mean, own_variance = _centred(_wide(x), (0, *range(2, x.ndim)))
    return (*results, own_mean.reshape(-1), own_variance.reshape(-1))


@operator("BatchNormalization", 14)
def batch_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[Array, ...]:
    """The result, and in training the moving statistics; `momentum` is the old ones' part."""
    _check_channels(x, scale=scale, B=bias, mean=mean, var=variance)
    wide = _wide(x)
    if training_mode:
        differences, own_mean, own_variance = _centred(wide, (0, *range(2, x.ndim)))
    else:
        own_mean, own_variance = _by_channel(mean, x), _by_channel(variance, x)
        differences = wide - own_mean
    normal = differences * jax.lax.rsqrt(own_variance + epsilon)
    result = (normal * _by_channel(scale, x) + _by_channel(bias, x)).astype(x.dtype)
    if not training_mode:
        return (result,)
    moved = [
        (old * momentum + new.reshape(-1) * (1 - momentum)).astype(old.dtype)
        for old, new in ((mean, own_mean), (variance, own_variance))
    ]
    return result, *moved


@operator("InstanceNormalization")
def instance_normalization(x: Array, scale: Array, bias: Array, epsilon: float = 1e-5) -> Array:
    differences, _, variance = _centred(_wide(x), range(2, x.ndim))
    normal = differences * jax.lax.rsqrt(variance + epsilon)
    return (normal * _by_channel(scale, x) + _by_channel(bias, x)).astype(x.dtype)


@operator("LayerNormalization", 17)
def layer_normalization(
    x: Array,
    scale: Array,
    bias: Array | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = TensorProto.FLOAT,
) -> tuple[Array, Array, Array]:
    """The result, the mean and the inverse of the deviation."""
    wide = jnp.asarray(x, dtype_of(stash_type))
    differences, mean, variance = _centred(wide, range(axis % x.ndim, x.ndim))
    inverse = jax.lax.rsqrt(variance + epsilon)
    result = (differences * inverse).astype(x.dtype) * scale
    return (result if bias is None else result + bias), mean, inverse


@operator("RMSNormalization", 23)
def rms_normalization(
    x: Array,
    scale: Array,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = TensorProto.FLOAT,
) -> Array:
    wide = jnp.asarray(x, dtype_of(stash_type))
    square = jnp.mean(jnp.square(wide), tuple(range(axis % x.ndim, x.ndim)), keepdims=True)
    return ((wide * jax.lax.rsqrt(square + epsilon)).astype(x.dtype) * scale).astype(scale.dtype)


@operator("GroupNormalization", 18)
def group_normalization_18(
    x: Array, scale: Array, bias: Array, epsilon: float = 1e-5, num_groups: int = 1
) -> Array:
    """Scale and bias are of groups."""
    each = x.shape[1] // num_groups
    return group_normalization(
        x, jnp.repeat(scale, each), jnp.repeat(bias, each), epsilon, num_groups
    )


@operator("GroupNormalization", 21)
def group_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    epsilon: float = 1e-5,
    num_groups: int = 1,
    stash_type: int = TensorProto.FLOAT,
) -> Array:
    """Scale and bias are of channels."""
    wide = jnp.asarray(x, dtype_of(stash_type)).reshape(x.shape[0], num_groups, -1)
    differences, _, variance = _centred(wide, (2,))
    normal = (differences * jax.lax.rsqrt(variance + epsilon)).reshape(x.shape).astype(x.dtype)
    shape = (1, -1, *[1] * (x.ndim - 2))
    return normal * jnp.reshape(scale, shape) + jnp.reshape(bias, shape)


@operator("MeanVarianceNormalization", 9)
def mean_variance_normalization(x: Array, axes: Axes = (0, 2, 3)) -> Array:
    differences, _, variance = _centred(_wide(x), axes)
    return (differences / (jnp.sqrt(variance) + 1e-9)).astype(x.dtype)


@operator("LRN")
def lrn(
    x: Array, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1
) -> Array:
    """Divides by what the channels around each one hold."""
    before = (size - 1) // 2
    rest = x.ndim - 2
    squares = jnp.square(_wide(x))
    squares = jax.lax.reduce_window(
        squares, np.zeros((), squares.dtype), jax.lax.add, (1, size, *[1] * rest), (1,) * x.ndim,
        ((0, 0), (before, size - 1 - before), *[(0, 0)] * rest),
    )  # fmt: skip
    return (x / (bias + alpha / size * squares) ** beta).astype(x.dtype)
