"""Products with partial results of a type: what `scopes.partials_type` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering.avals import shape_of
from lowering.jaxpr import JaxprEqn
from lowering.narrow import Format, narrow

# So many products the IPU adds up before it rounds: what one step of its matrix unit takes in.
BLOCK = 16


def in_float32(eqn: JaxprEqn, operands: Sequence[Any]) -> Any:
    """A product of matrices or a convolution, added up in float32."""
    params = {**eqn.primitive.get_bind_params(eqn.params), "preferred_element_type": jnp.float32}
    return eqn.primitive.bind(*operands, **params)


def in_float16(eqn: JaxprEqn, operands: Sequence[Any], format: Format) -> list[Any]:
    """The same with partial sums that are rounded to float16 after every `BLOCK` products' sum.

    A contracted axis is cut into blocks; grouped convolutions are added up in one.

    Returns:
      One float32 array that holds a float16's bits only.
    """
    axes = _contracted(eqn)
    if axes is None:
        return [in_float32(eqn, operands)]
    blocks = [_blocks(x, axis) for x, axis in zip(operands, axes, strict=True)]

    def add(total: Any, block: Any) -> Any:
        rounded = narrow(in_float32(eqn, block), eqn.primitive.name, block, format)
        added = total.astype(jnp.float32) + rounded.astype(jnp.float32)
        return narrow(added, "add", (total, rounded), format), None

    start = jnp.zeros(shape_of(eqn.outvars[0].aval), jnp.float16)
    total, _ = lax.scan(add, start, blocks)
    return [total.astype(jnp.float32)]


def _contracted(eqn: JaxprEqn) -> tuple[int, int] | None:
    """The axis to cut of each operand; None if there is none."""
    params = eqn.params
    if eqn.primitive.name == "dot_general":
        (left, right), _ = params["dimension_numbers"]
        return (left[0], right[0]) if left else None
    if params["feature_group_count"] > 1 or params["batch_group_count"] > 1:
        return None
    numbers = params["dimension_numbers"]
    return numbers.lhs_spec[1], numbers.rhs_spec[1]


def _blocks(x: Any, axis: int) -> Any:
    """`[blocks, ...]`: parts of `x` along an axis, the last one filled with zeros."""
    size = x.shape[axis]
    count = -(-size // BLOCK)
    block = -(-size // max(count, 1))
    pads = [(0, count * block - size if i == axis else 0) for i in range(x.ndim)]
    whole = jnp.pad(x, pads).reshape(*x.shape[:axis], count, block, *x.shape[axis + 1 :])
    return jnp.moveaxis(whole, axis, 0)
