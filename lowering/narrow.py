"""From float32 to float16 as the IPU goes there: limits, NaN, and stochastic rounding."""

from __future__ import annotations

import dataclasses as dc
import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering import marks
from lowering.ops import draws

LARGEST = 65504.0
SMALLEST_NORMAL = 2.0**-14
FRACTION_BITS = 10
# float32 has so many bits more than float16; a random number of more would not be added exactly.
_SPARE_BITS = 13

# What would come after the largest number; infinity stands for it.
_NEXT = 65536.0

# Operations with poles: an infinity of theirs from finite operands is a division by zero, not an
# overflow (IEEE 754, section 7.3: an exact infinite result).
POLES = frozenset({
    "atanh", "digamma", "div", "erf_inv", "integer_pow", "lgamma", "log", "log1p", "polygamma",
    "pow", "rsqrt", "zeta",
})  # fmt: skip

# Their infinities may come from any of the operands' elements; from finite ones float32 makes none.
_MIXING = frozenset({
    "conv_general_dilated", "cumprod", "cumsum", "cumlogsumexp", "dot_general", "psum",
    "psum_invariant", "reduce_prod", "reduce_scatter", "reduce_sum", "reduce_window_sum",
    "scatter-add", "scatter-mul", "scatter-sub", "select_and_scatter_add", "convert_element_type",
})  # fmt: skip


@dc.dataclass(frozen=True, slots=True)
class Format:
    """What becomes of a result that float16 does not hold.

    Attributes:
      limits: an overflow is no infinity, and a division by zero is NaN.
      nan: an overflow is NaN, not the largest finite number.
      stochastic: one of the two neighbours is chosen at random, the nearer one more often, so
        that the expected result is exact.
    """

    limits: bool = False
    nan: bool = False
    stochastic: bool = False

    @property
    def acts(self) -> bool:
        """Whether it differs from what JAX does."""
        return self.limits or self.stochastic


def narrow(y: Any, name: str, operands: Sequence[Any], format: Format) -> Any:
    """A float32 result as float16.

    Args:
      y: the result.
      name: the primitive that made it.
      operands: what it was made of, before that became float32.
      format: what becomes of results that float16 does not hold.
    """
    with jax.named_scope(f"{marks.NARROWED}[{name}]"):
        rounded = _stochastic(y) if format.stochastic else y
        if not format.limits:
            return rounded.astype(jnp.float16)
        # Whoever watches for overflows looks at this one, too.
        nearest = lax.reduce_precision(y, exponent_bits=5, mantissa_bits=FRACTION_BITS)
        over = jnp.isinf(nearest) | (jnp.isfinite(rounded) & (jnp.abs(rounded) >= _NEXT))
        finite = _all_finite(name, operands)
        over &= jnp.isfinite(y) if finite is None else finite
        bound = jnp.full_like(y, jnp.nan) if format.nan else lax.sign(y) * LARGEST
        result = jnp.where(over, bound, rounded)
        pole = _pole(y, name, operands, finite)
        if pole is not None:
            result = jnp.where(pole, jnp.nan, result)
        return result.astype(jnp.float16)


def _all_finite(name: str, operands: Sequence[Any]) -> Any:
    """For each element of the result, whether those that it is made of are finite, if known."""
    if name in _MIXING:
        return None
    return functools.reduce(operator.and_, map(jnp.isfinite, operands))


def _pole(y: Any, name: str, operands: Sequence[Any], finite: Any) -> Any:
    if name not in POLES:
        return None
    if name == "div":
        return operands[1] == 0
    pole = jnp.isinf(y) & finite
    return pole & (operands[0] == 0) if name in ("pow", "integer_pow") else pole


def _stochastic(y: Any) -> Any:
    """A float32 of which float16 holds all bits, or more than its largest number."""
    finite = jnp.isfinite(y)
    y0 = jnp.where(finite, y, 0.0)
    exponent = lax.bitcast_convert_type(y0, jnp.uint32) & jnp.uint32(0x7F800000)
    power = jnp.maximum(lax.bitcast_convert_type(exponent, jnp.float32), SMALLEST_NORMAL)
    step = power * 2.0**-FRACTION_BITS
    bits = draws.random_halves(draws.as_key(draws.draw()), y.shape)
    chance = (bits >> (16 - _SPARE_BITS)).astype(jnp.float32) * 2.0**-_SPARE_BITS
    return jnp.where(finite, jnp.floor(y0 / step + chance) * step, y)
