"""Looks for NaNs and infinities in a run's results, for `jax.debug_nans` and `jax.debug_infs`.

JAX checks what each jitted function returns, and calls it once more, operation by operation, if
something is wrong. A program cannot be run twice: its queues would go on. So its results and what
it sends are checked here; the program itself notes which operation was the first.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering import jaxpr


class NumberWatch:
    """A search for NaNs and infinities in the arrays of one run.

    Attributes:
      found: descriptions of the numbers and where they were: "a NaN in results[0]".
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._nans, self._infinities = jaxpr.nan_and_inf_checks()

    def refuse_nan_and_infinity(self, name: str, array: Any) -> None:
        """Checks an array of JAX or NumPy; other processes check theirs."""
        is_local = not isinstance(array, jax.Array) or array.is_fully_addressable
        dtype = getattr(array, "dtype", None)
        if dtype is None or not is_local or not jnp.issubdtype(dtype, jnp.inexact):
            return
        numbers = np.asarray(array)
        if self._nans and np.isnan(numbers).any():
            self.found.append(f"a NaN in {name}")
        elif self._infinities and np.isinf(numbers).any():
            self.found.append(f"an infinity in {name}")

    @contextlib.contextmanager
    def watch_run(self) -> Generator[None]:
        """Checks what this thread's runs send within the block, instead of JAX's own checks."""
        enclosing_watch = get_current_number_watch()
        _local.watch = self
        try:
            with jax.debug_nans(False), jax.debug_infs(False):
                yield
        finally:
            _local.watch = enclosing_watch


def get_current_number_watch() -> NumberWatch | None:
    """Returns the watch of the runs that this thread starts now, or None."""
    return getattr(_local, "watch", None)


def make_number_watch_if_enabled() -> NumberWatch | None:
    """Returns a new watch, if `jax.debug_nans` or `jax.debug_infs` is set in this thread."""
    return NumberWatch() if any(jaxpr.nan_and_inf_checks()) else None


_local = threading.local()
