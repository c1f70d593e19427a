"""Text on standard error from inside compiled code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lowering import marks, ops


def print_array(array: jax.Array, text: Callable[[np.ndarray], str]) -> None:
    """Prints an array whenever the program gets there; see `internal_ops.print_tensor`.

    Args:
      array: what to print.
      text: the lines that stand for its values.
    """

    def show(value: Any, number: Any) -> None:
        del number
        # In one piece: replicas on several devices print from several threads.
        sys.stderr.write(f"{text(np.asarray(value))}\n")
        sys.stderr.flush()

    with jax.named_scope(marks.write(marks.EACH)):
        # Each replica has its number, so that each has something to print.
        number = ops.replication_index()
        # JAX refuses ordered callbacks in computations that span devices, as those of replicas may.
        jax.debug.callback(show, array, number, ordered=jax.device_count() == 1)
