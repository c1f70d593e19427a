"""Summaries of system events around programs, and of arrays in TensorBoard's format."""

from __future__ import annotations

from ipujax.operators import summary as _summary

__all__ = [
    "ipu_compile_summary",
    "tensor_summary",
]


def __dir__() -> list[str]:
    return __all__


ipu_compile_summary = _summary.ipu_compile_summary
tensor_summary = _summary.tensor_summary
