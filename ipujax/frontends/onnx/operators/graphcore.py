"""PopART's own operators: elementwise ones, shapes, normalizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.dtypes import dtype_of
from ipujax.frontends.onnx.operators.arrays import axis_of, limited
from ipujax.frontends.onnx.operators.joining import slice_of
from ipujax.frontends.onnx.operators.reductions import reduced_axes
from ipujax.frontends.onnx.operators.shapes import depth_to_space, reshape
from ipujax.frontends.onnx.operators.table import operator

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
    """Angles, whose derivatives at the origin are zero."""
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
    x_scale: Any = None,
    y_scale: Any = None,
    scale0: float = 1.0,
    scale1: float = 1.0,
) -> Array:
    """Factors are inputs, or else attributes."""
    x_factor = jnp.asarray(scale0 if x_scale is None else x_scale, x.dtype)
    y_factor = jnp.asarray(scale1 if y_scale is None else y_scale, y.dtype)
    return x * x_factor + y * y_factor


@operator("ai.graphcore.IncrementMod")
def increment_mod(x: Array, increment: float, modulus: float) -> Array:
    """What is left of `x + increment` over `modulus`, of the sign of the sum."""
    return jnp.fmod(x + jnp.asarray(increment, x.dtype), jnp.asarray(modulus, x.dtype))


@operator("ai.graphcore.Init", folded=False)
def init(
    shape: Ints,
    data_type: int,
    init_type: int = 1,
    batch_axis: int = -1,
    tensor_type: int = 0,
) -> Array:
    """Zeros, where nothing need be, too."""
    del init_type, batch_axis, tensor_type  # what the original plans its memory by
    return jnp.zeros(limited(shape), dtype_of(data_type))


@operator("ai.graphcore.CopyVarUpdate")
def copy_var_update(variable: Array, value: Array) -> Array:
    """What the variable becomes, of its shape and dtype: who runs the model sees to it."""
    return jnp.broadcast_to(jnp.asarray(value), variable.shape).astype(variable.dtype)


@operator("ai.graphcore.TensorRemap")
def tensor_remap(x: Array, remap_type: int = 0) -> Array:
    """The same values: where they lie is not a matter of the model here."""
    del remap_type
    return x


@operator("ai.graphcore.NormalizeImage")
def normalize_image(x: Array, offsets: Array, scales: Array, scale: float = 1.0) -> Array:
    """`(x * scale - offsets) * scales` of [..., 3] with a fourth channel of zeros.

    Images of bytes become float16.
    """
    if x.ndim < 2 or x.shape[-1] != 3:
        raise check.refuse(f"an image of shape {x.shape}", "give one of three channels, [..., 3]")
    dtype = jnp.float16 if x.dtype == jnp.uint8 else x.dtype
    wide = (jnp.asarray(value, jnp.float32) for value in (x, offsets, scales))
    image, below, factors = wide
    normal = (image * scale - below) * factors
    return jnp.pad(normal, [(0, 0)] * (x.ndim - 1) + [(0, 1)]).astype(dtype)


@operator("ai.graphcore.ReduceMedian")
def reduce_median(x: Array, axes: Ints | None = None, keepdims: int = 1) -> tuple[Array, Array]:
    """Medians over some axes, or all: of an even number of elements the lower one of the two.

    Beside them their places, int32, among the elements of these axes.
    """
    x = jnp.asarray(x)
    reduced = sorted(range(x.ndim) if axes is None else reduced_axes(tuple(axes), x.ndim))
    kept = [a for a in range(x.ndim) if a not in reduced]
    lines = x.transpose(*kept, *reduced).reshape(*(x.shape[a] for a in kept), -1)
    places = jnp.argsort(lines, -1)[..., (lines.shape[-1] - 1) // 2, None]
    shape = [1 if a in reduced else n for a, n in enumerate(x.shape) if keepdims or a in kept]
    values = jnp.take_along_axis(lines, places, -1)
    return values.reshape(shape), places.reshape(shape).astype(jnp.int32)


@operator("ai.graphcore.Reshape")
def reshape_to(x: Array, **attributes: Ints) -> Array:
    return reshape(x, attributes["shape"])


@operator("ai.graphcore.Reverse")
def reverse(x: Array, dimensions: Ints) -> Array:
    rank = x.ndim
    for dimension in dimensions:
        if dimension < 0:
            only = "Only positive dimensions are supported"
            raise check.refuse(f"Reverse has invalid dimension '{dimension}'. {only}")
        if dimension >= rank:
            what = f"Reverse has invalid dimension '{dimension}' for input tensor of rank {rank}"
            raise check.refuse(what)
        if list(dimensions).count(dimension) > 1:
            what = f"Dimension {dimension} appears multiple times in the dimensions of Reverse"
            raise check.refuse(what)
    return jnp.flip(x, tuple(dimensions))


@operator("ai.graphcore.Slice")
def slice_by_attributes(x: Array, ends: Ints, starts: Ints, axes: Ints | None = None) -> Array:
    return slice_of(x, starts, ends, axes)


@operator("ai.graphcore.Subsample")
def subsample(x: Array, strides: Ints) -> Array:
    if 0 in strides:
        what = f"Strides invalid. 0 stride at index {list(strides).index(0)}"
        raise check.refuse(what, "give a stride of one or more for each axis")
    return x[tuple(slice(None, None, stride) for stride in strides)]


@operator("ai.graphcore.DepthToSpace")
def depth_to_space_of(x: Array, blocksize: int, mode: str = "DCR") -> Array:
    return depth_to_space(x, blocksize, mode)


@operator("ai.graphcore.Sort")
def sort(x: Array, axis: int = -1, descending: int = 0, stable: int = 0) -> tuple[Array, Array]:
    """The values, and where they were; always stable."""
    del stable
    order = jnp.argsort(jnp.asarray(x), axis, stable=True, descending=bool(descending))
    return jnp.take_along_axis(jnp.asarray(x), order, axis), order.astype(jnp.int32)


@operator("ai.graphcore.Bucketize")
def bucketize(x: Array, boundaries: Array, right: int = 0) -> Array:
    """The bucket of each element, int32: how many boundaries are below it, or not above it."""
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
    """Of [batch, channels, ...]: the result, and [batch * groups] means and inverse deviations.

    A group is consecutive channels, or with `strided` every `num_groups`-th one.
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
    x: Array, index: Array, into: Any = None, *, axes: Ints, sizes: Ints, noOverlap: int = 0
) -> Array:
    """The part of some sizes that begins at `index`, an integer for each of the axes.

    It has the shape of what it is to go into, which may leave out axes of size one.
    """
    del noOverlap  # a promise that nothing needs here
    shape = _part_of(x, axes, sizes)
    part = jax.lax.dynamic_slice(jnp.asarray(x), _starts(x, index, axes), shape)
    return part if into is None else part.reshape(into.shape)


