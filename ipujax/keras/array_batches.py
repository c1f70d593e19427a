"""Fast batches of in-memory arrays: the batches of one execution are gathered together.

Keras gathers each batch separately, which takes longer than a step of a small model.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ipujax.ground import PyTree

# The largest size of batches that are gathered together: larger ones gain nothing from it.
BYTES = 1 << 20

Indices = slice | np.ndarray


def iterate_batches(adapter: Any, max_gathered: int) -> Iterator[PyTree]:
    """Returns the batches of `adapter.get_jax_iterator()`, with several gathered at a time.

    Args:
      adapter: a data adapter of Keras.
      max_gathered: batches that may be gathered before the first of them is asked for.
    """
    folder = "keras.src.trainers.data_adapters"
    array_adapter_class = importlib.import_module(f"{folder}.array_data_adapter").ArrayDataAdapter
    # Batches that are shuffled one by one are drawn one by one, as Keras does.
    if type(adapter) is not array_adapter_class or max_gathered == 1 or adapter._shuffle == "batch":
        return adapter.get_jax_iterator()
    if not all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(adapter._inputs)):
        return adapter.get_jax_iterator()
    array_slicing = importlib.import_module(f"{folder}.array_slicing")
    sliceables = array_slicing.convert_to_sliceable(adapter._inputs, target_backend="jax")
    leaves, structure = jax.tree.flatten(sliceables)
    arrays = [leaf.array for leaf in leaves]
    size = sum(array[:1].nbytes for array in arrays) * adapter.batch_size
    batches_per_gather = max(1, min(max_gathered, BYTES // max(size, 1)))
    # Keras applies this function to each array; applied once, it gives the indices of the examples.
    indices = adapter._get_iterator(lambda _, indices: indices, 0)
    return (
        structure.unflatten(batch) for batch in _gather_batches(arrays, indices, batches_per_gather)
    )


def _gather_batches(
    arrays: Sequence[np.ndarray], indices: Iterator[Indices], count: int
) -> Iterator[list[np.ndarray]]:
    """Yields the batches at some indices, gathering several batches at a time."""
    while index_group := list(itertools.islice(indices, count)):
        gathered_arrays, batch_indices = _gather_index_group(arrays, index_group)
        for index in batch_indices:
            yield [array[index] for array in gathered_arrays]


def _gather_index_group(
    arrays: Sequence[np.ndarray], index_group: list[Indices]
) -> tuple[Sequence[np.ndarray], Sequence[Indices]]:
    """Returns arrays of the examples of several batches, and the index of each batch in them."""
    index_arrays = [indices for indices in index_group if isinstance(indices, np.ndarray)]
    if not index_arrays:  # slices
        return arrays, index_group
    all_indices = np.concatenate(index_arrays)
    ends = list(itertools.accumulate(map(len, index_arrays)))
    batch_slices = [
        slice(end - len(each), end) for end, each in zip(ends, index_arrays, strict=True)
    ]
    return [array[all_indices] for array in arrays], batch_slices
