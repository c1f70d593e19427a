"""Operators that compute along axes: reductions, norms, running sums, the largest elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.arrays import axis_of, int64, ints, whole
from ipujax.frontends.onnx.operators.elementwise import magnitude
from ipujax.frontends.onnx.operators.table import operator

Axes = tuple[int, ...]


def _extremum(function: Callable[..., jax.Array], least: bool) -> Callable[..., jax.Array]:
    """Of no elements it is the neutral one."""

    def reduce(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
        if all(x.shape[a] for a in axis):
            return function(x, axis=axis, keepdims=keepdims)
        return function(x, axis=axis, keepdims=keepdims, initial=neutral(x.dtype, least))

    return reduce


def neutral(dtype: Any, least: bool) -> Any:
    """What changes no largest element, which is the least one; or no smallest one."""
    if dtype == jnp.bool_:
        return not least
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).min if least else jnp.iinfo(dtype).max
    return -jnp.inf if least else jnp.inf


def _l2(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    wide = x.astype(jnp.float32) if whole(x) else x
    return jnp.sqrt(jnp.sum(jnp.square(wide), axis=axis, keepdims=keepdims))


_REDUCTIONS: dict[str, Callable[..., jax.Array]] = {
    "ReduceL1": lambda x, **how: jnp.sum(magnitude(x), **how),
    "ReduceL2": _l2,
    "ReduceLogSum": lambda x, **how: jnp.log(jnp.sum(x, **how)),
    "ReduceLogSumExp": lambda x, **how: jax.nn.logsumexp(x, **how),
    "ReduceMax": _extremum(jnp.max, least=True),
    "ReduceMean": jnp.mean,
    "ReduceMin": _extremum(jnp.min, least=False),
    "ReduceProd": jnp.prod,
    "ReduceSum": jnp.sum,
    "ReduceSumSquare": lambda x, **how: jnp.sum(jnp.square(x), **how),
}


def _register(name: str, function: Callable[..., jax.Array]) -> None:
    """Axes are an attribute before version 18, of `ReduceSum` 13, and an input since."""

    def reduce(
        x: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> jax.Array:
        is_attribute = isinstance(axes, list)
        given = None if axes is None else reduced_axes(ints(axes), x.ndim)
        if not given and noop_with_empty_axes:
            return x
        over = given if given or is_attribute else tuple(range(x.ndim))
        return function(jnp.asarray(x), axis=over, keepdims=bool(keepdims)).astype(x.dtype)

    operator(name, static=("axes",))(reduce)


def reduced_axes(axes: Axes, rank: int) -> Axes:
    """Axes counted from the front.

    Raises:
      FrontendError: (a `ValueError`) there are no such axes.
    """
    for axis in axes:
        if not -rank <= axis < rank:
            raise check.refuse(
                f"Axis {axis} is out of acceptable range [{-rank}, {rank - 1}]", "give one in it"
            )
    return tuple(axis % rank for axis in axes)


for _name, _function in _REDUCTIONS.items():
    _register(_name, _function)


def _arg(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def place(
        x: jax.Array, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> jax.Array:
        axis = axis_of(axis, x.ndim)
        found = function(jnp.flip(x, axis) if select_last_index else x, axis, keepdims=keepdims)
        found = x.shape[axis] - 1 - found if select_last_index else found
        return found.astype(int64())

    return place


operator("ArgMax")(_arg(jnp.argmax))
operator("ArgMin")(_arg(jnp.argmin))


def _running(function: Callable[..., jax.Array], neutral: int) -> Callable[..., jax.Array]:
    """Sums or products of the elements so far; without the element itself if `exclusive`."""

    def run(x: jax.Array, axis: Any, exclusive: int = 0, reverse: int = 0) -> jax.Array:
        (along,) = (axis_of(a, x.ndim) for a in ints(axis))
        found = jnp.flip(x, along) if reverse else jnp.asarray(x)
        if exclusive:
            shift = [(int(a == along), -int(a == along), 0) for a in range(x.ndim)]
            found = jax.lax.pad(found, jnp.asarray(neutral, x.dtype), shift)
        found = function(found, along, dtype=x.dtype)
        return jnp.flip(found, along) if reverse else found

    return run


operator("CumSum", 11, static=("axis",))(_running(jnp.cumsum, 0))
operator("CumProd", 26, static=("axis",))(_running(jnp.cumprod, 1))


@operator("LpNormalization")
def lp_normalization(x: jax.Array, axis: int = -1, p: int = 2) -> jax.Array:
    """What has the norm zero stays zero."""
    total = jnp.sum(jnp.abs(x) if p == 1 else jnp.square(x), axis, keepdims=True)
    total = jnp.where(total == 0, 1, total)
    return x / (total if p == 1 else jnp.sqrt(total))


@operator("TopK", static=("k",))
def top_k(
    x: jax.Array, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[jax.Array, jax.Array]:
    """How many is an attribute before version 10; the results are always in order."""
    last = jnp.moveaxis(x, axis_of(axis, x.ndim), -1)
    opposite = jnp.bitwise_not if whole(x) else jnp.negative  # both turn the order round
    (count,) = ints(k)
    values, places = jax.lax.top_k(last if largest else opposite(last), count)
    values = values if largest else opposite(values)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(places.astype(int64()), -1, axis)
