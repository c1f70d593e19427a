"""Graphcore's utility operations: printing from inside compiled code."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import jax
import numpy as np

from ipujax.checks.arrays import check
from lowering import marks, ops

_Array = TypeVar("_Array")


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
    check.text(name, "the name of print_tensor")
    printed = check.array(input, "the input of print_tensor")
    prefix = f"{name}: " if name else ""

    def show(value: Any, number: Any) -> None:
        del number
        # In one piece: replicas on several devices print from several threads.
        sys.stderr.write(f"{prefix}{np.asarray(value)}\n")
        sys.stderr.flush()

    with jax.named_scope(marks.write(marks.EACH)):
        # Each replica has its number, so that each has something to print.
        number = ops.replication_index()
        # JAX refuses ordered callbacks in computations that span devices, as those of replicas may.
        jax.debug.callback(show, printed, number, ordered=jax.device_count() == 1)
    return input
