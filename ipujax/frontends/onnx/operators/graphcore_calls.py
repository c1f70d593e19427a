"""PopART's own operators that call: graphs, and the host."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Call, Ref
from ipujax.errors import FrontendError
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.table import operator
from ipujax.operators.host_calls import call_on_host
from ipujax.operators.printing import print_array

Array = jax.Array


@operator("ai.graphcore.Call")
def call_graph(
    call: Call, *inputs: Any, callee: str, captured: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """What an inner graph gives for inputs by position."""
    return call.graphs[callee](*inputs, *captured, key=call.inner_key)


@operator("ai.graphcore.PrintTensor", acts=True)
def print_tensor(
    call: Call, x: Array, print_gradient: int = 1, title: str = "", **attributes: int
) -> Array:
    """Writes `title: values` to standard error whenever it is computed, and so for the gradient.

    Without a title it is the input's name, or the result's if the input is a constant.
    """
    style, array = _Style(**attributes), jnp.asarray(x)
    read = call.node.args[0]
    name = read.name if isinstance(read, Ref) else call.node.results[0]
    print_array(array, lambda value: f"{title or name}: {style.text(value)}")
    if not print_gradient:
        return array
    of_gradient = f"{title}_gradient" if title else f"Gradient___{name}"
    return _with_gradient(array, lambda value: f"{of_gradient}: {style.text(value)}")


def _with_gradient(array: Array, text: Callable[[np.ndarray], str]) -> Array:
    """The array; its cotangent is printed."""

    @jax.custom_vjp
    def same(array: Array) -> Array:
        return array

    def backward(_: None, cotangent: Array) -> tuple[Array]:
        print_array(cotangent, text)
        return (cotangent,)

    same.defvjp(lambda array: (array, None), backward)
    return same(array) if jnp.issubdtype(array.dtype, jnp.floating) else array


@dc.dataclass(frozen=True)
class _Style:
    """How arrays are written; the fields have the names of the attributes.

    Attributes:
      summariseThreshold: how many elements are written in full.
      edgeItems: how many at each end are written of larger arrays.
      maxLineWidth: of a line.
      digits: of a number; with 0, numbers are not aligned.
      floatFormat: 0 as the numbers are, 1 without exponents, 2 with them, 3 not aligned.
      separator: the code of what is between elements.
      openBracket: the code of what is before a row.
      closeBracket: the code of what is after it.
    """

    summariseThreshold: int = 1000
    edgeItems: int = 3
    maxLineWidth: int = 75
    digits: int = 8
    floatFormat: int = 0
    separator: int = ord(" ")
    openBracket: int = ord("[")
    closeBracket: int = ord("]")

    def __post_init__(self) -> None:
        if self.floatFormat not in range(4):
            raise check.refuse(f"floatFormat is {self.floatFormat}", "use 0, 1, 2 or 3")

    def text(self, array: np.ndarray) -> str:
        """The lines that stand for an array."""
        wide = array.astype(np.float32) if array.dtype.kind in "fV" else array
        largest = np.max(np.abs(wide[np.isfinite(wide)]), initial=0)
        decimals = max(self.digits - len(str(int(largest))), 0)
        formatter: Any = None
        if self.digits == 0 or self.floatFormat == 3:
            formatter = {"all": lambda x: f"{x:.{self.digits or 6}g}"}
        elif self.floatFormat == 2:
            formatter = {"float_kind": lambda x: f"{x:.{self.digits - 1}e}"}
        written = np.array2string(
            wide, self.maxLineWidth, decimals, self.floatFormat == 1, chr(self.separator),
            threshold=self.summariseThreshold, edgeitems=self.edgeItems, floatmode="fixed",
            formatter=formatter,
        )  # fmt: skip
        return written.translate({ord("["): self.openBracket, ord("]"): self.closeBracket})


@operator("ai.graphcore.Abort", acts=True)
def abort(condition: Array | None = None) -> tuple[()]:
    """Ends the program with an error, if the condition holds on a replica or there is none."""

    def end(value: np.ndarray) -> None:
        if value.any():
            raise FrontendError("Abort Program", fix="see what the model does before its abort")

    call_on_host(jnp.asarray(True if condition is None else condition), end)
    return ()
