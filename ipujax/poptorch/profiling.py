"""The trace points of the original's profiling library, as annotations of JAX's profiler."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax

from ipujax.poptorch.poptorch_checks import check

__all__ = ["Channel"]


def __dir__() -> list[str]:
    return __all__


@check.guard
class Channel:
    """A group of trace points, which a trace of `jax.profiler` shows as `name.point`.

    Args:
      name: the name of the group.
    """

    def __init__(self, name: str):
        self._name = name

    def instrument(self, obj: object, *methods: str) -> Any:
        """Makes an object's methods trace points, and returns the object.

        Args:
          obj: the object whose methods are replaced.
          methods: the names of the methods.
        """
        for method in methods:
            setattr(obj, method, self._wrap_in_tracepoint(getattr(obj, method), method))
        return obj

    def _wrap_in_tracepoint(
        self, function: Callable[..., object], name: str
    ) -> Callable[..., object]:
        @functools.wraps(function)
        def call_in_tracepoint(*args: object, **kwargs: object) -> object:
            with self.tracepoint(name):
                return function(*args, **kwargs)

        return call_in_tracepoint

    def tracepoint(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """Returns a context that is a trace point.

        Args:
          name: the name of the point.
        """
        return jax.profiler.TraceAnnotation(f"{self._name}.{name}")
