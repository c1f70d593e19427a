"""Looks for the numbers that `jax.debug_nans` and `jax.debug_infs` ask about in what a run gives.

JAX looks at what each jitted function returns, and calls it once more, operation by operation, if
something is wrong. A program cannot be run twice: its queues would go on. So its results and what
it sends are looked at here; which operation was the first is noted by the program itself.
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
    """Watches one run.

    Attributes:
      found: of what was wrong, which number it was and where: "a NaN in results[0]".
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._nans, self._infinities = jaxpr.number_checks()

    def look_at(self, name: str, array: Any) -> None:
        """Looks at an array of JAX's or NumPy's; what only other processes have is theirs."""
        is_here = not isinstance(array, jax.Array) or array.is_fully_addressable
        dtype = getattr(array, "dtype", None)
        if dtype is None or not is_here or not jnp.issubdtype(dtype, jnp.inexact):
            return
        numbers = np.asarray(array)
        if self._nans and np.isnan(numbers).any():
            self.found.append(f"a NaN in {name}")
        elif self._infinities and np.isinf(numbers).any():
            self.found.append(f"an infinity in {name}")

    @contextlib.contextmanager
    def watch_run(self) -> Generator[None]:
        """In the block, what this thread's runs send is looked at, and JAX looks at nothing."""
        outer = get_current_watch()
        _local.watch = self
        try:
            with jax.debug_nans(False), jax.debug_infs(False):
                yield
        finally:
            _local.watch = outer


def get_current_watch() -> NumberWatch | None:
    """What watches the runs that this thread starts now."""
    return getattr(_local, "watch", None)


def make_wanted_watch() -> NumberWatch | None:
    """A new watch, if this thread asks for one (`jax.debug_nans`, `jax.debug_infs`)."""
    return NumberWatch() if any(jaxpr.number_checks()) else None


_local = threading.local()
