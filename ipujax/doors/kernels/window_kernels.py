"""The windows that convolutions and pooling move along spatial dimensions."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import numpy as np


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
    def indices(self) -> np.ndarray[Any, Any]:
        """The element indices of each window [count, kernel]; some may be outside."""
        starts = np.arange(self.count) * self.stride - self.before
        return starts[:, None] + np.arange(self.kernel) * self.dilation


def plan_windows(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilations: Sequence[int],
    rounds_up: bool,
) -> list[Windows]:
    """Returns the windows along each dimension.

    Args:
      sizes: the size of each dimension.
      kernel: the number of elements of a window.
      strides: the distances between windows.
      padding: the numbers of padding elements before and after each dimension.
      dilations: the distances between elements of a window.
      rounds_up: whether a last window may reach beyond the padding.
    """
    windows: list[Windows] = []
    for size, k, s, (before, after), d in zip(
        sizes, kernel, strides, padding, dilations, strict=True
    ):
        last_start = size + before + after - d * (k - 1) - 1
        count = (-(-last_start // s) if rounds_up else last_start // s) + 1
        # A window must begin inside the image or inside the padding before it.
        if rounds_up and (count - 1) * s >= size + before:
            count -= 1
        windows.append(Windows(size, k, s, d, before, after, count))
    return windows
