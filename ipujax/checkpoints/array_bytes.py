"""Reads the bytes of arrays right to where they stay, and sums them up in another thread."""

from __future__ import annotations

import io
import zlib
from collections.abc import Generator
from concurrent.futures import Future

import numpy as np

from ipujax.checkpoints.contents import ForeignError
from ipujax.checkpoints.leaves import Leaf
from ipujax.ground import allocate_aligned

_AT_ONCE = 2**20  # bytes: what the processor still has in its cache when it sums them up


def allocate_array(leaf: Leaf) -> np.ndarray:
    """Returns an array for the numbers of a leaf."""
    return allocate_aligned(leaf.raw_shape, np.dtype(leaf.raw_dtype))


def split_into_parts(array: np.ndarray) -> Generator[memoryview]:
    """Yields the bytes of an array in parts."""
    content = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(content), _AT_ONCE):
        yield content[start : start + _AT_ONCE]


def read_parts(file: io.BufferedReader, array: np.ndarray, leaf: Leaf) -> Generator[memoryview]:
    """Fills an array from a file, and yields each part of its bytes once that is read.

    Raises:
      ForeignError: a file that ends before.
    """
    for part in split_into_parts(array):
        if file.readinto(part) != len(part):
            raise ForeignError(f"ends in the middle of `{leaf.name}`")
        yield part


def extend_crc(part: memoryview, previous_crc: Future[int]) -> int:
    """Returns the checksum of all bytes up to a part, from the checksum of those before it."""
    return zlib.crc32(part, previous_crc.result())
