"""The function `ipu_print_tensor`: prints values and their gradients from inside a program."""

from __future__ import annotations

import dataclasses as dc
import math
from typing import Any

import jax
import numpy as np
import torch

from ipujax.operators import print_array
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_operators import (
    define_traced_operator,
    isRunningOnIpu,
    trace_operator,
)

_FORMATS = ("auto", "fixed", "scientific", "none")


@dc.dataclass(frozen=True)
class Style:
    """The format in which tensors are printed.

    Attributes:
      most: the greatest number of elements that are written in full; 0 for any number.
      edge: how many elements at both ends of each dimension larger tensors show.
      width: the greatest length of a line; 0 for any.
      digits: the significant digits of a number; 0 for all.
      format: "fixed", "scientific", "none" for a format for each number, or "auto".
      separator: the text between numbers.
      opening: the text before the numbers of a dimension.
      closing: the text after the numbers of a dimension.
    """

    most: int
    edge: int
    width: int
    digits: int
    format: str
    separator: str
    opening: str
    closing: str

    def format_array(self, array: np.ndarray) -> str:
        """Formats an array, over several lines if it has more than one dimension."""
        is_short = 0 < self.most < array.size
        return self._format_rows(array, self._choose_format(array), is_short, "")

    def _format_rows(
        self, array: np.ndarray, number_format: str, is_short: bool, indent: str
    ) -> str:
        if array.ndim == 0:
            return self._format_number(array[()], number_format)
        length = len(array)
        indices: list[int | None] = list(range(length))
        if is_short and length > 2 * self.edge:
            indices = [*range(self.edge), None, *range(length - self.edge, length)]
        inner_indent = indent + " "
        parts = [
            "..."
            if i is None
            else self._format_rows(array[i], number_format, is_short, inner_indent)
            for i in indices
        ]
        if array.ndim > 1:
            lines = "".join(f"{inner_indent}{part}\n" for part in parts)
            return f"{self.opening}\n{lines}{indent}{self.closing}"
        return f"{self.opening}{self._join_numbers(parts, indent)}{self.closing}"

    def _join_numbers(self, parts: list[str], indent: str) -> str:
        """Joins numbers into lines of at most the style's width."""
        text, used = "", len(indent) + len(self.opening)
        for index, part in enumerate(parts):
            end = self.separator if index + 1 < len(parts) else ""
            if index and 0 < self.width < used + len(part) + len(end):
                text, used = f"{text}\n{indent}  ", len(indent) + 2
            text, used = text + part + end, used + len(part) + len(end)
        return text

    def _choose_format(self, array: np.ndarray) -> str:
        """Chooses the number format of an array."""
        if self.format != "auto":
            return self.format
        sizes = np.abs(np.asarray(array, np.float64))
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        if not sizes.size:
            return "fixed"
        ratio = math.log10(sizes.max()) - math.log10(sizes.min())
        is_moderate = 1e-4 <= sizes.max() < 10 ** max(self.digits, 4)
        return "fixed" if ratio < 5 and is_moderate else "scientific"

    def _format_number(self, value: Any, number_format: str) -> str:
        if not np.issubdtype(np.asarray(value).dtype, np.inexact) or self.digits == 0:
            return str(value)
        number = float(value)
        if not math.isfinite(number):
            return str(number)
        if number_format == "scientific":
            return f"{number:.{self.digits - 1}e}"
        if number_format == "none":
            return f"{number:.{self.digits}g}"
        integer_digits = len(str(int(abs(number))))
        return f"{number:.{max(self.digits - integer_digits, 0)}f}"


@check.guard
def ipu_print_tensor(
    tensor: torch.Tensor,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> torch.Tensor:
    """Prints a tensor to standard error whenever the program gets to it.

    Use the tensor that it returns: an unused result is left out, and is not printed. Each replica
    prints.

    Args:
      tensor: the tensor to print.
      title: a text to print before it.
      print_gradient: whether the gradient is printed, too, as `<title>_gradient`.
      summarise_threshold: tensors of more elements are abridged; 0 for none.
      edge_items: how many elements at both ends of a dimension abridged tensors show.
      max_line_width: longer lines are broken; 0 for none.
      digits: the significant digits of numbers; 0 for all.
      float_format: "auto", "fixed", "scientific", or "none" for each number its own.
      separator: the text between numbers.
      open_bracket: the text before the numbers of a dimension.
      close_bracket: the text after the numbers of a dimension.

    Returns:
      The tensor.

    Raises:
      Error: arguments of wrong types, or a format that there is not.
    """
    check.require_instance(tensor, torch.Tensor, "the tensor of ipu_print_tensor", "a torch.Tensor")
    check.require_text(title, "the title of ipu_print_tensor")
    check.require_flag(print_gradient, "print_gradient")
    check.require_one_of(float_format, _FORMATS, "the float_format of ipu_print_tensor")
    numbers = {
        "summarise_threshold": summarise_threshold,
        "edge_items": edge_items,
        "max_line_width": max_line_width,
        "digits": digits,
    }
    for name, value in numbers.items():
        check.require_integer(value, name, at_least=0)
    if not isRunningOnIpu():
        return tensor
    return trace_operator(
        "print_tensor", tensor, title, print_gradient, *numbers.values(), float_format,
        separator, open_bracket, close_bracket,
    )  # fmt: skip


@define_traced_operator(
    "print_tensor(Tensor x, str title, bool gradient, int most, int edge, int width, int digits,"
    " str format, str separator, str opening, str closing) -> Tensor",
    lambda x, *_: torch.empty_like(x),
)
def _run_print_tensor(x: jax.Array, title: str, gradient: bool, *style: Any) -> jax.Array:
    def print_and_return(array: jax.Array, title: str) -> jax.Array:
        prefix = f"{title}: " if title else ""
        print_array(array, lambda value: prefix + Style(*style).format_array(value))
        return array

    @jax.custom_vjp
    def print_with_gradient(x: jax.Array) -> jax.Array:
        return print_and_return(x, title)

    def print_cotangent(_: None, cotangent: jax.Array) -> tuple[jax.Array]:
        return (print_and_return(cotangent, f"{title}_gradient") if gradient else cotangent,)

    print_with_gradient.defvjp(lambda x: (print_and_return(x, title), None), print_cotangent)
    return print_with_gradient(x)
