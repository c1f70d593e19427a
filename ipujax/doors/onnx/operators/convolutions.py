"""ONNX convolutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.kernels import cross_window_indices
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.table import operator
from ipujax.doors.onnx.operators.windows import (
    Ints,
    padding_per_dimension,
    plan_windows,
    split_same_padding,
)
from ipujax.operators import frontend_attribute

Array = jax.Array


@operator("Conv")
def conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    kernel = weight.shape[2:]
    if kernel_shape is not None and tuple(kernel_shape) != kernel:
        raise check.value_error(
            f"kernel_shape is {tuple(kernel_shape)}, and the weights are {weight.shape}",
            "leave kernel_shape out",
        )
    dilations, strides = dilations or (1,) * len(kernel), strides or (1,) * len(kernel)
    padding = padding_per_dimension(x.shape[2:], kernel, strides, pads, dilations, auto_pad)
    result = _convolve_as_products(
        x, weight, window_strides=strides, padding=padding,
        rhs_dilation=dilations, feature_group_count=group,
    )  # fmt: skip
    return _add_channel_bias(result, bias)


def _convolve_as_products(x: Array, weight: Array, **options: Any) -> Array:
    """Convolves with XLA's fastest method on CPUs: ONNX promises no order of sums."""
    with frontend_attribute("convolutions", "products"):
        return jax.lax.conv_general_dilated(jnp.asarray(x), jnp.asarray(weight), **options)


@operator("ConvTranspose")
def conv_transpose(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    kernel = tuple(kernel_shape or weight.shape[2:])
    count = len(kernel)
    ones, zeros = (1,) * count, (0,) * count
    dilations, strides = dilations or ones, strides or ones
    output_padding_sizes = tuple(output_padding or zeros)
    if output_shape is None and auto_pad.startswith("SAME"):
        output_shape = [size * s for size, s in zip(x.shape[2:], strides, strict=True)]
    padding: list[tuple[int, int]] = []
    for i, (size, k, s, d) in enumerate(zip(x.shape[2:], kernel, strides, dilations, strict=True)):
        kernel_reach = d * (k - 1)
        if output_shape is None:
            pair = padding_per_dimension(x.shape[2:], kernel, strides, pads, dilations, auto_pad)[i]
        else:
            total = (
                s * (size - 1)
                + output_padding_sizes[i]
                + kernel_reach
                + 1
                - output_shape[-count:][i]
            )
            # Only SAME_UPPER pads more at the end, unlike in a convolution.
            pair = split_same_padding(
                total, "SAME_UPPER" if auto_pad == "SAME_UPPER" else "SAME_LOWER"
            )
        padding.append((kernel_reach - pair[0], kernel_reach - pair[1] + output_padding_sizes[i]))
    # weights are [inputs, outputs / group, ...], those of the convolution that this transposes
    weight = jnp.reshape(weight, (group, -1, *weight.shape[1:])).swapaxes(1, 2)
    weight = jnp.flip(weight.reshape(-1, *weight.shape[2:]), range(2, 2 + count))
    result = _convolve_as_products(
        x, weight, window_strides=ones, padding=padding,
        lhs_dilation=strides, rhs_dilation=dilations, feature_group_count=group,
    )  # fmt: skip
    return _add_channel_bias(result, bias)


def _add_channel_bias(result: Array, bias: Array | None) -> Array:
    if bias is None:
        return result
    return result + jnp.reshape(bias, (1, -1, *[1] * (result.ndim - 2)))


@operator("ConvInteger")
def conv_integer(
    x: Array,
    weight: Array,
    x_zero: Array | None = None,
    weight_zero: Array | None = None,
    **attributes: object,
) -> Array:
    return conv(
        _subtract_zero_point(x, x_zero), _subtract_zero_point(weight, weight_zero), **attributes
    )


def _subtract_zero_point(x: Array, zero_point: Array | None) -> Array:
    """Returns int32 values minus their zero point, which may differ along the first axis."""
    widened = jnp.asarray(x, jnp.int32)
    if zero_point is None:
        return widened
    zero_point = jnp.asarray(zero_point, jnp.int32)
    return widened - zero_point.reshape(
        -1, *[1] * (widened.ndim - 1) if zero_point.size > 1 else []
    )


@operator("QLinearConv")
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    weight: Array,
    weight_scale: Array,
    weight_zero: Array,
    scale: Array,
    zero: Array,
    bias: Array | None = None,
    **attributes: object,
) -> Array:
    sums = conv(
        _subtract_zero_point(x, x_zero),
        _subtract_zero_point(weight, weight_zero),
        bias,
        **attributes,
    )
    factor = jnp.reshape(x_scale * weight_scale / scale, (1, -1, *[1] * (sums.ndim - 2)))
    limits = jnp.iinfo(zero.dtype)
    result = jnp.rint(sums * factor) + jnp.asarray(zero, factor.dtype)
    return jnp.clip(result, limits.min, limits.max).astype(zero.dtype)


_ACTIVATIONS = {"none": lambda x: x, "silu": jax.nn.silu, "swish": jax.nn.silu}


@operator("CausalConvWithState", 27)
def causal_conv_with_state(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    past: Array | None = None,
    activation: str = "none",
) -> tuple[Array, Array]:
    """Convolves each channel with past inputs; returns also the last inputs."""
    history_length = weight.shape[2] - 1
    past = jnp.zeros((*x.shape[:2], history_length), x.dtype) if past is None else past
    padded = jnp.concatenate([past, x], 2)
    result = conv(padded, weight, bias, group=x.shape[1])
    if activation not in _ACTIVATIONS:
        raise check.value_error(f"the activation is {activation!r}", "use none, silu or swish")
    return _ACTIVATIONS[activation](result), padded[:, :, padded.shape[2] - history_length :]


@operator("Col2Im", static=("image_shape", "block_shape"))
def col2im(
    x: Array,
    image_shape: Operand,
    block_shape: Operand,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    """Adds the elements of windows at their positions in the image."""
    sizes, kernel = [int(s) for s in image_shape], [int(s) for s in block_shape]
    windows = plan_windows(sizes, kernel, strides, pads, dilations)
    flat = cross_window_indices([w.indices for w in windows], sizes).T
    elements = jnp.reshape(x, (x.shape[0], -1, *flat.shape))
    # Elements outside of the image go to a position after it.
    positions = np.where(flat < 0, np.prod(sizes), flat)
    image = jnp.zeros((*elements.shape[:2], int(np.prod(sizes)) + 1), elements.dtype)
    image = image.at[:, :, positions].add(elements)[..., :-1]
    return image.reshape(*elements.shape[:2], *sizes)
