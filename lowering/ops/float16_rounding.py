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
FRACTION_BITS = 10
# Exponents of float32, with their offset of 127 and before its 23 bits of fraction: that of the
# smallest normal float16, and the sum of those of a number and of the inverse of a step near it.
_SMALLEST_NORMAL_BITS = (127 - 14) << 23
_INVERSE_STEP_BITS = (2 * 127 + FRACTION_BITS) << 23
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

# Operations that float32 holds for all finite float16, so that an infinity of theirs comes from
# an infinity of an operand, be it of the same element or of another one.
_WITHIN_FLOAT32 = frozenset({
    "add", "add_any", "conv_general_dilated", "convert_element_type", "cos", "cumlogsumexp",
    "cumprod", "cumsum", "dot_general", "erf", "logistic", "mul", "psum", "psum_invariant",
    "reduce_prod", "reduce_scatter", "reduce_sum", "reduce_window_sum", "scatter-add",
    "scatter-mul", "scatter-sub", "select_and_scatter_add", "sin", "sqrt", "square", "sub", "tanh",
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
        steps, per_unit = result_float32, jnp.float32(1)
        if format.stochastic:
            steps, per_unit = _count_steps_stochastically(result_float32)
        if format.limits:
            steps = _apply_limits(
                steps, per_unit, result_float32, primitive_name, operands, replace_by_nan=format.nan
            )
        # A division comes last because XLA computes its result once. Cheaper operations it computes
        # again for each reader, and all before them, too: the code would grow exponentially.
        return (steps / per_unit if format.stochastic else steps).astype(jnp.float16)


def _apply_limits(
    steps: Any,
    per_unit: Any,
    result_float32: Any,
    primitive_name: str,
    operands: Sequence[Any],
    *,
    replace_by_nan: bool,
) -> Any:
    """Replaces overflows by NaN or the largest number, and divisions by zero by NaN.

    Args:
      steps: the rounded numbers, in steps.
      per_unit: how many steps make 1, a power of two.
      result_float32: the numbers before they were rounded.
      primitive_name: the primitive that made them.
      operands: the operands of the primitive.
      replace_by_nan: whether an overflow becomes NaN.
    """
    # The checks for overflows look at this equation, too.
    nearest = lax.reduce_precision(result_float32, exponent_bits=5, mantissa_bits=FRACTION_BITS)
    is_overflow = (lax.abs(nearest) >= _NEXT) | (lax.abs(steps) >= _NEXT * per_unit)
    operands_finite = _operands_are_finite(primitive_name, operands)
    is_overflow &= lax.is_finite(result_float32) if operands_finite is None else operands_finite
    replacement = (
        typed_jax.full_like(result_float32, jnp.nan)
        if replace_by_nan
        else lax.sign(result_float32) * (LARGEST * per_unit)
    )
    limited = lax.select(is_overflow, replacement, steps)
    is_pole = _find_poles(result_float32, primitive_name, operands, operands_finite)
    return limited if is_pole is None else jnp.where(is_pole, jnp.nan, limited)


def _operands_are_finite(primitive_name: str, operands: Sequence[Any]) -> Any:
    """Returns, for each element, whether its operands' elements are finite.

    Returns None if the result is as finite as they are, or if it mixes elements.
    """
    if primitive_name in _WITHIN_FLOAT32:
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


def _count_steps_stochastically(result: Any) -> tuple[Any, Any]:
    """Rounds float32 numbers at random to a neighbour in float16.

    Returns:
      The neighbour in steps from one float16 to the next, as float32, and how many steps make 1.
      What is not finite stays as it is.
    """
    exponent = lax.bitcast_convert_type(result, jnp.uint32) & jnp.uint32(0x7F800000)
    exponent = lax.max(exponent, jnp.uint32(_SMALLEST_NORMAL_BITS))
    per_unit = lax.bitcast_convert_type(jnp.uint32(_INVERSE_STEP_BITS) - exponent, jnp.float32)
    bits = draws.draw_rounding_bits(result.shape)
    chance = (bits >> (16 - _SPARE_BITS)).astype(jnp.float32) * 2.0**-_SPARE_BITS
    steps = lax.floor(result * per_unit + chance)
    return lax.select(lax.is_finite(result), steps, result), per_unit
