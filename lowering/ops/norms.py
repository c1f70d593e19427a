"""The primitives of normalisation: statistics whose form is known only at lowering.

The configuration says how variances are computed, and over how many replicas batch normalisation
takes its statistics. Inner jits are traced once for all configurations, so until a whole program
is lowered these are primitives of ours; the pass `resolve_norms` says what they do. Plain `jax.jit`
lowers them as under the default configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import typeof

from lowering.jaxpr import JaxprEqn, Primitive, ShapedArray, ad, batching, mlir
from lowering.ops import collectives

square_p = Primitive("ipu_mean_square")
group_mean_p = Primitive("ipu_norm_group_mean")
correction_p = Primitive("ipu_norm_correction")

PRIMITIVES = (square_p, group_mean_p, correction_p)


def mean_square(x: Any, mean: Any, axes: Sequence[int]) -> Any:
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


def group_mean(x: Any) -> Any:
    """The mean of `x` over the replicas that share batch normalisation's statistics."""
    return group_mean_p.bind(x)


def correction(count: int) -> Any:
    """Bessel's correction N / (N - 1), a float32 scalar; N is `count` times those replicas."""
    return correction_p.bind(count=count)


# --- shapes, and what they do -------------------------------------------------------------------


@square_p.def_abstract_eval
def _square_aval(x: Any, mean: Any, *, axes: tuple[int, ...]) -> Any:
    del mean
    return ShapedArray(tuple(1 if i in axes else n for i, n in enumerate(x.shape)), x.dtype)


@group_mean_p.def_abstract_eval
def _group_aval(x: Any) -> Any:
    return ShapedArray(x.shape, x.dtype)


@correction_p.def_abstract_eval
def _correction_aval(*, count: int) -> Any:
    del count
    return ShapedArray((), jnp.float32.dtype)


def _mean(x: Any, axes: tuple[int, ...]) -> Any:
    return jnp.mean(x, axis=axes, keepdims=True)


def _two_passes(x: Any, mean: Any, *, axes: tuple[int, ...]) -> Any:
    return _mean(jnp.square(x - mean), axes)


def _one_pass(x: Any, mean: Any, *, axes: tuple[int, ...]) -> Any:
    # Its sum need not wait for the mean, but the difference cancels.
    return _mean(jnp.square(x), axes) - jnp.square(mean)


def _corrected(total: int) -> Any:
    return jnp.float32(total / max(total - 1, 1))


def resolved(eqn: JaxprEqn, *, stable: bool, group: int) -> Callable[..., Any]:
    """What the equation does under a configuration, as a function of its operands."""
    if eqn.primitive is square_p:
        form = _two_passes if stable else _one_pass
        return lambda x, mean: form(x, mean, **eqn.params)
    if eqn.primitive is correction_p:
        return lambda: _corrected(eqn.params["count"] * group)
    if group == 1:
        return lambda x: x
    return lambda x: collectives.cross_replica_sum(x, group) / group


_BY_DEFAULT: dict[Primitive, Callable[..., Any]] = {
    square_p: _one_pass,
    group_mean_p: lambda x: x,
    correction_p: lambda *, count: _corrected(count),
}
for _primitive, _function in _BY_DEFAULT.items():
    _primitive.def_impl(_function)
    mlir.register_lowering(_primitive, mlir.lower_fun(_function, multiple_results=False))


# --- differentiation and vmap -------------------------------------------------------------------


def _square_jvp(primals: Any, tangents: Any, *, axes: tuple[int, ...]) -> Any:
    # A variance does not change with its mean: deviations from it sum to nothing.
    (x, mean), (dx, _) = primals, tangents
    value = mean_square(x, mean, axes)
    if type(dx) is ad.Zero:
        return value, ad.Zero(typeof(value).to_tangent_aval())
    return value, _mean(2 * (x - mean) * dx, axes)


def _square_vmap(values: Any, dims: Any, *, axes: tuple[int, ...]) -> Any:
    pairs = list(zip(values, dims, strict=True))
    size = next(x.shape[dim] for x, dim in pairs if dim is not None)

    def batched(x: Any, dim: int | None) -> Any:
        return jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)

    x, mean = (batched(*pair) for pair in pairs)
    return mean_square(x, mean, [axis + 1 for axis in axes]), 0


def _group_transpose(cotangent: Any, x: Any) -> list[Any]:
    del x
    return [group_mean(cotangent)]


def _group_vmap(values: Any, dims: Any) -> Any:
    return group_mean(values[0]), dims[0]


ad.primitive_jvps[square_p] = _square_jvp
batching.primitive_batchers[square_p] = _square_vmap
collectives.linear(group_mean_p, _group_transpose)
batching.primitive_batchers[group_mean_p] = _group_vmap
