"""PopART's own operators: elementwise operators, shapes and normalizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.dtypes import dtype_of_onnx_type
from ipujax.doors.onnx.operators.arrays import check_array_size, normalize_axis
from ipujax.doors.onnx.operators.joining import slice_array
from ipujax.doors.onnx.operators.reductions import normalize_axes
from ipujax.doors.onnx.operators.shapes import depth_to_space, reshape
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array
Ints = Sequence[int]

DOMAIN = "ai.graphcore."

_ELEMENTWISE: dict[str, Callable[..., Array]] = {
    "BitwiseAnd": jnp.bitwise_and,
    "BitwiseNot": jnp.bitwise_not,
    "BitwiseOr": jnp.bitwise_or,
    "BitwiseXnor": lambda x, y: jnp.bitwise_not(jnp.bitwise_xor(x, y)),
    "BitwiseXor": jnp.bitwise_xor,
    "Detach": lambda x: jax.lax.stop_gradient(x),
    "Expm1": jnp.expm1,
    "Fmod": jnp.fmod,
    "Gelu": lambda x: jax.nn.gelu(x, approximate=True),
    "GeluErf": lambda x: jax.nn.gelu(x, approximate=False),
    "Log1p": jnp.log1p,
    "NearbyInt": jnp.round,
    "Nop": lambda x: x,
    "Remainder": jnp.remainder,
    "Round": lambda x: jax.lax.round(x, jax.lax.RoundingMethod.AWAY_FROM_ZERO),
    "Swish": jax.nn.silu,
}

for _name, _function in _ELEMENTWISE.items():
    operator(DOMAIN + _name)(_function)


@operator("ai.graphcore.Atan2")
def atan2(y: Array, x: Array) -> Array:
    """Returns angles, whose derivatives at the origin are zero."""
    x, y = jnp.broadcast_arrays(x, y)
    is_origin = (x == 0) & (y == 0)
    side = jnp.copysign(jnp.ones_like(x), x)
    return jnp.arctan2(
        jnp.where(is_origin, jax.lax.stop_gradient(y), y), jnp.where(is_origin, side, x)
    )


@operator("ai.graphcore.Scale")
def scale(x: Array, **attributes: float) -> Array:
    return x * jnp.asarray(attributes["scale"], x.dtype)


@operator("ai.graphcore.ScaledAdd")
def scaled_add(
    x: Array,
    y: Array,
    x_scale: Operand = None,
    y_scale: Operand = None,
    scale0: float = 1.0,
    scale1: float = 1.0,
) -> Array:
    """Adds scaled arrays; the factors are inputs, or else attributes."""
    x_factor = jnp.asarray(scale0 if x_scale is None else x_scale, x.dtype)
    y_factor = jnp.asarray(scale1 if y_scale is None else y_scale, y.dtype)
    return x * x_factor + y * y_factor


@operator("ai.graphcore.IncrementMod")
def increment_mod(x: Array, increment: float, modulus: float) -> Array:
    """Returns the remainder of `x + increment` by `modulus`, with the sign of the sum."""
    return jnp.fmod(x + jnp.asarray(increment, x.dtype), jnp.asarray(modulus, x.dtype))


@operator("ai.graphcore.Init", folded=False)
def init(
    shape: Ints,
    data_type: int,
    init_type: int = 1,
    batch_axis: int = -1,
    tensor_type: int = 0,
) -> Array:
    """Returns an array of zeros, also where PopART leaves the values undefined."""
    del init_type, batch_axis, tensor_type  # only hints for PopART's memory planning
    return jnp.zeros(check_array_size(shape), dtype_of_onnx_type(data_type))


@operator("ai.graphcore.CopyVarUpdate")
def copy_var_update(variable: Array, value: Array) -> Array:
    """Returns the variable's new value in its shape and dtype; the model's caller stores it."""
    return jnp.broadcast_to(jnp.asarray(value), variable.shape).astype(variable.dtype)


@operator("ai.graphcore.TensorRemap")
def tensor_remap(x: Array, remap_type: int = 0) -> Array:
    """Returns the array unchanged: its tile mapping does not affect the model here."""
    del remap_type
    return x


@operator("ai.graphcore.NormalizeImage")
def normalize_image(x: Array, offsets: Array, scales: Array, scale: float = 1.0) -> Array:
    """Computes `(x * scale - offsets) * scales` of [..., 3] and adds a fourth zero channel.

    Images of bytes become float16.
    """
    if x.ndim < 2 or x.shape[-1] != 3:
        raise check.value_error(
            f"an image of shape {x.shape}", "give one of three channels, [..., 3]"
        )
    dtype = jnp.float16 if x.dtype == jnp.uint8 else x.dtype
    wide = (jnp.asarray(value, jnp.float32) for value in (x, offsets, scales))
    image, below, factors = wide
    normal = (image * scale - below) * factors
    return jnp.pad(normal, [(0, 0)] * (x.ndim - 1) + [(0, 1)]).astype(dtype)


@operator("ai.graphcore.ReduceMedian")
def reduce_median(x: Array, axes: Ints | None = None, keepdims: int = 1) -> tuple[Array, Array]:
    """Returns medians over some axes or all: the lower one for an even number of elements.

    Also returns their int32 positions among the elements of these axes.
    """
    x = jnp.asarray(x)
    reduced_axis_list = sorted(
        range(x.ndim) if axes is None else normalize_axes(tuple(axes), x.ndim)
    )
    kept_axes = [a for a in range(x.ndim) if a not in reduced_axis_list]
    lines = x.transpose(*kept_axes, *reduced_axis_list).reshape(
        *(x.shape[a] for a in kept_axes), -1
    )
    positions = jnp.argsort(lines, -1)[..., (lines.shape[-1] - 1) // 2, None]
    shape = [
        1 if a in reduced_axis_list else n
        for a, n in enumerate(x.shape)
        if keepdims or a in kept_axes
    ]
    values = jnp.take_along_axis(lines, positions, -1)
    return values.reshape(shape), positions.reshape(shape).astype(jnp.int32)


@operator("ai.graphcore.Reshape")
def reshape_to(x: Array, **attributes: Ints) -> Array:
    return reshape(x, attributes["shape"])


@operator("ai.graphcore.Reverse")
def reverse(x: Array, dimensions: Ints) -> Array:
    rank = x.ndim
    for dimension in dimensions:
        if dimension < 0:
            only = "Only positive dimensions are supported"
            raise check.value_error(f"Reverse has invalid dimension '{dimension}'. {only}")
        if dimension >= rank:
            problem = f"Reverse has invalid dimension '{dimension}' for input tensor of rank {rank}"
            raise check.value_error(problem)
        if list(dimensions).count(dimension) > 1:
            problem = f"Dimension {dimension} appears multiple times in the dimensions of Reverse"
            raise check.value_error(problem)
    return jnp.flip(x, tuple(dimensions))


@operator("ai.graphcore.Slice")
def slice_by_attributes(x: Array, ends: Ints, starts: Ints, axes: Ints | None = None) -> Array:
    return slice_array(x, starts, ends, axes)


@operator("ai.graphcore.Subsample")
def subsample(x: Array, strides: Ints) -> Array:
    if 0 in strides:
        problem = f"Strides invalid. 0 stride at index {list(strides).index(0)}"
        raise check.value_error(problem, "give a stride of one or more for each axis")
    return x[tuple(slice(None, None, stride) for stride in strides)]


@operator("ai.graphcore.DepthToSpace")
def depth_to_space_popart(x: Array, blocksize: int, mode: str = "DCR") -> Array:
    return depth_to_space(x, blocksize, mode)


@operator("ai.graphcore.Sort")
def sort(x: Array, axis: int = -1, descending: int = 0, stable: int = 0) -> tuple[Array, Array]:
    """Returns sorted values and their original positions; the sort is always stable."""
    del stable
    order = jnp.argsort(jnp.asarray(x), axis, stable=True, descending=bool(descending))
    return jnp.take_along_axis(jnp.asarray(x), order, axis), order.astype(jnp.int32)


@operator("ai.graphcore.Bucketize")
def bucketize(x: Array, boundaries: Array, right: int = 0) -> Array:
    """Returns the int32 bucket of each element: the number of boundaries below, or not above."""
    side = "right" if right else "left"
    return jnp.searchsorted(jnp.asarray(boundaries), jnp.asarray(x), side=side).astype(jnp.int32)


@operator("ai.graphcore.GroupNormalization")
def group_normalization(
    x: Array,
    weight: Array,
    bias: Array,
    num_groups: int,
    epsilon: float = 1e-5,
    strided: bool = False,
) -> tuple[Array, Array, Array]:
    """Normalizes [batch, channels, ...]; returns also means and inverse deviations.

    Means and inverse deviations are [batch * groups]. A group is consecutive channels, or with
    `strided` every `num_groups`-th channel.
    """
    if strided:
        order = np.arange(x.shape[1]).reshape(-1, num_groups).T.ravel()
        sorted_by_group = (jnp.take(a, order, i) for a, i in ((x, 1), (weight, 0), (bias, 0)))
        result, *statistics = group_normalization(*sorted_by_group, num_groups, epsilon)
        return result[:, np.argsort(order)], *statistics
    wide = jnp.asarray(x, jnp.promote_types(x.dtype, jnp.float32))
    groups = wide.reshape(x.shape[0] * num_groups, -1)
    mean = groups.mean(1, keepdims=True)
    differences = groups - mean
    inverse = jax.lax.rsqrt(jnp.square(differences).mean(1, keepdims=True) + epsilon)
    by_channel = (1, -1, *[1] * (x.ndim - 2))
    normal = (differences * inverse).reshape(x.shape)
    result = normal * jnp.reshape(weight, by_channel) + jnp.reshape(bias, by_channel)
    dtype = x.dtype
    return result.astype(dtype), mean.ravel().astype(dtype), inverse.ravel().astype(dtype)


@operator("ai.graphcore.DynamicSlice")
def dynamic_slice(
    x: Array, index: Array, into: Operand = None, *, axes: Ints, sizes: Ints, noOverlap: int = 0
) -> Array:
    """Returns the part of some sizes that begins at `index`, one integer for each axis.

    It takes the shape of `into`, which may leave out axes of size one.
    """
    del noOverlap  # an optimization hint of PopART
    shape = _shape_of_part(x, axes, sizes)
    part = jax.lax.dynamic_slice(jnp.asarray(x), _start_indices(x, index, axes), shape)
    return part if into is None else part.reshape(into.shape)


@operator("ai.graphcore.DynamicUpdate")
def dynamic_update(
    x: Array, index: Array, part: Array, axes: Ints, sizes: Ints, noOverlap: int = 0
) -> Array:
    """Returns the array with a part replaced at `index`; axes of size one may be left out."""
    del noOverlap
    full_part = jnp.asarray(part, x.dtype).reshape(_shape_of_part(x, axes, sizes))
    return jax.lax.dynamic_update_slice(jnp.asarray(x), full_part, _start_indices(x, index, axes))


@operator("ai.graphcore.DynamicZero")
def dynamic_zero(x: Array, index: Array, axes: Ints, sizes: Ints) -> Array:
    part = jnp.zeros_like(dynamic_slice(x, index, axes=axes, sizes=sizes))
    return dynamic_update(x, index, part, axes, sizes)


@operator("ai.graphcore.DynamicAdd")
def dynamic_add(x: Array, index: Array, part: Array, axes: Ints, sizes: Ints) -> Array:
    present = dynamic_slice(x, index, axes=axes, sizes=sizes)
    return dynamic_update(x, index, jnp.reshape(part, present.shape) + present, axes, sizes)


def _shape_of_part(x: Array, axes: Ints, sizes: Ints) -> list[int]:
    """Returns the shape of a part with some sizes along some axes."""
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[normalize_axis(axis, x.ndim)] = size
    return shape


def _start_indices(x: Array, index: Array, axes: Ints) -> list[Array]:
    """Returns the start of a part along every axis."""
    starts = [jnp.zeros((), jnp.int32)] * x.ndim
    for number, axis in enumerate(axes):
        starts[normalize_axis(axis, x.ndim)] = jnp.ravel(jnp.asarray(index))[number].astype(
            jnp.int32
        )
    return starts
