"""ONNX operators along axes: reductions, norms, cumulative sums and top-k."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.arrays import (
    has_integers,
    int64_dtype,
    normalize_axis,
    to_int_tuple,
)
from ipujax.doors.onnx.operators.elementwise import magnitude
from ipujax.doors.onnx.operators.table import operator

Axes = tuple[int, ...]


def _make_extremum(function: Callable[..., jax.Array], least: bool) -> Callable[..., jax.Array]:
    """Returns a max or min reduction that accepts empty axes."""

    def reduce_extremum(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
        if all(x.shape[a] for a in axis):
            return function(x, axis=axis, keepdims=keepdims)
        return function(x, axis=axis, keepdims=keepdims, initial=neutral_extremum(x.dtype, least))

    return reduce_extremum


def neutral_extremum(dtype: DTypeLike, least: bool) -> Operand:
    """Returns the neutral element of a max (`least`) or min reduction of a dtype."""
    if dtype == jnp.bool_:
        return not least
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).min if least else jnp.iinfo(dtype).max
    return -jnp.inf if least else jnp.inf


def _l2_norm(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    wide = x.astype(jnp.float32) if has_integers(x) else x
    return jnp.sqrt(jnp.sum(jnp.square(wide), axis=axis, keepdims=keepdims))


_REDUCTIONS: dict[str, Callable[..., jax.Array]] = {
    "ReduceL1": lambda x, **how: jnp.sum(magnitude(x), **how),
    "ReduceL2": _l2_norm,
    "ReduceLogSum": lambda x, **how: jnp.log(jnp.sum(x, **how)),
    "ReduceLogSumExp": lambda x, **how: jax.nn.logsumexp(x, **how),
    "ReduceMax": _make_extremum(jnp.max, least=True),
    "ReduceMean": jnp.mean,
    "ReduceMin": _make_extremum(jnp.min, least=False),
    "ReduceProd": jnp.prod,
    "ReduceSum": jnp.sum,
    "ReduceSumSquare": lambda x, **how: jnp.sum(jnp.square(x), **how),
}


def _register_reduction(name: str, function: Callable[..., jax.Array]) -> None:
    """Registers a reduction; axes are an attribute before version 18 (13 for `ReduceSum`)."""

    def reduce_over_axes(
        x: Operand, axes: Operand = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> jax.Array:
        is_attribute = isinstance(axes, list)
        positive_axes = None if axes is None else normalize_axes(to_int_tuple(axes), x.ndim)
        if not positive_axes and noop_with_empty_axes:
            return x
        used_axes = positive_axes if positive_axes or is_attribute else tuple(range(x.ndim))
        return function(jnp.asarray(x), axis=used_axes, keepdims=bool(keepdims)).astype(x.dtype)

    operator(name, static=("axes",))(reduce_over_axes)


def normalize_axes(axes: Axes, rank: int) -> Axes:
    """Returns non-negative axes for axes that may be counted from the end.

    Raises:
      FrontendError: (a `ValueError`) an axis is out of range.
    """
    for axis in axes:
        if not -rank <= axis < rank:
            raise check.value_error(
                f"Axis {axis} is out of acceptable range [{-rank}, {rank - 1}]", "give one in it"
            )
    return tuple(axis % rank for axis in axes)


for _name, _function in _REDUCTIONS.items():
    _register_reduction(_name, _function)


def _make_arg_extremum(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def find_extremum_index(
        x: jax.Array, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> jax.Array:
        axis = normalize_axis(axis, x.ndim)
        extremum_index = function(
            jnp.flip(x, axis) if select_last_index else x, axis, keepdims=keepdims
        )
        extremum_index = x.shape[axis] - 1 - extremum_index if select_last_index else extremum_index
        return extremum_index.astype(int64_dtype())

    return find_extremum_index


operator("ArgMax")(_make_arg_extremum(jnp.argmax))
operator("ArgMin")(_make_arg_extremum(jnp.argmin))


def _make_cumulative(function: Callable[..., jax.Array], neutral: int) -> Callable[..., jax.Array]:
    """Returns a cumulative sum or product, which leaves out the element if `exclusive`."""

    def accumulate_along_axis(
        x: jax.Array, axis: Operand, exclusive: int = 0, reverse: int = 0
    ) -> jax.Array:
        (positive_axis,) = (normalize_axis(a, x.ndim) for a in to_int_tuple(axis))
        accumulated = jnp.flip(x, positive_axis) if reverse else jnp.asarray(x)
        if exclusive:
            shift = [(int(a == positive_axis), -int(a == positive_axis), 0) for a in range(x.ndim)]
            accumulated = jax.lax.pad(accumulated, jnp.asarray(neutral, x.dtype), shift)
        accumulated = function(accumulated, positive_axis, dtype=x.dtype)
        return jnp.flip(accumulated, positive_axis) if reverse else accumulated

    return accumulate_along_axis


operator("CumSum", 11, static=("axis",))(_make_cumulative(jnp.cumsum, 0))
operator("CumProd", 26, static=("axis",))(_make_cumulative(jnp.cumprod, 1))


@operator("LpNormalization")
def lp_normalization(x: jax.Array, axis: int = -1, p: int = 2) -> jax.Array:
    """Divides by the norm along an axis; slices of norm zero stay zero."""
    total = jnp.sum(jnp.abs(x) if p == 1 else jnp.square(x), axis, keepdims=True)
    total = jnp.where(total == 0, 1, total)
    return x / (total if p == 1 else jnp.sqrt(total))


@operator("TopK", static=("k",))
def top_k(
    x: jax.Array, k: Operand, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[jax.Array, jax.Array]:
    """Returns the largest or smallest elements and their indices, always sorted."""
    last = jnp.moveaxis(x, normalize_axis(axis, x.ndim), -1)
    opposite = jnp.bitwise_not if has_integers(x) else jnp.negative  # both reverse the order
    (count,) = to_int_tuple(k)
    values, positions = jax.lax.top_k(last if largest else opposite(last), count)
    values = values if largest else opposite(values)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(positions.astype(int64_dtype()), -1, axis)
