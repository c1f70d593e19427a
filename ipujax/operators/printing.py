"""Prints arrays to standard error from inside compiled code."""

from __future__ import annotations

import sys
from collections.abc import Callable

import jax
import numpy as np

from ipujax.operators.host_calls import call_on_host


def print_array(array: jax.Array, text: Callable[[np.ndarray], str]) -> None:
    """Prints an array whenever the program reaches it; see `internal_ops.print_tensor`.

    Args:
      array: what to print.
      text: the lines that stand for its values.
    """

    def write_to_stderr(value: np.ndarray) -> None:
        # In one piece: replicas on several devices print from several threads.
        sys.stderr.write(f"{text(value)}\n")
        sys.stderr.flush()

    call_on_host(array, write_to_stderr)
