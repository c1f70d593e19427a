"""PyTorch normalization operators and their moving statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.kernels import deviations_from_mean, shape_per_channel, widen_for_statistics
from ipujax.doors.torch.operators.table import operator

Array = jax.Array
Optional = jax.Array | None


def _scale_and_shift(normal: Array, weight: Optional, bias: Optional) -> Array:
    """Scales and shifts an array by channel."""
    normal = normal if weight is None else normal * shape_per_channel(weight, normal.ndim)
    return normal if bias is None else normal + shape_per_channel(bias, normal.ndim)


def _normalize_over_axes(
    x: Array, axes: Sequence[int], eps: float
) -> tuple[Array, Array, Array, Array]:
    """Normalizes over axes; returns also the mean, biased variance and factor, `keepdims`."""
    differences, mean, variance = deviations_from_mean(widen_for_statistics(x), axes)
    factor = jax.lax.rsqrt(variance + eps)
    return differences * factor, mean, variance, factor


def _update_moving_average(old: Array, new: Array, momentum: float) -> Array:
    return jax.lax.stop_gradient(old + momentum * (new - old))


def _unbias_variance(variance: Array, size: int) -> Array:
    return variance * (size / max(size - 1, 1))


@operator("aten.batch_norm.default")
def batch_norm(
    x: Array,
    weight: Optional,
    bias: Optional,
    mean: Optional,
    variance: Optional,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Operand:
    """Normalizes a batch; returns also the moving statistics if they are given."""
    result, _, _, new_mean, new_variance = _batch_norm(
        x, weight, bias, mean, variance, training, momentum, eps
    )
    if mean is None or variance is None:
        return result
    return result, new_mean, new_variance


@operator("aten._native_batch_norm_legit_functional.default")
def _batch_norm(
    x: Array,
    weight: Optional,
    bias: Optional,
    mean: Optional,
    variance: Optional,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Operand, ...]:
    """Returns the normalized batch, its statistics and the moving statistics."""
    if not training and mean is not None and variance is not None:
        factor = jax.lax.rsqrt(widen_for_statistics(variance) + eps)
        differences = widen_for_statistics(x) - shape_per_channel(
            widen_for_statistics(mean), x.ndim
        )
        normal = differences * shape_per_channel(factor, x.ndim)
        empty = jnp.zeros((0,), normal.dtype)
        return _scale_and_shift(normal, weight, bias), empty, empty, mean, variance
    normal, batch_mean, batch_variance, factor = _normalize_over_axes(
        x, (0, *range(2, x.ndim)), eps
    )
    if mean is not None and variance is not None:
        size = x.size // max(batch_mean.size, 1)
        mean = _update_moving_average(mean, batch_mean.reshape(-1), momentum)
        variance = _update_moving_average(
            variance, _unbias_variance(batch_variance.reshape(-1), size), momentum
        )
    result = _scale_and_shift(normal, weight, bias)
    return result, batch_mean.reshape(-1), factor.reshape(-1), mean, variance


@operator("aten._batch_norm_with_update_functional.default")
def batch_norm_with_update(
    x: Array, weight: Optional, bias: Optional, mean: Array, variance: Array, *args: float
) -> tuple[Operand, ...]:
    """Normalizes a batch in training; cuDNN's reserved space is empty."""
    *results, mean, variance = _batch_norm(x, weight, bias, mean, variance, True, *args)
    return *results, jnp.zeros((0,), jnp.uint8), mean, variance


@operator("aten.native_batch_norm.default")
def native_batch_norm(x: Array, *args: Operand) -> tuple[Operand, ...]:
    """Normalizes a batch in evaluation: other uses have been made functional."""
    return _batch_norm(x, *args)[:3]


@operator("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    x: Array, weight: Optional, bias: Optional, training: bool, momentum: float, eps: float
) -> tuple[Operand, ...]:
    return _batch_norm(x, weight, bias, None, None, training, momentum, eps)[:3]


@operator("aten._native_batch_norm_legit_no_training.default")
def batch_norm_in_evaluation(
    x: Array, weight: Optional, bias: Optional, mean: Array, variance: Array, *args: float
) -> tuple[Operand, ...]:
    return _batch_norm(x, weight, bias, mean, variance, False, *args)[:3]


