"""The distribution of a vector's elements over the threads of a tile."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ipujax.tessellate.exceptions import require


def make_num_elements_per_worker(N: int, num_workers: int) -> np.ndarray:
    """Returns int32 [num_workers]: N elements in parts that differ by one at most."""
    require(num_workers > 0, "there is no worker")
    numbers = np.arange(num_workers)
    return (N // num_workers + (numbers < N % num_workers)).astype(np.int32)


def _deal_grains(
    size: int, vector_size: int, num_workers: int, grain_size: int | None, overlaps: bool
) -> tuple[np.ndarray, int]:
    """Returns the number of grains of each worker, and of vectors in a grain."""
    grain_size = grain_size or vector_size
    require(size % 2 == 0, "the size is odd")
    require(grain_size % vector_size == 0, "a grain is no whole number of vectors")
    require(size >= grain_size, f"the size is less than a grain of {grain_size}")
    require(overlaps or size % grain_size == 0, f"the size is no multiple of a grain, {grain_size}")
    grains_per_worker = math.ceil(size / (grain_size * num_workers))
    full_workers = size // (grain_size * grains_per_worker)
    grains = np.zeros(num_workers, np.int64)
    grains[:full_workers] = grains_per_worker
    if full_workers < num_workers:
        grains[full_workers] = math.ceil(
            (size - full_workers * grains_per_worker * grain_size) / grain_size
        )
    return grains, grain_size // vector_size


def make_ipu_vector1d_worker_offsets_and_sizes(
    size: int,
    vector_size: int = 2,
    num_workers: int = 6,
    wdtype: Any = np.uint16,
    allow_overlap: bool = False,
    grain_size: int | None = None,
) -> np.ndarray:
    """Returns [num_workers, 2]: the first vector of each worker, and how many it has.

    Args:
      size: the elements.
      vector_size: elements of a vector: 2 of float, 4 of half.
      num_workers: the threads.
      wdtype: the dtype of the result.
      allow_overlap: whether the last part may begin within the one before, to be of whole grains.
      grain_size: elements that stay together; those of a vector by default.
    """
    grains, scale = _deal_grains(size, vector_size, num_workers, grain_size, allow_overlap)
    sizes = grains * scale
    starts = np.where(sizes > 0, np.cumsum(sizes) - sizes, 0)
    last = size // int(sizes[0] * vector_size)
    if last < num_workers:  # it ends with the vector, and may begin within the part before
        starts[last] = size // vector_size - sizes[last]
    return np.stack([starts, sizes], 1).astype(wdtype)


def make_ipu_vector1d_worker_offsets(
    size: int,
    vector_size: int = 2,
    num_workers: int = 6,
    wdtype: Any = np.uint16,
    grain_size: int | None = None,
) -> np.ndarray:
    """Returns [num_workers + 1]: the first vector of each worker, and the end of the last.

    Args:
      size: the elements.
      vector_size: elements of a vector: 2 of float, 4 of half.
      num_workers: the threads.
      wdtype: the dtype of the result.
      grain_size: elements that stay together; those of a vector by default.
    """
    grains, scale = _deal_grains(size, vector_size, num_workers, grain_size, False)
    return np.concatenate([[0], np.cumsum(grains * scale)]).astype(wdtype)
