"""Windows that convolutions and pooling move along spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from ipujax.doors import kernels
from ipujax.doors.models import check

Ints = Sequence[int]


def plan_windows(
    sizes: Ints,
    kernel: Ints,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> list[kernels.Windows]:
    """Returns the windows along each dimension for ONNX's pooling attributes.

    Raises:
      FrontendError: (a `ValueError`) `auto_pad` is unknown.
    """
    count = len(kernel)
    strides, dilations = strides or (1,) * count, dilations or (1,) * count
    padding = padding_per_dimension(sizes, kernel, strides, pads, dilations, auto_pad)
    rounds_up = bool(ceil_mode) and auto_pad == "NOTSET"
    return kernels.plan_windows(sizes, kernel, strides, padding, dilations, rounds_up)


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
