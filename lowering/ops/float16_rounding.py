"""The conversion from float32 to float16 as the IPU does it: limits, NaN, stochastic rounding."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering import marks
from lowering.jaxprs import typed_jax
from lowering.ops import draws

LARGEST = 65504.0
SMALLEST_NORMAL = 2.0**-14
FRACTION_BITS = 10
# The fraction bits of float32 beyond those of float16; a random number of more would be rounded.
_SPARE_BITS = 13

# The number after the largest one; float16 has infinity in its place.
_NEXT = 65536.0

# Operations with poles: an infinity of theirs from finite operands is a division by zero, not an
# overflow (IEEE 754, section 7.3: an exact infinite result).
POLES = frozenset({
    "atanh", "digamma", "div", "erf_inv", "integer_pow", "lgamma", "log", "log1p", "polygamma",
    "pow", "rsqrt", "zeta",
})  # fmt: skip

# Operations whose infinities may come from any element of the operands; from finite ones float32
# makes none.
_MIXING = frozenset({
    "conv_general_dilated", "cumprod", "cumsum", "cumlogsumexp", "dot_general", "psum",
    "psum_invariant", "reduce_prod", "reduce_scatter", "reduce_sum", "reduce_window_sum",
    "scatter-add", "scatter-mul", "scatter-sub", "select_and_scatter_add", "convert_element_type",
})  # fmt: skip


@dc.dataclass(frozen=True, slots=True)
class Float16Format:
    """The treatment of a result that float16 cannot hold exactly.

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
    def changes_results(self) -> bool:
        """Returns whether results differ from those of JAX."""
        return self.limits or self.stochastic


def round_to_float16(
    result_float32: Any, primitive_name: str, operands: Sequence[Any], format: Float16Format
) -> Any:
    """Rounds a float32 result to float16.

    Args:
      result_float32: the result.
      primitive_name: the primitive that made it.
      operands: the operands of the primitive, before they became float32.
      format: the treatment of results that float16 does not hold.
    """
    with jax.named_scope(f"{marks.NARROWED}[{primitive_name}]"):
        rounded = _round_stochastically(result_float32) if format.stochastic else result_float32
        if not format.limits:
            return rounded.astype(jnp.float16)
        # The checks for overflows look at this equation, too.
        nearest = lax.reduce_precision(result_float32, exponent_bits=5, mantissa_bits=FRACTION_BITS)
        is_overflow = jnp.isinf(nearest) | (jnp.isfinite(rounded) & (jnp.abs(rounded) >= _NEXT))
        operands_finite = _operands_are_finite(primitive_name, operands)
        is_overflow &= jnp.isfinite(result_float32) if operands_finite is None else operands_finite
        replacement = (
            typed_jax.full_like(result_float32, jnp.nan)
            if format.nan
            else lax.sign(result_float32) * LARGEST
        )
        result = jnp.where(is_overflow, replacement, rounded)
        is_pole = _find_poles(result_float32, primitive_name, operands, operands_finite)
        if is_pole is not None:
            result = jnp.where(is_pole, jnp.nan, result)
        return result.astype(jnp.float16)


def _operands_are_finite(primitive_name: str, operands: Sequence[Any]) -> Any:
    """Returns, for each element, whether its operands' elements are finite; None if unknown."""
    if primitive_name in _MIXING:
        return None
    return functools.reduce(
        lambda one, other: one & other, [jnp.isfinite(operand) for operand in operands]
    )


def _find_poles(
    result: Any, primitive_name: str, operands: Sequence[Any], operands_finite: Any
) -> Any:
    if primitive_name not in POLES:
        return None
    if primitive_name == "div":
        return operands[1] == 0
    is_pole = jnp.isinf(result) & operands_finite
    return is_pole & (operands[0] == 0) if primitive_name in ("pow", "integer_pow") else is_pole


def _round_stochastically(result: Any) -> Any:
    """Rounds float32 numbers at random to a neighbour in float16, as float32."""
    finite = jnp.isfinite(result)
    y0 = jnp.where(finite, result, 0.0)
    exponent = lax.bitcast_convert_type(y0, jnp.uint32) & jnp.uint32(0x7F800000)
    power = jnp.maximum(lax.bitcast_convert_type(exponent, jnp.float32), SMALLEST_NORMAL)
    step = power * 2.0**-FRACTION_BITS
    bits = draws.random_uint16(draws.wrap_words_as_key(draws.draw_key_words()), result.shape)
    chance = (bits >> (16 - _SPARE_BITS)).astype(jnp.float32) * 2.0**-_SPARE_BITS
    return jnp.where(finite, jnp.floor(y0 / step + chance) * step, result)
