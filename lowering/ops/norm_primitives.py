"""The primitives of normalisation: statistics whose form is known only at lowering.

The configuration says how variances are computed, and over how many replicas batch normalisation
takes its statistics. Inner jits are traced once for all configurations, so until a whole program
is lowered these are primitives of ours; the pass `resolve_norms` says what they do. Plain `jax.jit`
lowers them as under the default configuration.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax.numpy as jnp

from lowering.jaxprs import JaxprEqn, Primitive, ShapedArray, ad
from lowering.ops import collective_primitives
from lowering.ops.define import (
    define_primitive,
    first_operand,
    jvp_of_linear,
    move_examples_to_front,
    transpose_of_self_transposed,
    zero_tangent,
)
from lowering.ops.types import Array, Arrays, Dims, Results, Tangents

Axes = tuple[int, ...]


def mean_square_deviation(x: Array, mean: Array, axes: Sequence[int]) -> Array:
    """Returns `x`'s part of a variance, whose mean over calls with one `mean` is the variance.

    It is the mean of `(x - mean)**2`, or of `x**2 - mean**2`, over the axes, which stay with extent
    1. Rounding may make the latter negative.

    Args:
      x: floats.
      mean: an array of the same dtype and rank; extents that differ are 1, as those along `axes`
        must be. It must be the mean of all that the variance is taken of: derivatives rely on it.
      axes: the axes of the mean, counted from 0.
    """
    return square_p.bind(x, mean, axes=tuple(axes))


def norm_group_mean(x: Array) -> Array:
    """Returns the mean of `x` over the replicas that share statistics of batch normalisation."""
    return group_mean_p.bind(x)


def bessel_correction_over_group(count: int) -> Array:
    """Returns Bessel's correction N / (N - 1), float32; N is `count` times the group's replicas."""
    return correction_p.bind(count=count)


# --- what the primitives do -----------------------------------------------------------------------


def _mean_square_aval(x: ShapedArray, _: ShapedArray, *, axes: Axes) -> ShapedArray:
    return ShapedArray(tuple(1 if i in axes else n for i, n in enumerate(x.shape)), x.dtype)


def _correction_aval(**_: int) -> ShapedArray:
    return ShapedArray((), jnp.float32.dtype)


def _mean_along_axes(x: Array, axes: Axes) -> Array:
    return jnp.mean(x, axis=axes, keepdims=True)


def _variance_in_two_passes(x: Array, mean: Array, *, axes: Axes) -> Array:
    return _mean_along_axes(jnp.square(x - mean), axes)


def _variance_in_one_pass(x: Array, mean: Array, *, axes: Axes) -> Array:
    # The sum of squares need not wait for the mean, but the difference cancels.
    return _mean_along_axes(jnp.square(x), axes) - jnp.square(mean)


def _bessel_correction(total: int) -> Array:
    return jnp.float32(total / max(total - 1, 1))


def _run_correction(*, count: int) -> Array:
    return _bessel_correction(count)


def resolve_norm_primitive(eqn: JaxprEqn, *, stable: bool, group: int) -> Callable[..., Array]:
    """Returns a statistic's equation under a configuration, as a function of its operands."""
    if eqn.primitive is square_p:
        return functools.partial(
            _variance_in_two_passes if stable else _variance_in_one_pass, **eqn.params
        )
    if eqn.primitive is correction_p:
        return lambda: _bessel_correction(eqn.params["count"] * group)
    if group == 1:
        return _unchanged
    return functools.partial(_mean_over_group, group=group)


def _unchanged(x: Array) -> Array:
    return x


def _mean_over_group(x: Array, *, group: int) -> Array:
    return collective_primitives.cross_replica_sum(x, group) / group


# --- differentiation and vmap -------------------------------------------------------------------


def _mean_square_jvp(
    primitive: Primitive, xs: Arrays, tangents: Tangents, *, axes: Axes
) -> Results:
    # A variance does not change with its mean: deviations from it sum to nothing.
    (x, mean), (dx, _) = xs, tangents
    value: Array = primitive.bind(x, mean, axes=axes)
    if isinstance(dx, ad.Zero):
        return value, zero_tangent(value)
    return value, _mean_along_axes(2 * (x - mean) * dx, axes)


def _mean_square_vmap(primitive: Primitive, values: Arrays, dims: Dims, *, axes: Axes) -> Results:
    return primitive.bind(
        *move_examples_to_front(values, dims), axes=tuple(axis + 1 for axis in axes)
    ), 0


square_p = define_primitive(
    "ipu_mean_square",
    _mean_square_aval,
    _variance_in_one_pass,
    jvp=_mean_square_jvp,
    vmap=_mean_square_vmap,
)
group_mean_p = define_primitive(
    "ipu_norm_group_mean",
    first_operand,
    first_operand,
    jvp=jvp_of_linear,
    transpose=transpose_of_self_transposed,
)
correction_p = define_primitive("ipu_norm_correction", _correction_aval, _run_correction)

NORM_PRIMITIVES = (square_p, group_mean_p, correction_p)