@operator("aten.instance_norm.default")
def instance_norm(
    x: Array,
    weight: Optional,
    bias: Optional,
    mean: Optional,
    variance: Optional,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Operand:
    """Normalizes each sample; returns also the moving statistics if they are given."""
    if not use_input_stats:
        return batch_norm(x, weight, bias, mean, variance, False, momentum, eps)
    normal, sample_mean, sample_variance, _ = _normalize_over_axes(x, range(2, x.ndim), eps)
    result = _scale_and_shift(normal, weight, bias)
    if mean is None or variance is None:
        return result
    unbiased_variance = _unbias_variance(sample_variance, math.prod(x.shape[2:]))
    new_mean = _update_moving_average(mean, sample_mean.mean(0).reshape(-1), momentum)
    return (
        result,
        new_mean,
        _update_moving_average(variance, unbiased_variance.mean(0).reshape(-1), momentum),
    )


@operator("aten.layer_norm.default")
def layer_norm(
    x: Array,
    shape: Sequence[int],
    weight: Optional = None,
    bias: Optional = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Array:
    return native_layer_norm(x, shape, weight, bias, eps)[0]


@operator("aten.native_layer_norm.default")
def native_layer_norm(
    x: Array, shape: Sequence[int], weight: Optional, bias: Optional, eps: float
) -> tuple[Array, Array, Array]:
    result, mean, _, factor = _normalize_over_axes(x, range(x.ndim - len(shape), x.ndim), eps)
    result = result if weight is None else result * weight
    result = result if bias is None else result + bias
    return result, mean, factor


@operator("aten.rms_norm.default")
def rms_norm(
    x: Array, shape: Sequence[int], weight: Optional = None, eps: float | None = None
) -> Array:
    eps = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    wide = widen_for_statistics(x)
    square = jnp.mean(jnp.square(wide), range(x.ndim - len(shape), x.ndim), keepdims=True)
    result = wide * jax.lax.rsqrt(square + eps)
    return result if weight is None else result * weight


@operator("aten.group_norm.default")
def group_norm(
    x: Array,
    groups: int,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
    strided: bool = False,
) -> Array:
    return _group_norm(x, groups, weight, bias, eps, strided)[0]


@operator("aten.native_group_norm.default")
def native_group_norm(
    x: Array,
    weight: Optional,
    bias: Optional,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
    strided: bool = False,
) -> tuple[Array, ...]:
    return _group_norm(x, groups, weight, bias, eps, strided)


def _group_norm(
    x: Array, groups: int, weight: Optional, bias: Optional, eps: float, strided: bool
) -> tuple[Array, ...]:
    """Normalizes groups of consecutive channels, or with `strided` of every `groups`-th one."""
    if strided:
        order = np.arange(x.shape[1]).reshape(-1, groups).T.ravel()
        scale, offset = (a if a is None else a[order] for a in (weight, bias))
        result, *statistics = _group_norm(x[:, order], groups, scale, offset, eps, False)
        return result[:, np.argsort(order)], *statistics
    normal, mean, _, factor = _normalize_over_axes(x.reshape(x.shape[0], groups, -1), (2,), eps)
    result = _scale_and_shift(normal.reshape(x.shape), weight, bias)
    return result, mean[..., 0], factor[..., 0]


@operator("aten.norm_except_dim.default")
def norm_except_dim(v: Array, pow: int = 2, dim: int = 0) -> Array:
    axes = None if dim == -1 else tuple(axis for axis in range(v.ndim) if axis != dim % v.ndim)
    powers = jnp.sum(jnp.abs(v) ** pow, axes, keepdims=dim != -1)
    return powers ** (1 / pow)


@operator("aten._weight_norm.default")
def weight_norm(v: Array, g: Array, dim: int = 0) -> Array:
    return v * (g / norm_except_dim(v, 2, dim))


@operator("aten._weight_norm_interface.default")
def weight_norm_interface(v: Array, g: Array, dim: int = 0) -> tuple[Array, Array]:
    return weight_norm(v, g, dim), norm_except_dim(v, 2, dim)
