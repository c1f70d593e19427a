"""Summaries: events, and messages read back field by field."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError, OperatorError
from ipujax.events import IpuTraceEventType
from ipujax.summary_ops import ipu_compile_summary, tensor_summary
from ipujax.utils import extract_all_types_from_event_trace


def test_a_summary_tells_what_happened() -> None:
    first = ipu.compile(lambda x: x + 1, name="first")
    second = ipu.compile(lambda x: x * 2, name="second")
    summary = ipu_compile_summary("both", [first, second])
    trace = summary(np.ones(3, np.float32))
    types = extract_all_types_from_event_trace(trace)
    assert types.count(IpuTraceEventType.COMPILE_END) == 2
    assert types.count(IpuTraceEventType.EXECUTE) == 2
    assert {event.module for event in trace} == {"first", "second"}
    again = extract_all_types_from_event_trace(summary(np.ones(3, np.float32)))
    assert IpuTraceEventType.COMPILE_END not in again
    assert again.count(IpuTraceEventType.EXECUTE) == 2


def test_one_operation_and_bad_ones() -> None:
    run = ipu.compile(lambda x: x + 1)
    assert ipu_compile_summary("one", run)(1.0)
    with pytest.raises(ConfigTypeError, match="give functions"):
        ipu_compile_summary("array", jnp.ones(3))
    with pytest.raises(ConfigTypeError, match="collections"):
        ipu_compile_summary("one", run, collections=["summaries"])
    with pytest.raises(ConfigTypeError, match="give a string"):
        ipu_compile_summary(3, run)  # pyright: ignore[reportArgumentType]


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> list[tuple[int, Any]]:
    """The fields of a message: numbers as they are, everything else as bytes."""
    found, at = list[tuple[int, Any]](), 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        found.append((key >> 3, value))
    return found


def parts(message: bytes) -> tuple[dict[int, Any], dict[int, Any], list[int]]:
    """The value of a summary, its tensor, and the tensor's shape."""
    ((number, inner),) = fields(message)
    assert number == 1
    value = dict(fields(inner))
    tensor = dict(fields(value[8]))
    return value, tensor, [dict(fields(size)).get(1, 0) for _, size in fields(tensor[2])]


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (np.float32, 1),
        (np.int32, 3),
        (np.uint8, 4),
        (np.bool_, 10),
        (jnp.bfloat16, 14),
        (np.float16, 19),
    ],
)
def test_an_array_as_a_message(dtype: Any, number: int) -> None:
    x = jnp.arange(600).reshape(2, 300).astype(dtype)
    value, tensor, shape = parts(tensor_summary("loss", x))
    assert (value[1], value[7]) == (b"loss", b"loss")
    assert (tensor[1], shape) == (number, [2, 300])
    np.testing.assert_array_equal(np.frombuffer(tensor[4], dtype).reshape(2, 300), x)


def test_texts_and_metadata() -> None:
    class Metadata:
        def SerializeToString(self) -> bytes:
            return b"\x0a\x02\x0a\x00"

    message = tensor_summary(
        "loss", 3.0, "**sum**", summary_metadata=Metadata(), family="train", display_name="Loss"
    )
    value, tensor, shape = parts(message)
    assert (value[1], shape) == (b"train/loss", [])
    assert dict(fields(value[9])) == {1: b"\x0a\x00", 2: b"Loss", 3: b"**sum**"}
    assert np.frombuffer(tensor[4], np.float64) == 3.0


def test_bad_summaries() -> None:
    with pytest.raises(OperatorError, match="enqueue it to an outfeed"):
        jax.jit(lambda x: tensor_summary("loss", x))(1.0)
    with pytest.raises(OperatorError, match="array of <U1"):
        tensor_summary("loss", "x")
    with pytest.raises(ConfigTypeError, match="collections"):
        tensor_summary("loss", 1.0, collections=["summaries"])
    with pytest.raises(ConfigTypeError, match="summary_metadata"):
        tensor_summary("loss", 1.0, summary_metadata="text")
    with pytest.raises(ConfigTypeError, match="family"):
        tensor_summary("loss", 1.0, family=3)  # pyright: ignore[reportArgumentType]
