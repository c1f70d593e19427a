"""ONNX normalization operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from onnx import TensorProto

from ipujax.doors.graphs import Call
from ipujax.doors.kernels import deviations_from_mean, shape_per_channel, widen_for_statistics
from ipujax.doors.models import check
from ipujax.doors.onnx.dtypes import dtype_of_onnx_type
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array
Axes = Sequence[int]
Normalize = Callable[..., tuple[Array, ...]]


def _reshape_to_channels(values: Array, x: Array) -> Array:
    """Returns one value for each channel (axis 1), shaped to broadcast with an array."""
    return shape_per_channel(widen_for_statistics(values), x.ndim)


def _check_one_per_channel(x: Array, **parameters: Array) -> None:
    """Checks that each array has one number for each channel: one alone would broadcast."""
    channel_shape = list(x.shape[1:2])
    for name, parameter in parameters.items():
        if list(parameter.shape) != channel_shape:
            raise check.value_error(
                f"the expected shape of {name} is to be {channel_shape}, that of the channels of "
                f"{list(x.shape)}, and not {list(parameter.shape)}",
                "give a number for each channel",
            )


@operator("BatchNormalization", 9, takes_call=True)
def batch_normalization_9(call: Call, *inputs: Array, **attributes: float) -> tuple[Array, ...]:
    """Normalizes a batch; trains if the node returns moving statistics."""
    is_training = len(call.node.results) > 1
    return select_batch_normalization(is_training=is_training)(*inputs, **attributes)


@operator("BatchNormalization", 7, takes_call=True)
def batch_normalization_7(
    call: Call, *inputs: Array, spatial: int = 1, **attributes: object
) -> tuple[Array, ...]:
    """Normalizes a batch; without `spatial`, each element has its own statistics."""
    if spatial:
        return batch_normalization_9(call, *inputs, **attributes)
    is_training = len(call.node.results) > 1
    return normalize_elements(
        select_batch_normalization(is_training=is_training), *inputs, **attributes
    )


def select_batch_normalization(*, is_training: bool) -> Normalize:
    """Returns the function of a batch normalization before opset 14."""
    return train_batch_normalization if is_training else batch_normalization


def normalize_elements(
    normalize: Normalize, x: Array, *parameters: Array, **attributes: object
) -> tuple[Array, ...]:
    """Normalizes each element of an image by its own statistics over the batch.

    Args:
      normalize: `batch_normalization` or `train_batch_normalization`.
      x: [batch, *image].
      *parameters: scale, bias, mean and variance, [*image].
      **attributes: those of `normalize`.
    """
    flat = jnp.reshape(x, (x.shape[0], -1))
    result, *statistics = normalize(flat, *map(jnp.ravel, parameters), **attributes)
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
    """Returns the result, moving statistics and batch statistics, as before opset 14."""
    results = batch_normalization(x, scale, bias, mean, variance, epsilon, momentum, 1)
    _, batch_mean, batch_variance = deviations_from_mean(
        widen_for_statistics(x), (0, *range(2, x.ndim))
    )
    return (*results, batch_mean.reshape(-1), batch_variance.reshape(-1))


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
    """Normalizes a batch; returns also the moving statistics in training."""
    _check_one_per_channel(x, scale=scale, B=bias, mean=mean, var=variance)
    wide_x = widen_for_statistics(x)
    if training_mode:
        differences, used_mean, used_variance = deviations_from_mean(wide_x, (0, *range(2, x.ndim)))
    else:
        used_mean, used_variance = _reshape_to_channels(mean, x), _reshape_to_channels(variance, x)
        differences = wide_x - used_mean
    normal = differences * jax.lax.rsqrt(used_variance + epsilon)
    result = (normal * _reshape_to_channels(scale, x) + _reshape_to_channels(bias, x)).astype(
        x.dtype
    )
    if not training_mode:
        return (result,)
    moving_statistics = [
        (old * momentum + new.reshape(-1) * (1 - momentum)).astype(old.dtype)
        for old, new in ((mean, used_mean), (variance, used_variance))
    ]
    return result, *moving_statistics


@operator("InstanceNormalization")
def instance_normalization(x: Array, scale: Array, bias: Array, epsilon: float = 1e-5) -> Array:
    differences, _, variance = deviations_from_mean(widen_for_statistics(x), range(2, x.ndim))
    normal = differences * jax.lax.rsqrt(variance + epsilon)
    return (normal * _reshape_to_channels(scale, x) + _reshape_to_channels(bias, x)).astype(x.dtype)


@operator("LayerNormalization", 17)
def layer_normalization(
    x: Array,
    scale: Array,
    bias: Array | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = TensorProto.FLOAT,
) -> tuple[Array, Array, Array]:
    """Returns the normalized array, the mean and the inverse of the deviation."""
    wide = jnp.asarray(x, dtype_of_onnx_type(stash_type))
    differences, mean, variance = deviations_from_mean(wide, range(axis % x.ndim, x.ndim))
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
    wide = jnp.asarray(x, dtype_of_onnx_type(stash_type))
    square = jnp.mean(jnp.square(wide), tuple(range(axis % x.ndim, x.ndim)), keepdims=True)
    return ((wide * jax.lax.rsqrt(square + epsilon)).astype(x.dtype) * scale).astype(scale.dtype)


@operator("GroupNormalization", 18)
def group_normalization_18(
    x: Array, scale: Array, bias: Array, epsilon: float = 1e-5, num_groups: int = 1
) -> Array:
    """Normalizes groups of channels; scale and bias are of groups."""
    channels_per_group = x.shape[1] // num_groups
    return group_normalization(
        x,
        jnp.repeat(scale, channels_per_group),
        jnp.repeat(bias, channels_per_group),
        epsilon,
        num_groups,
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
    """Normalizes groups of channels; scale and bias are of channels."""
    wide = jnp.asarray(x, dtype_of_onnx_type(stash_type)).reshape(x.shape[0], num_groups, -1)
    differences, _, variance = deviations_from_mean(wide, (2,))
    normal = (differences * jax.lax.rsqrt(variance + epsilon)).reshape(x.shape).astype(x.dtype)
    shape = (1, -1, *[1] * (x.ndim - 2))
    return normal * jnp.reshape(scale, shape) + jnp.reshape(bias, shape)


@operator("MeanVarianceNormalization", 9)
def mean_variance_normalization(x: Array, axes: Axes = (0, 2, 3)) -> Array:
    differences, _, variance = deviations_from_mean(widen_for_statistics(x), axes)
    return (differences / (jnp.sqrt(variance) + 1e-9)).astype(x.dtype)


@operator("LRN")
def lrn(
    x: Array, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1
) -> Array:
    """Divides each element by the squares of neighbouring channels (local response)."""
    channels_before = (size - 1) // 2
    spatial_rank = x.ndim - 2
    squares = jnp.square(widen_for_statistics(x))
    squares = jax.lax.reduce_window(
        squares, np.zeros((), squares.dtype), jax.lax.add,
        (1, size, *[1] * spatial_rank), (1,) * x.ndim,
        ((0, 0), (channels_before, size - 1 - channels_before), *[(0, 0)] * spatial_rank),
    )  # fmt: skip
    return (x / (bias + alpha / size * squares) ** beta).astype(x.dtype)
