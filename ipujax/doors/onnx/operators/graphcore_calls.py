"""PopART's own operators that call inner graphs or the host."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Call, Operand, Ref
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.table import operator
from ipujax.ground import FrontendError
from ipujax.operators import call_on_host, print_array

Array = jax.Array


@operator("ai.graphcore.Call", takes_call=True)
def call_graph(
    call: Call, *inputs: Operand, callee: str, captured: Sequence[Operand] = ()
) -> tuple[Operand, ...]:
    """Calls an inner graph with inputs by position."""
    return call.graphs[callee](*inputs, *captured, key=call.inner_key)


@operator("ai.graphcore.PrintTensor", acts=True, takes_call=True)
def print_tensor(
    call: Call, x: Array, print_gradient: int = 1, title: str = "", **attributes: int
) -> Array:
    """Prints `title: values` to standard error when computed, and for the gradient.

    The default title is the input's name, or the result's if the input is a constant.
    """
    style, array = _PrintStyle(**attributes), jnp.asarray(x)
    operand = call.node.args[0]
    name = operand.name if isinstance(operand, Ref) else call.node.results[0]
    print_array(array, lambda value: f"{title or name}: {style.format_popart_array(value)}")
    if not print_gradient:
        return array
    gradient_title = f"{title}_gradient" if title else f"Gradient___{name}"
    return _print_gradient(
        array, lambda value: f"{gradient_title}: {style.format_popart_array(value)}"
    )


def _print_gradient(array: Array, text: Callable[[np.ndarray], str]) -> Array:
    """Returns the array unchanged and prints its cotangent."""

    @jax.custom_vjp
    def return_unchanged(array: Array) -> Array:
        return array

    def print_gradient_values(_: None, cotangent: Array) -> tuple[Array]:
        print_array(cotangent, text)
        return (cotangent,)

    return_unchanged.defvjp(lambda array: (array, None), print_gradient_values)
    return return_unchanged(array) if jnp.issubdtype(array.dtype, jnp.floating) else array


@dc.dataclass(frozen=True)
class _PrintStyle:
    """The print style of arrays; the fields have the names of PopART's attributes.

    Attributes:
      summariseThreshold: the largest number of elements that are written in full.
      edgeItems: the number of elements at each end that are written of larger arrays.
      maxLineWidth: the maximum number of characters of a line.
      digits: the digits of a number; with 0, numbers are not aligned.
      floatFormat: 0 as the numbers are, 1 without exponents, 2 with them, 3 not aligned.
      separator: the code of the character between elements.
      openBracket: the code of the character before a row.
      closeBracket: the code of the character after a row.
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
            raise check.value_error(f"floatFormat is {self.floatFormat}", "use 0, 1, 2 or 3")

    def format_popart_array(self, array: np.ndarray) -> str:
        """Returns the text of an array in this style."""
        printable = array.astype(np.float32) if array.dtype.kind in "fV" else array
        largest = np.max(np.abs(printable[np.isfinite(printable)]), initial=0)
        decimals = max(self.digits - len(str(int(largest))), 0)
        formatter: Operand = None
        if self.digits == 0 or self.floatFormat == 3:
            formatter = {"all": lambda x: f"{x:.{self.digits or 6}g}"}
        elif self.floatFormat == 2:
            formatter = {"float_kind": lambda x: f"{x:.{self.digits - 1}e}"}
        formatted = np.array2string(
            printable, self.maxLineWidth, decimals, self.floatFormat == 1, chr(self.separator),
            threshold=self.summariseThreshold, edgeitems=self.edgeItems, floatmode="fixed",
            formatter=formatter,
        )  # fmt: skip
        return formatted.translate({ord("["): self.openBracket, ord("]"): self.closeBracket})


@operator("ai.graphcore.Abort", acts=True)
def abort(condition: Array | None = None) -> tuple[()]:
    """Ends the program with an error, if the condition holds on a replica or there is none."""

    def raise_if_true(value: np.ndarray) -> None:
        if value.any():
            raise FrontendError("Abort Program", fix="see what the model does before its abort")

    call_on_host(jnp.asarray(True if condition is None else condition), raise_if_true)
    return ()
