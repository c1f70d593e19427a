"""PopART's own operators that call: graphs, and the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipujax.frontends.graphs import Call
from ipujax.frontends.onnx.operators.table import operator


@operator("ai.graphcore.Call")
def call_graph(
    call: Call, *inputs: Any, callee: str, captured: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """What an inner graph gives for inputs by position."""
    return call.graphs[callee](*inputs, *captured, key=call.inner_key)
