"""The trace points of PopTorch's profiling module, which are those of `ipujax.libpvti`."""

from __future__ import annotations

from typing import Any

from ipujax.ground import trace_points
from ipujax.poptorch.poptorch_checks import check

__all__ = ["Channel"]


def __dir__() -> list[str]:
    return __all__


@check.guard
class Channel:
    """A group of trace points, which `ipu.host_trace` and `jax.profiler` show as `name.point`.

    Args:
      name: the name of the group.
    """

    def __init__(self, name: str):
        self._channel = trace_points.TraceChannel(name)

    def instrument(self, obj: object, *methods: str) -> Any:
        """Makes an object's methods trace points, and returns the object.

        Args:
          obj: the object whose methods are replaced.
          methods: the names of the methods.

        Raises:
          ConfigTypeError: (a `TypeError`) methods that the object does not have.
        """
        return trace_points.instrument(obj, methods, self._channel)

    def tracepoint(self, name: str) -> trace_points.Tracepoint:
        """Returns a context that is a trace point.

        Args:
          name: the name of the point.
        """
        return trace_points.Tracepoint(self._channel, name)
