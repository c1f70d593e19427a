"""One step of a variable, whatever its dtype: complex numbers count as two real ones each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs.optimizers.formula import Formula, Numbers, Parameter, Slot, Slots

COMPLEX = "complex64"
"""The name of the dtype of what is kept of a complex variable."""


def update_variable(
    formula: Formula,
    switches: frozenset[str],
    numbers: Numbers,
    gradient: jax.Array,
    value: jax.Array,
    slots: Slots,
) -> tuple[jax.Array, Slots]:
    """Returns what a step adds to a variable, in single precision, and its slots in their dtypes.

    Args:
      formula: of the optimizer.
      switches: the names of the switches that are on.
      numbers: of the variable's settings.
      gradient: in float32, of complex variables as `to_float32_parts` gives it.
      value: of the variable.
      slots: before the step.
    """
    parts = {name: to_float32_parts(array) for name, array in slots.items()}
    change, new_parts = formula.change(
        Parameter(gradient, to_float32_parts(value), parts, numbers, switches)
    )
    new_slots = {
        name: _from_float32_parts(array, slots[name]).astype(slots[name].dtype)
        for name, array in new_parts.items()
    }
    return _from_float32_parts(change, value), new_slots


def make_initial_slot(
    slot: Slot, shape: tuple[int, ...], dtype: Any, is_complex: bool = False
) -> jax.Array:
    """Returns a slot before the first step; of complex numbers both parts begin alike.

    Args:
      slot: which one.
      shape: of the variable.
      dtype: of the slot, if the variable is real.
      is_complex: whether the variable is complex.
    """
    if not slot.order:
        return jnp.full((), slot.initial, dtype)
    if is_complex:
        return jnp.full(shape, complex(slot.initial, slot.initial), COMPLEX)
    return jnp.full(shape, slot.initial, dtype)


def joint_norm(gradients: Iterable[jax.Array]) -> jax.Array:
    """Returns the norm that several gradients in float32 have together."""
    return jnp.sqrt(jnp.asarray(sum(jnp.sum(g * g) for g in gradients)))


def to_float32_parts(array: Any) -> jax.Array:
    """Returns an array in float32; of complex numbers, both parts along a new last axis."""
    if not jnp.iscomplexobj(array):
        return jnp.asarray(array).astype(jnp.float32)
    return jnp.stack([jnp.real(array), jnp.imag(array)], -1).astype(jnp.float32)


def _from_float32_parts(single: jax.Array, array: object) -> jax.Array:
    """Returns what `to_float32_parts` gave in the form of an array, complex where that is."""
    if not jnp.iscomplexobj(array):
        return single
    return jax.lax.complex(single[..., 0], single[..., 1])
