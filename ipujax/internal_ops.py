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
    several replicas, each example is printed by itself; under differentiation, the primal is.
    Nothing depends on what becomes of the result. Printing is done by the host behind the
    program: `jax.effects_barrier()` waits for it.

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
