"""PyTorch convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ipujax.doors.torch.operators.axes import expand_per_dimension
from ipujax.doors.torch.operators.table import operator
from ipujax.operators import frontend_attribute

Ints = Sequence[int]


@operator("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
def conv(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: Ints = (1,),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    groups: int = 1,
) -> jax.Array:
    pads = [(p, p) for p in expand_per_dimension(padding, weight.ndim - 2)]
    return _convolve_with_padding(x, weight, bias, stride, pads, dilation, groups)


@operator(
    "aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding",
    "aten._convolution_mode.default",
)  # fmt: skip
def conv_of_mode(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: Ints = (1,),
    padding: str = "valid",
    dilation: Ints = (1,),
    groups: int = 1,
) -> jax.Array:
    kernel = weight.shape[2:]
    overlaps = [
        d * (k - 1)
        for d, k in zip(expand_per_dimension(dilation, len(kernel)), kernel, strict=True)
    ]
    pads = [(o // 2, o - o // 2) if padding == "same" else (0, 0) for o in overlaps]
    return _convolve_with_padding(x, weight, bias, stride, pads, dilation, groups)


@operator(
    "aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input"
)
def conv_transpose(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: Ints = (1,),
    padding: Ints = (0,),
    output_padding: Ints = (0,),
    groups: int = 1,
    dilation: Ints = (1,),
) -> jax.Array:
    count = weight.ndim - 2
    kernel = weight.shape[2:]
    pads: list[tuple[int, int]] = []
    for size, p, output_pad, d in zip(
        kernel,
        *(expand_per_dimension(ints, count) for ints in (padding, output_padding, dilation)),
        strict=True,
    ):  # fmt: skip
        kernel_reach = d * (size - 1)
        pads.append((kernel_reach - p, kernel_reach - p + output_pad))
    # weights are [inputs, outputs / groups, ...], those of the convolution that this transposes
    weight = weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
    weight = jnp.flip(weight.reshape(-1, *weight.shape[2:]), range(2, 2 + count))
    return _convolve_with_padding(x, weight, bias, (1,), pads, dilation, groups, stride)


@operator("aten.convolution.default")
def convolution(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> jax.Array:
    if transposed:
        return conv_transpose(x, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(x, weight, bias, stride, padding, dilation, groups)


@operator("aten.conv_tbc.default")
def conv_tbc(x: jax.Array, weight: jax.Array, bias: jax.Array, pad: int = 0) -> jax.Array:
    """Convolves [time, batch, channels]."""
    result = conv(x.transpose(1, 2, 0), weight.transpose(2, 1, 0), bias, padding=(pad,))
    return result.transpose(2, 0, 1)


def _convolve_with_padding(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    stride: Ints,
    pads: Sequence[tuple[int, int]],
    dilation: Ints,
    groups: int,
    input_dilation: Ints = (1,),
) -> jax.Array:
    """Convolves a batch, or a single image without a batch axis."""
    count = weight.ndim - 2
    is_batch = x.ndim == weight.ndim
    # PyTorch promises no order of sums, so CPUs may use the fastest method.
    with frontend_attribute("convolutions", "products"):
        result = jax.lax.conv_general_dilated(
            x if is_batch else x[None], weight, expand_per_dimension(stride, count), pads,
            lhs_dilation=expand_per_dimension(input_dilation, count),
            rhs_dilation=expand_per_dimension(dilation, count),
            feature_group_count=groups,
        )  # fmt: skip
    if bias is not None:
        result = result + bias.reshape(-1, *[1] * count)
    return result if is_batch else result[0]
