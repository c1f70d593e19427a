"""Copies of row sequences between arrays, at offsets known when the program runs."""

from __future__ import annotations

from ipujax.operators import slicing as _slicing

__all__ = [
    "sequence_slice",
    "sequence_slice_pack",
    "sequence_slice_unpack",
]


def __dir__() -> list[str]:
    return __all__


sequence_slice = _slicing.sequence_slice
sequence_slice_pack = _slicing.sequence_slice_pack
sequence_slice_unpack = _slicing.sequence_slice_unpack
