"""Normalizations, and what they leave in their moving statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.frontends.pytorch.operators.table import operator

Array = jax.Array
Optional = jax.Array | None


def _wide(x: Array) -> Array:
    """In at least 32 bits: statistics of 16 are too coarse."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _by_channel(values: Array, x: Array) -> Array:
    """Values of the channels of `x`, which are its dimension 1."""
    return values.reshape(-1, *[1] * (x.ndim - 2))


def _scaled(normal: Array, weight: Optional, bias: Optional) -> Array:
    """Scaled and shifted by channel."""
    normal = normal if weight is None else normal * _by_channel(weight, normal)
    return normal if bias is None else normal + _by_channel(bias, normal)


def _normal(x: Array, axes: Sequence[int], eps: float) -> tuple[Array, Array, Array, Array]:
    """With mean 0 and variance 1; and the mean, the biased variance and the factor, `keepdims`."""
    x = _wide(x)
    mean = jnp.mean(x, axes, keepdims=True)
    differences = x - mean
    variance = jnp.mean(jnp.square(differences), axes, keepdims=True)
    factor = jax.lax.rsqrt(variance + eps)
    return differences * factor, mean, variance, factor


def _moved(old: Array, new: Array, momentum: float) -> Array:
    return jax.lax.stop_gradient(old + momentum * (new - old))


def _unbiased(variance: Array, size: int) -> Array:
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
) -> Any:
    """The result, and then the moving statistics where there are some."""
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
) -> tuple[Any, ...]:
    """The result, what it was normalized with, and the moving statistics."""
    if not training and mean is not None and variance is not None:
        factor = jax.lax.rsqrt(_wide(variance) + eps)
        normal = (_wide(x) - _by_channel(_wide(mean), x)) * _by_channel(factor, x)
        empty = jnp.zeros((0,), normal.dtype)
        return _scaled(normal, weight, bias), empty, empty, mean, variance
    normal, own_mean, own_variance, factor = _normal(x, (0, *range(2, x.ndim)), eps)
    if mean is not None and variance is not None:
        size = x.size // max(own_mean.size, 1)
        mean = _moved(mean, own_mean.reshape(-1), momentum)
        variance = _moved(variance, _unbiased(own_variance.reshape(-1), size), momentum)
    result = _scaled(normal, weight, bias)
    return result, own_mean.reshape(-1), factor.reshape(-1), mean, variance


@operator("aten._batch_norm_with_update_functional.default")
def batch_norm_with_update(
    x: Array, weight: Optional, bias: Optional, mean: Array, variance: Array, *args: float
) -> tuple[Any, ...]:
    """In training. What cuDNN would reserve for the derivative is empty."""
    *results, mean, variance = _batch_norm(x, weight, bias, mean, variance, True, *args)
    return *results, jnp.zeros((0,), jnp.uint8), mean, variance


@operator("aten.native_batch_norm.default")
def native_batch_norm(x: Array, *args: Any) -> tuple[Any, ...]:
    """In evaluation: what changes moving statistics has been made functional."""
    return _batch_norm(x, *args)[:3]


@operator("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    x: Array, weight: Optional, bias: Optional, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    return _batch_norm(x, weight, bias, None, None, training, momentum, eps)[:3]


@operator("aten._native_batch_norm_legit_no_training.default")
def batch_norm_in_evaluation(
    x: Array, weight: Optional, bias: Optional, mean: Array, variance: Array, *args: float
) -> tuple[Any, ...]:
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
) -> Any:
    """The result, and then the moving statistics where there are some."""
    if not use_input_stats:
        return batch_norm(x, weight, bias, mean, variance, False, momentum, eps)
    normal, own_mean, own_variance, _ = _normal(x, range(2, x.ndim), eps)
    result = _scaled(normal, weight, bias)
    if mean is None or variance is None:
        return result
    unbiased = _unbiased(own_variance, math.prod(x.shape[2:]))
    new_mean = _moved(mean, own_mean.mean(0).reshape(-1), momentum)
    return result, new_mean, _moved(variance, unbiased.mean(0).reshape(-1), momentum)


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
    result, mean, _, factor = _normal(x, range(x.ndim - len(shape), x.ndim), eps)
    result = result if weight is None else result * weight
    result = result if bias is None else result + bias
    return result, mean, factor


@operator("aten.rms_norm.default")
def rms_norm(
    x: Array, shape: Sequence[int], weight: Optional = None, eps: float | None = None
) -> Array:
    return fused_rms_norm(x, shape, weight, eps)[0]


@operator("aten._fused_rms_norm.default")
def fused_rms_norm(
    x: Array, shape: Sequence[int], weight: Optional, eps: float | None
) -> tuple[Array, Array]:
    eps = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    wide = _wide(x)
    square = jnp.mean(jnp.square(wide), range(x.ndim - len(shape), x.ndim), keepdims=True)
    factor = jax.lax.rsqrt(square + eps)
    result = wide * factor
    return (result if weight is None else result * weight), factor


@operator("aten.group_norm.default")
def group_norm(
    x: Array,
    groups: int,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Array:
    return _group_norm(x, groups, weight, bias, eps)[0]


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
) -> tuple[Array, ...]:
    return _group_norm(x, groups, weight, bias, eps)


def _group_norm(
    x: Array, groups: int, weight: Optional, bias: Optional, eps: float
) -> tuple[Array, ...]:
    normal, mean, _, factor = _normal(x.reshape(x.shape[0], groups, -1), (2,), eps)
    result = _scaled(normal.reshape(x.shape), weight, bias)
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
