"""`ipu_print_tensor`: prints values, and their gradients, from inside a program."""

from __future__ import annotations

import dataclasses as dc
import math
from typing import Any

import jax
import numpy as np
import torch

from ipujax.operators.printing import print_array
from ipujax.poptorch.checks import check
from ipujax.poptorch.operators import isRunningOnIpu, traced, traced_operator

_FORMATS = ("auto", "fixed", "scientific", "none")


@dc.dataclass(frozen=True)
class Style:
    """How tensors are written.

    Attributes:
      most: how many elements are written in full; 0 for any number.
      edge: of more, how many at the beginning and the end of each dimension.
      width: of a line, after which another begins; 0 for any.
      digits: of a number that count; 0 for as many as it has.
      format: "fixed", "scientific", "none" for each number its own, or "auto".
      separator: between numbers.
      opening: in front of those of a dimension.
      closing: behind them.
    """

    most: int
    edge: int
    width: int
    digits: int
    format: str
    separator: str
    opening: str
    closing: str

    def text(self, array: np.ndarray) -> str:
        """An array, over several lines if it has more than one dimension."""
        is_short = 0 < self.most < array.size
        return self._lines(array, self._format_of(array), is_short, "")

    def _lines(self, array: np.ndarray, form: str, is_short: bool, indent: str) -> str:
        if array.ndim == 0:
            return self._number(array[()], form)
        length = len(array)
        shown: list[int | None] = list(range(length))
        if is_short and length > 2 * self.edge:
            shown = [*range(self.edge), None, *range(length - self.edge, length)]
        inner = indent + " "
        parts = [
            "..." if i is None else self._lines(array[i], form, is_short, inner) for i in shown
        ]
        if array.ndim > 1:
            lines = "".join(f"{inner}{part}\n" for part in parts)
            return f"{self.opening}\n{lines}{indent}{self.closing}"
        return f"{self.opening}{self._joined(parts, indent)}{self.closing}"

    def _joined(self, parts: list[str], indent: str) -> str:
        """Numbers in lines of at most the width."""
        text, used = "", len(indent) + len(self.opening)
        for index, part in enumerate(parts):
            end = self.separator if index + 1 < len(parts) else ""
            if index and 0 < self.width < used + len(part) + len(end):
                text, used = f"{text}\n{indent}  ", len(indent) + 2
            text, used = text + part + end, used + len(part) + len(end)
        return text

    def _format_of(self, array: np.ndarray) -> str:
        """The format of all numbers of an array."""
        if self.format != "auto":
            return self.format
        sizes = np.abs(np.asarray(array, np.float64))
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        if not sizes.size:
            return "fixed"
        ratio = math.log10(sizes.max()) - math.log10(sizes.min())
        is_moderate = 1e-4 <= sizes.max() < 10 ** max(self.digits, 4)
        return "fixed" if ratio < 5 and is_moderate else "scientific"

    def _number(self, value: Any, form: str) -> str:
        if not np.issubdtype(np.asarray(value).dtype, np.inexact) or self.digits == 0:
            return str(value)
        number = float(value)
        if not math.isfinite(number):
            return str(number)
        if form == "scientific":
            return f"{number:.{self.digits - 1}e}"
        if form == "none":
            return f"{number:.{self.digits}g}"
        whole = len(str(int(abs(number))))
        return f"{number:.{max(self.digits - whole, 0)}f}"


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
    """Prints a tensor to standard error whenever the program gets there.

    Use what it returns: a print of what nobody uses is left out. With replicas each one prints.

    Args:
      tensor: what to print.
      title: to be written before it.
      print_gradient: whether the gradient is printed, too, as `<title>_gradient`.
      summarise_threshold: tensors of more elements are abridged; 0 for none.
      edge_items: how many elements at both ends of a dimension are left then.
      max_line_width: longer lines are broken; 0 for none.
      digits: of numbers; 0 for all.
      float_format: "auto", "fixed", "scientific", or "none" for each number its own.
      separator: between numbers.
      open_bracket: in front of the numbers of a dimension.
      close_bracket: behind them.

    Returns:
      The tensor.

    Raises:
      Error: arguments of wrong types, or a format that there is not.
    """
    check.instance(tensor, torch.Tensor, "the tensor of ipu_print_tensor", "a torch.Tensor")
    check.text(title, "the title of ipu_print_tensor")
    check.flag(print_gradient, "print_gradient")
    check.one_of(float_format, _FORMATS, "the float_format of ipu_print_tensor")
    numbers = {
        "summarise_threshold": summarise_threshold,
        "edge_items": edge_items,
        "max_line_width": max_line_width,
        "digits": digits,
    }
    for name, value in numbers.items():
        check.integer(value, name, at_least=0)
    if not isRunningOnIpu():
        return tensor
    return traced(
        "print_tensor", tensor, title, print_gradient, *numbers.values(), float_format,
        separator, open_bracket, close_bracket,
    )  # fmt: skip


@traced_operator(
    "print_tensor(Tensor x, str title, bool gradient, int most, int edge, int width, int digits,"
    " str format, str separator, str opening, str closing) -> Tensor",
    lambda x, *_: torch.empty_like(x),
)
def _print_tensor(x: jax.Array, title: str, gradient: bool, *style: Any) -> jax.Array:
    def show(array: jax.Array, title: str) -> jax.Array:
        prefix = f"{title}: " if title else ""
        print_array(array, lambda value: prefix + Style(*style).text(value))
        return array

    @jax.custom_vjp
    def shown(x: jax.Array) -> jax.Array:
        return show(x, title)

    def backward(_: None, cotangent: jax.Array) -> tuple[jax.Array]:
        return (show(cotangent, f"{title}_gradient") if gradient else cotangent,)

    shown.defvjp(lambda x: (show(x, title), None), backward)
    return shown(x)
