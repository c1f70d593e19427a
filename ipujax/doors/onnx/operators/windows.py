"""Windows that convolutions and pooling move along spatial dimensions."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check

Ints = Sequence[int]


@dc.dataclass(frozen=True)
class Windows:
    """The windows along one dimension.

    Attributes:
      size: the size of the dimension.
      kernel: the number of elements of a window.
      stride: the distance between windows.
      dilation: the distance between elements of a window.
      before: the number of padding elements before the dimension.
      after: the number of padding elements after it.
      count: the number of windows.
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
        """The padding that the windows need, larger at the end where counts are rounded up."""
        end = (self.count - 1) * self.stride + self.dilation * (self.kernel - 1) + 1
        return self.before, max(end - self.size - self.before, 0)

    @property
    def indices(self) -> np.ndarray:
        """The element indices of each window [count, kernel]; some may be outside."""
        starts = np.arange(self.count) * self.stride - self.before
        return starts[:, None] + np.arange(self.kernel) * self.dilation


def plan_windows(
    sizes: Ints,
    kernel: Ints,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> list[Windows]:
    """Returns the windows along each dimension for ONNX's pooling attributes.

    Raises:
      FrontendError: (a `ValueError`) `auto_pad` is unknown.
    """
    count = len(kernel)
    strides, dilations = strides or (1,) * count, dilations or (1,) * count
    padding = padding_per_dimension(sizes, kernel, strides, pads, dilations, auto_pad)
    windows: list[Windows] = []
    for size, k, s, d, (pad_before, pad_after) in zip(
        sizes, kernel, strides, dilations, padding, strict=True
    ):
        last_start = size + pad_before + pad_after - d * (k - 1) - 1
        number = (
            -(-last_start // s) if ceil_mode and auto_pad == "NOTSET" else last_start // s
        ) + 1
        # A window must begin inside the image or inside the padding before it.
        if ceil_mode and (number - 1) * s >= size + pad_before:
            number -= 1
        windows.append(Windows(size, k, s, d, pad_before, pad_after, number))
    return windows


def padding_per_dimension(
    sizes: Ints,
    kernel: Ints,
    strides: Ints,
    pads: Ints | None,
    dilations: Ints,
    auto_pad: str = "NOTSET",
) -> list[tuple[int, int]]:
    """Returns the padding before and after each dimension."""
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
    return [split_same_padding(total, auto_pad) for total in totals]


def split_same_padding(total: int, auto_pad: str) -> tuple[int, int]:
    """Splits SAME padding in two, the larger part on the side that `auto_pad` names."""
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise check.value_error(
            f"auto_pad is {auto_pad!r}", "use NOTSET, VALID, SAME_UPPER or SAME_LOWER"
        )
    smaller, larger = total // 2, total - total // 2
    return (smaller, larger) if auto_pad == "SAME_UPPER" else (larger, smaller)


def flat_indices(indices_per_dimension: Sequence[Operand], sizes: Ints) -> np.ndarray:
    """Combines window indices along each dimension to flat indices.

    Args:
      indices_per_dimension: for each dimension, the element indices [windows, elements].
      sizes: the sizes of the dimensions.

    Returns:
      The flat indices [windows, elements], -1 for those that are outside.
    """
    flat = np.zeros((1, 1), np.int64)
    for indices, size in zip(indices_per_dimension, sizes, strict=True):
        is_inside = (flat[:, None, :, None] >= 0) & ((indices >= 0) & (indices < size))[:, None]
        both = np.where(is_inside, flat[:, None, :, None] * size + indices[:, None], -1)
        flat = both.reshape(flat.shape[0] * len(indices), flat.shape[1] * indices.shape[1])
    return flat
