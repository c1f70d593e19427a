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

from lowering.jaxpr import JaxprEqn, Primitive, ShapedArray, ad
from lowering.ops import collectives
from lowering.ops.define import at_front, define, first, itself, linear, no_tangent
from lowering.ops.types import Array, Arrays, Dims, Results, Tangents

Axes = tuple[int, ...]


def mean_square(x: Array, mean: Array, axes: Sequence[int]) -> Array:
    """The part of `x` in a variance: its mean over several calls with one `mean` is the variance.

    It is the mean of `(x - mean)**2`, or of `x**2 - mean**2`, over the axes, which stay with extent
    1. Rounding may make the latter negative.

    Args:
      x: floats.
      mean: of the same dtype and rank; extents that differ are 1, as those along `axes` must be.
        It must be the mean of all that the variance is taken of: derivatives rely on it.
      axes: which ones, counted from 0.
    """
    return square_p.bind(x, mean, axes=tuple(axes))


def norm_group_mean(x: Array) -> Array:
    """The mean of `x` over the replicas that share batch normalisation's statistics."""
    return group_mean_p.bind(x)


def norm_correction(count: int) -> Array:
    """Bessel's correction N / (N - 1), a float32 scalar; N is `count` times those replicas."""
    return correction_p.bind(count=count)


# --- what they do ---------------------------------------------------------------------------------


def _square_aval(x: ShapedArray, _: ShapedArray, *, axes: Axes) -> ShapedArray:
    return ShapedArray(tuple(1 if i in axes else n for i, n in enumerate(x.shape)), x.dtype)


def _correction_aval(**_: int) -> ShapedArray:
    return ShapedArray((), jnp.float32.dtype)


def _mean(x: Array, axes: Axes) -> Array:
    return jnp.mean(x, axis=axes, keepdims=True)


def _two_passes(x: Array, mean: Array, *, axes: Axes) -> Array:
    return _mean(jnp.square(x - mean), axes)


def _one_pass(x: Array, mean: Array, *, axes: Axes) -> Array:
    # Its sum need not wait for the mean, but the difference cancels.
    return _mean(jnp.square(x), axes) - jnp.square(mean)


def _corrected(total: int) -> Array:
    return jnp.float32(total / max(total - 1, 1))


def resolved(eqn: JaxprEqn, *, stable: bool, group: int) -> Callable[..., Array]:
    """What the equation does under a configuration, as a function of its operands."""
    if eqn.primitive is square_p:
        return functools.partial(_two_passes if stable else _one_pass, **eqn.params)
    if eqn.primitive is correction_p:
        return lambda: _corrected(eqn.params["count"] * group)
    if group == 1:
        return lambda x: x
    return lambda x: collectives.cross_replica_sum(x, group) / group


# --- differentiation and vmap -------------------------------------------------------------------


def _square_jvp(primitive: Primitive, xs: Arrays, tangents: Tangents, *, axes: Axes) -> Results:
    # A variance does not change with its mean: deviations from it sum to nothing.
    (x, mean), (dx, _) = xs, tangents
    value = primitive.bind(x, mean, axes=axes)
    if isinstance(dx, ad.Zero):
        return value, no_tangent(value)
    return value, _mean(2 * (x - mean) * dx, axes)


def _square_vmap(primitive: Primitive, values: Arrays, dims: Dims, *, axes: Axes) -> Results:
    return primitive.bind(*at_front(values, dims), axes=tuple(axis + 1 for axis in axes)), 0


square_p = define("ipu_mean_square", _square_aval, _one_pass, jvp=_square_jvp, vmap=_square_vmap)
group_mean_p = define("ipu_norm_group_mean", first, first, jvp=linear, transpose=itself)
correction_p = define("ipu_norm_correction", _correction_aval, lambda *, count: _corrected(count))

PRIMITIVES = (square_p, group_mean_p, correction_p)
