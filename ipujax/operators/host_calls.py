"""Calls Python on the host from inside compiled code, in program order."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from lowering import marks, ops


def call_on_host(array: jax.Array, function: Callable[[np.ndarray], None]) -> None:
    """Calls a function with an array whenever the program reaches it, once per replica.

    Args:
      array: the argument of the function.
      function: the function; an error that it raises becomes a `CallbackError` of the program.
    """

    def call_with_numpy(value: object, number: object) -> None:
        del number
        function(np.asarray(value))

    with jax.named_scope(marks.write_mark(marks.EACH_REPLICA)):
        # Each replica has its number, so that each has something to call with.
        number = ops.replication_index()
        # JAX refuses ordered callbacks in computations that span devices, as those of replicas may.
        jax.debug.callback(call_with_numpy, array, number, ordered=jax.device_count() == 1)
