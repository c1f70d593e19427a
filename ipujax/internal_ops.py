"""Graphcore's utility operations: printing from inside compiled code."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import jax
import numpy as np

_Array = TypeVar("_Array")


def print_tensor(input: _Array, name: str = "") -> _Array:
    """Prints an array to standard error whenever the program gets there.

    Prints come in the order in which they are written, in loops too. Under `jax.vmap`, and with
    several replicas, each example is printed by itself, also where a condition that differs between
    them would leave some out; under differentiation, the primal is printed. It does not matter
    what becomes of the result. The host prints behind the program: `jax.effects_barrier()` waits.

    Args:
      input: an array.
      name: what to print before it, as `name: [1. 2.]`. Large arrays are abridged as NumPy does.

    Returns:
      `input`, unchanged.
    """
    prefix = f"{name}: " if name else ""

    def show(value: Any) -> None:
        print(f"{prefix}{np.asarray(value)}", file=sys.stderr, flush=True)

    jax.debug.callback(show, input, ordered=True)
    return input
