"""PyTorch random numbers: each call draws with its own key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from ipujax.doors.graphs import Call
from ipujax.doors.torch.operators.table import operator

Array = jax.Array
Options = object
"""Options such as dtype, layout, device and generator, which the traced result or JAX replaces."""


def _floating_dtype_to_draw(call: Call) -> Any:
    """Returns the floating-point dtype to draw numbers in."""
    dtype = call.aval.dtype
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.float32


def _draw_open_uniform(call: Call) -> Array:
    """Draws uniform numbers between 0 and 1, both excluded."""
    dtype = _floating_dtype_to_draw(call)
    return jax.random.uniform(call.key, call.aval.shape, dtype, jnp.finfo(dtype).tiny)


@operator("aten.rand.default", "aten.rand_like.default", takes_call=True)
def rand(call: Call, *_: object, **options: Options) -> Array:
    return jax.random.uniform(call.key, call.aval.shape, _floating_dtype_to_draw(call))


@operator("aten.randn.default", "aten.randn_like.default", takes_call=True)
def randn(call: Call, *_: object, **options: Options) -> Array:
    return _draw_normal(call)


def _draw_normal(call: Call) -> Array:
    dtype = call.aval.dtype
    is_inexact = jnp.issubdtype(dtype, jnp.inexact)
    return jax.random.normal(call.key, call.aval.shape, dtype if is_inexact else jnp.float32)


@operator("aten.randint.default", takes_call=True)
def randint(call: Call, high: int, size: Sequence[int], **options: Options) -> Array:
    return _draw_integers(call, 0, high)


@operator("aten.randint.low", takes_call=True)
def randint_from(call: Call, low: int, high: int, size: Sequence[int], **options: Options) -> Array:
    return _draw_integers(call, low, high)


@operator("aten.randint_like.default", takes_call=True)
def randint_like(call: Call, x: Array, high: int, **options: Options) -> Array:
    return _draw_integers(call, 0, high)


@operator("aten.randint_like.low_dtype", takes_call=True)
def randint_like_from(call: Call, x: Array, low: int, high: int, **options: Options) -> Array:
    return _draw_integers(call, low, high)


def _draw_integers(call: Call, low: int, high: int) -> Array:
    high = min(high, jnp.iinfo(jnp.int32).max)
    return jax.random.randint(call.key, call.aval.shape, low, high)


@operator("aten.random.default", takes_call=True)
def random(call: Call, x: Array, **options: Options) -> Array:
    return _draw_integers(call, 0, _largest_exact_integer(x.dtype) + 1)


@operator("aten.random.to", takes_call=True)
def random_to(call: Call, x: Array, to: int, **options: Options) -> Array:
    return _draw_integers(call, 0, to)


@operator("aten.random.from", takes_call=True)
def random_from(call: Call, x: Array, low: int, to: int | None, **options: Options) -> Array:
    return _draw_integers(call, low, _largest_exact_integer(x.dtype) + 1 if to is None else to)


def _largest_exact_integer(dtype: DTypeLike) -> int:
    """Returns the largest integer up to which a dtype holds all integers, as PyTorch draws."""
    if dtype == jnp.bool_:
        return 1
    if jnp.issubdtype(dtype, jnp.integer):
        return int(jnp.iinfo(dtype).max)
    return 2 ** (jnp.finfo(dtype).nmant + 1)


@operator("aten.randperm.default", takes_call=True)
def randperm(call: Call, n: int, **options: Options) -> Array:
    return jax.random.permutation(call.key, n)


# Named after `aten.normal_.default`, which has no functional twin of this name.
@operator("aten.normal.default", "aten.normal_functional.default", takes_call=True)
def normal(call: Call, x: Array, mean: float = 0.0, std: float = 1.0, **options: Options) -> Array:
    return mean + std * _draw_normal(call)


@operator(
    "aten.normal.Tensor_Tensor", "aten.normal.Tensor_float", "aten.normal.float_Tensor",
takes_call=True,)  # fmt: skip
def normal_of(call: Call, mean: Any, std: Any = 1.0, **options: Options) -> Array:
    return mean + std * _draw_normal(call)


@operator("aten.normal.float_float", takes_call=True)
def normal_of_size(
    call: Call, mean: float, std: float, size: Sequence[int], **options: Options
) -> Array:
    return mean + std * _draw_normal(call)


@operator("aten.log_normal.default", takes_call=True)
def log_normal(call: Call, x: Array, mean: float = 1.0, std: float = 2.0, **_: Options) -> Array:
    return jnp.exp(mean + std * _draw_normal(call))


@operator("aten.uniform.default", takes_call=True)
def uniform(call: Call, x: Array, low: float = 0.0, high: float = 1.0, **_: Options) -> Array:
    return jax.random.uniform(call.key, call.aval.shape, _floating_dtype_to_draw(call), low, high)


@operator("aten.exponential.default", takes_call=True)
def exponential(call: Call, x: Array, rate: float = 1.0, **options: Options) -> Array:
    return -jnp.log(_draw_open_uniform(call)) / rate


@operator("aten.cauchy.default", takes_call=True)
def cauchy(
    call: Call, x: Array, median: float = 0.0, sigma: float = 1.0, **options: Options
) -> Array:
    return median + sigma * jax.random.cauchy(
        call.key, call.aval.shape, _floating_dtype_to_draw(call)
    )


@operator("aten.geometric.default", takes_call=True)
def geometric(call: Call, x: Array, p: float, **options: Options) -> Array:
    return jnp.maximum(jnp.ceil(jnp.log(_draw_open_uniform(call)) / jnp.log1p(-p)), 1)


@operator("aten.bernoulli.default", takes_call=True)
def bernoulli(call: Call, p: Array, **options: Options) -> Array:
    return _draw_bernoulli(call, p)


# The overload `float` is that of `aten.bernoulli_` alone.
@operator("aten.bernoulli.p", "aten.bernoulli.float", "aten.bernoulli.Tensor", takes_call=True)
def bernoulli_of(call: Call, x: Array, p: ArrayLike = 0.5, **options: Options) -> Array:
    return _draw_bernoulli(call, p)


def _draw_bernoulli(call: Call, p: ArrayLike) -> Array:
    p = jax.lax.stop_gradient(p) if isinstance(p, jax.Array) else p
    return jax.random.uniform(call.key, call.aval.shape) < p


@operator("aten.poisson.default", takes_call=True)
def poisson(call: Call, rate: Array, generator: None = None) -> Array:
    return jax.random.poisson(call.key, jax.lax.stop_gradient(rate), call.aval.shape)


@operator("aten.binomial.default", takes_call=True)
def binomial(call: Call, count: Array, p: Array, generator: None = None) -> Array:
    count, p = jax.lax.stop_gradient((count, p))
    return jax.random.binomial(call.key, count, p, call.aval.shape)


@operator("aten._standard_gamma.default", takes_call=True)
def standard_gamma(call: Call, alpha: Array, generator: None = None) -> Array:
    return jax.random.gamma(call.key, alpha, call.aval.shape)


@operator("aten._sample_dirichlet.default", takes_call=True)
def dirichlet(call: Call, alpha: Array, generator: None = None) -> Array:
    return jax.random.dirichlet(call.key, alpha, alpha.shape[:-1])


@operator("aten.multinomial.default", takes_call=True)
def multinomial(
    call: Call, weights: Array, count: int, replacement: bool = False, **options: Options
) -> Array:
    """Draws indices for each row by its weights."""
    logs = jnp.log(jax.lax.stop_gradient(weights))
    if replacement:
        draws: Callable[..., Array] = jax.random.categorical
        return draws(call.key, logs[..., None, :], shape=call.aval.shape)
    # The top k of log weights plus Gumbel noise are draws without replacement.
    return jax.lax.top_k(logs + jax.random.gumbel(call.key, logs.shape), count)[1]
