"""Summaries: what the system did while programs ran, and arrays in TensorBoard's form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import jax
import numpy as np

from ipujax import events
from ipujax.checks.arrays import check, known
from ipujax.events import IpuTraceEvent

__all__ = ["ipu_compile_summary", "tensor_summary"]


def __dir__() -> list[str]:
    return __all__


# TensorFlow's numbers for element types (types.proto).
_TYPES = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}


@check.guard
def ipu_compile_summary(
    name: str, op_list: Any, collections: Any = None
) -> Callable[..., list[IpuTraceEvent]]:
    """Runs operations and tells what the system did for them (seed 001, 18.14.18).

    The operations of the original's graph are functions here, and so is their summary::

        summary = ipu_compile_summary("first step", step)
        types = utils.extract_all_types_from_event_trace(summary(x))

    A program that has been compiled before the summary runs gives no events of its compilation.
    To keep results as well, use `events.record()` around the calls instead.

    Args:
      name: of the span that `host_trace` records for it.
      op_list: a function, compiled with `ipu.compile` or calling such ones, or a list of them.
      collections: must be None; there are no collections.

    Returns:
      A function that calls the operations in order, each with its own arguments, waits for their
      results, and returns the events, in order of time.

    Raises:
      ConfigTypeError: (a `TypeError`) for arguments of wrong types.
    """
    check.text(name, "the name of ipu_compile_summary")
    _refuse_collections("ipu_compile_summary", collections)
    several = isinstance(op_list, (list, tuple))
    operations = list(cast(Sequence[Any], op_list)) if several else [op_list]
    for operation in operations:
        fix = "give functions that run programs, such as ipu.compile(fn)"
        check.function(operation, "an operation of ipu_compile_summary", fix)

    def summary(*args: Any, **kwargs: Any) -> list[IpuTraceEvent]:
        with events.record() as trace, events.span("summary", name):
            for operation in operations:
                jax.block_until_ready(operation(*args, **kwargs))
        return trace

    return summary


@check.guard
def tensor_summary(
    name: str,
    tensor: Any,
    summary_description: str | None = None,
    collections: Any = None,
    summary_metadata: Any = None,
    family: str | None = None,
    display_name: str | None = None,
) -> bytes:
    """An array as a serialized `Summary` protocol buffer (seed 001, 18.14.18).

    Args:
      name: its tag in TensorBoard, and its node's name.
      tensor: an array of numbers or booleans whose values are there: compiled code returns it, or
        sends it through an outfeed, and the host makes the summary.
      summary_description: a description, in Markdown.
      collections: must be None; there are no collections.
      summary_metadata: a `SummaryMetadata` message (anything with `SerializeToString`), or its
        bytes; the texts given here are added to it.
      family: what the tag begins with, before a slash.
      display_name: what TensorBoard shows instead of the tag.

    Returns:
      The message.

    Raises:
      OperatorError: (a `ValueError`) for an array that is being traced, or whose elements are
        neither numbers nor booleans.
      ConfigTypeError: (a `TypeError`) for arguments of wrong types.
    """
    _refuse_collections("tensor_summary", collections)
    check.text(name, "the name of tensor_summary")
    what = "the summary_description of tensor_summary"
    check.text(summary_description, what, optional=True)
    check.text(family, "the family of tensor_summary", optional=True)
    check.text(display_name, "the display_name of tensor_summary", optional=True)
    values = known(tensor)
    if values is None:
        raise check.refuse(
            "tensor_summary got an array that is being traced, whose values are not known yet",
            "return it, or enqueue it to an outfeed, and summarise it on the host",
        )
    tag = f"{family}/{name}" if family else name
    metadata = _serialized(summary_metadata)
    metadata += _field(2, (display_name or "").encode())
    metadata += _field(3, (summary_description or "").encode())
    value = _field(1, tag.encode()) + _field(7, name.encode())
    return _field(1, value + _field(8, _tensor(values)) + _field(9, metadata), always=True)


# --- protocol buffers (tensorflow/core/framework: summary, tensor, tensor_shape) ------------------


def _tensor(values: np.ndarray[Any, Any]) -> bytes:
    number = _TYPES.get(values.dtype.name)
    if number is None:
        raise check.refuse(
            f"tensor_summary got an array of {values.dtype}", f"use one of {', '.join(_TYPES)}"
        )
    sizes = b"".join(_field(2, _number(1, size), always=True) for size in values.shape)
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return _number(1, number) + _field(2, sizes, always=True) + _field(4, little.tobytes())


def _serialized(message: Any) -> bytes:
    if message is None or isinstance(message, bytes):
        return message or b""
    if not hasattr(message, "SerializeToString"):
        raise check.refuse_type(
            f"the summary_metadata of tensor_summary is a {type(message).__name__}",
            "give a SummaryMetadata message, or its bytes",
        )
    return message.SerializeToString()


def _field(number: int, content: bytes, *, always: bool = False) -> bytes:
    """A field of bytes, text or a message; an empty one is left out unless it means something."""
    if not content and not always:
        return b""
    return bytes([*_varint(number << 3 | 2), *_varint(len(content))]) + content


def _number(number: int, value: int) -> bytes:
    return bytes([*_varint(number << 3), *_varint(value)])


def _varint(value: int) -> Iterator[int]:
    """Seven bits a byte, the lowest first; all but the last have the highest bit set."""
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


def _refuse_collections(function: str, collections: Any) -> None:
    if collections is not None:
        raise check.refuse_type(
            f"{function} was given collections, but there are none", "leave them out"
        )
