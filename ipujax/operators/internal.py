"""Graphcore's utility operations: printing from inside compiled code."""

from __future__ import annotations

from typing import TypeVar

from ipujax.ground import check
from ipujax.operators.printing import print_array

_Array = TypeVar("_Array")


@check.guard
def print_tensor(input: _Array, name: str = "") -> _Array:
    """Prints an array to standard error whenever the program gets there.

    With one JAX device, prints come in the order in which they are written, in loops too; with
    several, in the order in which the devices get there. Under `jax.vmap`, and with several
    replicas, each example is printed by itself, also where a condition that differs between them
    would leave some out (`jax.debug.print` prints the first replica's only); under
    differentiation, the primal is printed. It does not matter what becomes of the result. The host
    prints behind the program: `jax.effects_barrier()` waits.

    Args:
      input: an array. For a pytree, use `jax.tree.map`.
      name: what to print before it, as `name: [1. 2.]`. Large arrays are abridged as NumPy does.

    Returns:
      `input`, unchanged.

    Raises:
      ConfigTypeError: (a `TypeError`) if `input` is no array, or `name` no string.
    """
    check.require_text(name, "the name of print_tensor")
    printed = check.require_array(input, "the input of print_tensor")
    prefix = f"{name}: " if name else ""

    print_array(printed, lambda value: f"{prefix}{value}")
    return input
