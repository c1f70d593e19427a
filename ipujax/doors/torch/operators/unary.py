"""PyTorch elementwise functions of one operand."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from ipujax.doors.graphs import Operand
from ipujax.doors.torch.operators.table import operator, promote_arguments


def _keep_integers(function: Callable[..., Operand]) -> Callable[..., Operand]:
    """Wraps a rounding function so that integers stay as they are."""
    return lambda x: function(x) if jnp.issubdtype(x.dtype, jnp.inexact) else x


def _truncate(x: jax.Array) -> jax.Array:
    return jnp.where(x < 0, lax.ceil(x), lax.floor(x))


def absolute(x: jax.Array) -> jax.Array:
    """Returns the absolute value, whose derivative at 0 is 0."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        return x * lax.sign(x)
    return x if jnp.issubdtype(x.dtype, jnp.unsignedinteger) or x.dtype == jnp.bool_ else lax.abs(x)


# Computed in the dtype of the result, by PyTorch's names.
_PROMOTED: dict[str, Callable[..., Operand]] = {
    "acos arccos": lax.acos,
    "acosh arccosh": lax.acosh,
    "asin arcsin": lax.asin,
    "asinh arcsinh": lax.asinh,
    "atan arctan": lax.atan,
    "atanh arctanh": lax.atanh,
    "ceil": _keep_integers(lax.ceil),
    "conj _conj conj_physical _conj_physical": jnp.conj,
    "cos": lax.cos,
    "cosh": lax.cosh,
    "deg2rad": lambda x: x * (math.pi / 180),
    "erf special_erf": lax.erf,
    "erfc special_erfc": lax.erfc,
    "erfinv special_erfinv": lax.erf_inv,
    "exp": lax.exp,
    "exp2 special_exp2": jnp.exp2,
    "expm1 special_expm1": lax.expm1,
    "floor": _keep_integers(lax.floor),
    "frac": lambda x: x - _truncate(x),
    "i0 special_i0 special_modified_bessel_i0": lambda x: lax.exp(absolute(x)) * lax.bessel_i0e(x),
    "lgamma special_gammaln": lax.lgamma,
    "log": lax.log,
    "log10": jnp.log10,
    "log1p special_log1p": lax.log1p,
    "log2": jnp.log2,
    "neg negative _neg_view": lambda x: x if x.dtype == jnp.bool_ else lax.neg(x),
    "positive": lambda x: x,
    "rad2deg": lambda x: x * (180 / math.pi),
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lax.rsqrt,
    "sgn sign": lambda x: x if x.dtype == jnp.bool_ else lax.sign(x),
    "sigmoid special_expit": lax.logistic,
    "sin": lax.sin,
    "sinc special_sinc": jnp.sinc,
    "sinh": lax.sinh,
    "special_erfcx": special.erfcx,
    "special_i0e": special.i0e,
    "special_i1 special_modified_bessel_i1": special.i1,
    "special_i1e": special.i1e,
    "special_log_ndtr": special.log_ndtr,
    "special_ndtr": special.ndtr,
    "special_spherical_bessel_j0": lambda x: jnp.sinc(x / math.pi),
    "special_ndtri": special.ndtri,
    "sqrt": lax.sqrt,
    "square": lambda x: x * x,
    "tan": lax.tan,
    "tanh": lax.tanh,
    "trunc fix": _keep_integers(_truncate),
}

# Computed with the operand as it is.
_KEEP_DTYPE_OF_OPERAND: dict[str, Callable[..., Operand]] = {
    "abs absolute": absolute,
    "imag": jnp.imag,
    "isfinite": jnp.isfinite,
    "isinf": jnp.isinf,
    "isnan": jnp.isnan,
    "isneginf": lambda x: x == -jnp.inf,
    "isposinf": lambda x: x == jnp.inf,
    "isreal": jnp.isreal,
    "logical_not": jnp.logical_not,
    "bitwise_not": jnp.bitwise_not,
    "real": jnp.real,
}

for _names, _function in _PROMOTED.items():
    operator(*(f"aten.{name}.default" for name in _names.split()), takes_call=True)(
        promote_arguments(_function)
    )
for _names, _function in _KEEP_DTYPE_OF_OPERAND.items():
    operator(*(f"aten.{name}.default" for name in _names.split()))(_function)


@operator("aten.signbit.default")
def signbit(x: jax.Array) -> jax.Array:
    return jnp.signbit(x) if jnp.issubdtype(x.dtype, jnp.floating) else x < 0


@operator("aten.round.default", "aten.round.decimals", "aten.special_round.default")
def round_to_decimals(x: jax.Array, decimals: int = 0) -> jax.Array:
    return x if jnp.issubdtype(x.dtype, jnp.integer) else jnp.round(x, decimals)


@operator("aten.relu.default")
def relu(x: jax.Array) -> jax.Array:
    return jax.nn.relu(x)


@operator("aten.angle.default")
def angle(x: jax.Array) -> jax.Array:
    if jnp.iscomplexobj(x):
        return jnp.angle(x)
    return jnp.where(jnp.isnan(x), jnp.nan, jnp.where(x < 0, jnp.pi, 0.0))


@operator("aten.frexp.Tensor")
def frexp(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    _, exponent = jnp.frexp(lax.stop_gradient(x))
    return x * jnp.exp2(-exponent.astype(x.dtype)), exponent
