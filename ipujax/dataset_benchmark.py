"""Benchmarks of data sets and infeeds: their throughput per epoch, as JSON."""

from __future__ import annotations

from ipujax.host import dataset_benchmark as _dataset_benchmark

__all__ = [
    "dataset_benchmark",
    "infeed_benchmark",
]


def __dir__() -> list[str]:
    return __all__


dataset_benchmark = _dataset_benchmark.dataset_benchmark
infeed_benchmark = _dataset_benchmark.infeed_benchmark
