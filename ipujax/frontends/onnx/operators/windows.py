"""Windows that convolutions and pooling move along the last dimensions."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import numpy as np

from ipujax.frontends.checks import check

Ints = Sequence[int]


@dc.dataclass(frozen=True)
class Windows:
    """The windows along one dimension.

    Attributes:
      size: of the dimension.
      kernel: elements of a window.
      stride: from one window to the next.
      dilation: from one element of a window to the next.
      before: elements of padding before the dimension.
      after: the same after it.
      count: how many windows there are.
    """

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    count: int

    @property
    def pads(self) -> tuple[int, int]:
        """The padding that the windows need, which is more after it where counts are rounded up."""
        end = (self.count - 1) * self.stride + self.dilation * (self.kernel - 1) + 1
        return self.before, max(end - self.size - self.before, 0)

    @property
    def indices(self) -> np.ndarray[Any, Any]:
        """Of the elements of each window [count, kernel]; some may be outside."""
        starts = np.arange(self.count) * self.stride - self.before
        return starts[:, None] + np.arange(self.kernel) * self.dilation


def windows_of(
    sizes: Ints,
    kernel: Ints,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> list[Windows]:
    """The windows along each dimension, from what ONNX says of them.

    Raises:
      FrontendError: (a `ValueError`) an `auto_pad` that does not exist.
    """
    count = len(kernel)
    strides, dilations = strides or (1,) * count, dilations or (1,) * count
    around = padding_of(sizes, kernel, strides, pads, dilations, auto_pad)
    found: list[Windows] = []
    for size, k, s, d, (before, after) in zip(
        sizes, kernel, strides, dilations, around, strict=True
    ):
        room = size + before + after - d * (k - 1) - 1
        number = (-(-room // s) if ceil_mode and auto_pad == "NOTSET" else room // s) + 1
        # A window must begin inside of the image, or of the padding before it.
        if ceil_mode and (number - 1) * s >= size + before:
            number -= 1
        found.append(Windows(size, k, s, d, before, after, number))
    return found


def padding_of(
    sizes: Ints,
    kernel: Ints,
    strides: Ints,
    pads: Ints | None,
    dilations: Ints,
    auto_pad: str = "NOTSET",
) -> list[tuple[int, int]]:
    """The padding before and after each dimension."""
    count = len(kernel)
    if auto_pad == "NOTSET":
        pads = pads or (0,) * (2 * count)
        return list(zip(pads[:count], pads[count:], strict=True))
    if auto_pad == "VALID":
        return [(0, 0)] * count
    totals = [
        max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0)
        for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    return [halves(total, auto_pad) for total in totals]


def halves(total: int, auto_pad: str) -> tuple[int, int]:
    """Padding in two parts, the larger one on the side that `auto_pad` names."""
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise check.refuse(
            f"auto_pad is {auto_pad!r}", "use NOTSET, VALID, SAME_UPPER or SAME_LOWER"
        )
    smaller, larger = total // 2, total - total // 2
    return (smaller, larger) if auto_pad == "SAME_UPPER" else (larger, smaller)


def flat_indices(parts: Sequence[Any], sizes: Ints) -> np.ndarray[Any, Any]:
    """The elements of the windows of several dimensions from those of each.

    Args:
      parts: their indices along each dimension [windows, elements].
      sizes: of the dimensions.

    Returns:
      The flat indices [windows, elements], -1 for those that are outside.
    """
    flat = np.zeros((1, 1), np.int64)
    for indices, size in zip(parts, sizes, strict=True):
        is_inside = (flat[:, None, :, None] >= 0) & ((indices >= 0) & (indices < size))[:, None]
        both = np.where(is_inside, flat[:, None, :, None] * size + indices[:, None], -1)
        flat = both.reshape(flat.shape[0] * len(indices), flat.shape[1] * indices.shape[1])
    return flat