@operator("ai.graphcore.DynamicUpdate")
def dynamic_update(
    x: Array, index: Array, part: Array, axes: Ints, sizes: Ints, noOverlap: int = 0
) -> Array:
    """The array with a part, which may leave out axes of size one, in the place at `index`."""
    del noOverlap
    whole = jnp.asarray(part, x.dtype).reshape(_part_of(x, axes, sizes))
    return jax.lax.dynamic_update_slice(jnp.asarray(x), whole, _starts(x, index, axes))


@operator("ai.graphcore.DynamicZero")
def dynamic_zero(x: Array, index: Array, axes: Ints, sizes: Ints) -> Array:
    part = jnp.zeros_like(dynamic_slice(x, index, axes=axes, sizes=sizes))
    return dynamic_update(x, index, part, axes, sizes)


@operator("ai.graphcore.DynamicAdd")
def dynamic_add(x: Array, index: Array, part: Array, axes: Ints, sizes: Ints) -> Array:
    before = dynamic_slice(x, index, axes=axes, sizes=sizes)
    return dynamic_update(x, index, jnp.reshape(part, before.shape) + before, axes, sizes)


def _part_of(x: Array, axes: Ints, sizes: Ints) -> list[int]:
    """The shape of a part."""
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis_of(axis, x.ndim)] = size
    return shape


def _starts(x: Array, index: Array, axes: Ints) -> list[Array]:
    """Where a part begins along every axis."""
    starts = [jnp.zeros((), jnp.int32)] * x.ndim
    for number, axis in enumerate(axes):
        starts[axis_of(axis, x.ndim)] = jnp.ravel(jnp.asarray(index))[number].astype(jnp.int32)
    return starts
