"""Trace points of the original's profiling library, as spans of JAX's profiler."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax

from ipujax.poptorch.checks import check

__all__ = ["Channel"]


def __dir__() -> list[str]:
    return __all__


@check.guard
class Channel:
    """A group of trace points, which a trace of `jax.profiler` shows as `name.point`.

    Args:
      name: of the group.
    """

    def __init__(self, name: str):
        self._name = name

    def instrument(self, obj: Any, *methods: str) -> Any:
        """Has an object's methods be trace points; gives the object back.

        Args:
          obj: whose attributes are replaced.
          methods: their names.
        """
        for method in methods:
            setattr(obj, method, self._traced(getattr(obj, method), method))
        return obj

    def _traced(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            with self.tracepoint(name):
                return function(*args, **kwargs)

        return traced

    def tracepoint(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """A context that is a trace point.

        Args:
          name: of the point.
        """
        return jax.profiler.TraceAnnotation(f"{self._name}.{name}")
