"""Products whose partial sums have a given dtype, as `scopes.partials_type` asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering.jaxprs import JaxprEqn, shape_of, typed_jax
from lowering.ops.float16_rounding import Float16Format, round_to_float16

# The products that the IPU adds up before it rounds: those of one step of its matrix unit.
BLOCK = 16


def accumulate_in_float32(eqn: JaxprEqn, operands: Sequence[Any]) -> Any:
    """Computes a product of matrices or a convolution, added up in float32."""
    params = {**eqn.primitive.get_bind_params(eqn.params), "preferred_element_type": jnp.float32}
    return eqn.primitive.bind(*operands, **params)


def accumulate_in_float16(
    eqn: JaxprEqn, operands: Sequence[Any], format: Float16Format
) -> list[Any]:
    """Computes a product whose partial sums are rounded to float16 after every `BLOCK` products.

    A contracted axis is cut into blocks; grouped convolutions are added up in one.

    Returns:
      One float32 array that holds a float16's bits only.
    """
    axes = _find_contracted_axes(eqn)
    if axes is None:
        return [accumulate_in_float32(eqn, operands)]
    blocks = [_split_into_blocks(x, axis) for x, axis in zip(operands, axes, strict=True)]

    def add_block(total: Any, block: Any) -> Any:
        rounded = round_to_float16(
            accumulate_in_float32(eqn, block), eqn.primitive.name, block, format
        )
        added = total.astype(jnp.float32) + rounded.astype(jnp.float32)
        return round_to_float16(added, "add", (total, rounded), format), None

    start = typed_jax.zeros(shape_of(eqn.outvars[0].aval), jnp.float16)
    total, _ = lax.scan(add_block, start, blocks)
    return [total.astype(jnp.float32)]


def _find_contracted_axes(eqn: JaxprEqn) -> tuple[int, int] | None:
    """Returns the contracted axis of each operand; None if there is none to cut."""
    params = eqn.params
    if eqn.primitive.name == "dot_general":
        (left_axes, right_axes), _ = params["dimension_numbers"]
        return (left_axes[0], right_axes[0]) if left_axes else None
    if params["feature_group_count"] > 1 or params["batch_group_count"] > 1:
        return None
    numbers = params["dimension_numbers"]
    return numbers.lhs_spec[1], numbers.rhs_spec[1]


def _split_into_blocks(x: Any, axis: int) -> Any:
    """Cuts an array along an axis into `[blocks, ...]`, the last one filled with zeros."""
    size = x.shape[axis]
    count = -(-size // BLOCK)
    block = -(-size // max(count, 1))
    pads = [(0, count * block - size if i == axis else 0) for i in range(x.ndim)]
    padded = typed_jax.pad(x, pads).reshape(*x.shape[:axis], count, block, *x.shape[axis + 1 :])
    return jnp.moveaxis(padded, axis, 0)
