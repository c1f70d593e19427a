"""Arrays that JAX reads where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

# Bytes. XLA's client for CPUs copies arrays that begin elsewhere.
_XLA_ALIGNMENT = 64


def allocate_aligned(shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    """Returns an array without values that XLA's CPU client reads where it is, without a copy."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + _XLA_ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _XLA_ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)
