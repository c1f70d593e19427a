"""Summaries of system events around programs, and of arrays in TensorBoard's format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import jax
import numpy as np

from ipujax.ground import IpuTraceEvent, PyTree, check, events, values_if_known

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
    check.require_text(name, "the name of ipu_compile_summary")
    _refuse_collections("ipu_compile_summary", collections)
    several = isinstance(op_list, (list, tuple))
    operations = list(cast(Sequence[PyTree], op_list)) if several else [op_list]
    for operation in operations:
        fix = "give functions that run programs, such as ipu.compile(fn)"
        check.require_function(operation, "an operation of ipu_compile_summary", fix)

    def run_and_collect(*args: PyTree, **kwargs: PyTree) -> list[IpuTraceEvent]:
        with events.record() as trace, events.span("summary", name):
            for operation in operations:
                jax.block_until_ready(operation(*args, **kwargs))
        return trace

    return run_and_collect


@check.guard
def tensor_summary(
    name: str,
    tensor: object,
    summary_description: str | None = None,
    collections: object = None,
    summary_metadata: object = None,
    family: str | None = None,
    display_name: str | None = None,
) -> bytes:
    """Returns an array as a serialized `Summary` protocol buffer (seed 001, 18.14.18).

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
    check.require_text(name, "the name of tensor_summary")
    argument = "the summary_description of tensor_summary"
    check.require_text(summary_description, argument, optional=True)
    check.require_text(family, "the family of tensor_summary", optional=True)
    check.require_text(display_name, "the display_name of tensor_summary", optional=True)
    values = values_if_known(tensor)
    if values is None:
        raise check.value_error(
            "tensor_summary got an array that is being traced, whose values are not known yet",
            "return it, or enqueue it to an outfeed, and summarise it on the host",
        )
    tag = f"{family}/{name}" if family else name
    metadata = _serialize_metadata(summary_metadata)
    metadata += _encode_field(2, (display_name or "").encode())
    metadata += _encode_field(3, (summary_description or "").encode())
    value = _encode_field(1, tag.encode()) + _encode_field(7, name.encode())
    return _encode_field(
        1,
        value + _encode_field(8, _encode_tensor(values)) + _encode_field(9, metadata),
        always=True,
    )


# --- protocol buffers (tensorflow/core/framework: summary, tensor, tensor_shape) ------------------


def _encode_tensor(values: np.ndarray) -> bytes:
    number = _TYPES.get(values.dtype.name)
    if number is None:
        raise check.value_error(
            f"tensor_summary got an array of {values.dtype}", f"use one of {', '.join(_TYPES)}"
        )
    sizes = b"".join(
        _encode_field(2, _encode_number_field(1, size), always=True) for size in values.shape
    )
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return (
        _encode_number_field(1, number)
        + _encode_field(2, sizes, always=True)
        + _encode_field(4, little.tobytes())
    )


def _serialize_metadata(message: object) -> bytes:
    if message is None or isinstance(message, bytes):
        return message or b""
    serialize = getattr(message, "SerializeToString", None)
    if serialize is None:
        raise check.type_error(
            f"the summary_metadata of tensor_summary is a {type(message).__name__}",
            "give a SummaryMetadata message, or its bytes",
        )
    return serialize()


def _encode_field(number: int, content: bytes, *, always: bool = False) -> bytes:
    """Encodes a field of bytes, text or a message; leaves out an empty one unless `always`."""
    if not content and not always:
        return b""
    return bytes([*_encode_varint(number << 3 | 2), *_encode_varint(len(content))]) + content


def _encode_number_field(number: int, value: int) -> bytes:
    return bytes([*_encode_varint(number << 3), *_encode_varint(value)])


def _encode_varint(value: int) -> Iterator[int]:
    """Encodes an integer as a protocol buffer varint: seven bits a byte, lowest first."""
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


def _refuse_collections(function: str, collections: object) -> None:
    if collections is not None:
        raise check.type_error(
            f"{function} was given collections, but there are none", "leave them out"
        )
