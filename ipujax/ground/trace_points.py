"""Trace points as the original's profiling libraries have them, as spans of the host."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import jax

from ipujax.ground import host_trace
from ipujax.ground.argument_checks import Checks
from ipujax.ground.errors import ConfigError, ConfigTypeError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_check = Checks(ConfigTypeError, ConfigError)


@_check.guard
class TraceChannel:
    """A group of trace points.

    Args:
      name: what spans of the group begin with.
    """

    def __init__(self, name: str):
        self.name = _check.require_text(name, "the name of a trace channel")


class _OpenSpans(threading.local):
    """The spans of a trace point that a thread has entered and not left, outermost first."""

    def __init__(self) -> None:
        self.stack: list[contextlib.ExitStack] = []


@_check.guard
class Tracepoint:
    """A context whose time is a span `channel.label` of the host.

    Every `ipu.host_trace.record()` has it, and every trace that `jax.profiler` takes. It may be
    entered any number of times, and in several threads.

    Args:
      channel: its group.
      label: its name.
    """

    def __init__(self, channel: TraceChannel, label: str):
        _check.require_instance(channel, TraceChannel, "the channel of a trace point")
        name = _check.require_text(label, "the label of a trace point")
        self._name = f"{channel.name}.{name}"
        self._open_spans = _OpenSpans()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as spans:
            spans.enter_context(host_trace.span(self._name))
            spans.enter_context(jax.profiler.TraceAnnotation(self._name))
            self._open_spans.stack.append(spans.pop_all())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open_spans.stack.pop().__exit__(kind, error, trace)


def createTraceChannel(name: str) -> TraceChannel:
    """Returns a group of trace points.

    Raises:
      ConfigTypeError: (a `TypeError`) a name that is no text.
    """
    return TraceChannel(name)


@_check.guard
def instrument_fn(
    channel: TraceChannel, label: str | None = None
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Returns a decorator that makes each call of a function a trace point.

    Args:
      channel: the group of the trace points.
      label: their name; by default that of the function.

    Raises:
      ConfigTypeError: (a `TypeError`) another channel or label.
    """
    _check.require_instance(channel, TraceChannel, "the channel of a function")

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call_in_tracepoint(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            with Tracepoint(channel, function.__name__ if label is None else label):
                return function(*args, **kwargs)

        return call_in_tracepoint

    return decorate


@_check.guard
def instrument(obj: Any, methods: Iterable[str], channel: TraceChannel) -> Any:
    """Makes an object's methods trace points, and returns the object.

    Args:
      obj: the object whose methods are replaced.
      methods: the names of the methods.
      channel: the group of the trace points.

    Raises:
      ConfigTypeError: (a `TypeError`) another channel, or methods that the object does not have.
    """
    _check.require_instance(channel, TraceChannel, "the channel of methods")
    names = [
        _check.require_text(name, "the name of a method")
        for name in _check.require_iterable(methods, "methods", "names of methods")
    ]
    for name in names:
        if not callable(getattr(obj, name, None)):
            raise ConfigTypeError(
                f"{type(obj).__name__} has no method {name!r}: instrument takes an object and the "
                "names of its methods"
            )
    for name in names:
        setattr(obj, name, instrument_fn(channel, name)(getattr(obj, name)))
    return obj
