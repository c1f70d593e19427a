"""Batches of arrays in memory: those of an execution are gathered at once.

Keras picks the examples of each batch apart, which takes longer than a step of a small model.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

# Batches that are gathered together are no larger: beyond, nothing is gained by it.
BYTES = 1 << 20

Indices = slice | np.ndarray


def batches(adapter: Any, most: int) -> Iterator[Any]:
    """What `adapter.get_jax_iterator()` gives, its arrays' examples in the same order.

    Args:
      adapter: a data adapter of Keras.
      most: batches that may be gathered before the first of them is asked for.
    """
    folder = "keras.src.trainers.data_adapters"
    kind = importlib.import_module(f"{folder}.array_data_adapter").ArrayDataAdapter
    # Batches that are shuffled one by one are drawn one by one, as Keras does.
    if type(adapter) is not kind or most == 1 or adapter._shuffle == "batch":
        return adapter.get_jax_iterator()
    if not all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(adapter._inputs)):
        return adapter.get_jax_iterator()
    slicing = importlib.import_module(f"{folder}.array_slicing")
    sliceables = slicing.convert_to_sliceable(adapter._inputs, target_backend="jax")
    leaves, structure = jax.tree.flatten(sliceables)
    arrays = [leaf.array for leaf in leaves]
    size = sum(array[:1].nbytes for array in arrays) * adapter.batch_size
    count = max(1, min(most, BYTES // max(size, 1)))
    # What Keras does with each array, done with a single thing, says which examples it takes.
    indices = adapter._get_iterator(lambda _, indices: indices, 0)
    return (structure.unflatten(batch) for batch in _gathered(arrays, indices, count))


def _gathered(
    arrays: Sequence[np.ndarray], indices: Iterator[Indices], count: int
) -> Iterator[list[np.ndarray]]:
    """The examples at indices, those of so many batches picked together."""
    while together := list(itertools.islice(indices, count)):
        wholes, parts = _picked(arrays, together)
        for part in parts:
            yield [whole[part] for whole in wholes]


def _picked(
    arrays: Sequence[np.ndarray], together: list[Indices]
) -> tuple[Sequence[np.ndarray], Sequence[Indices]]:
    """Arrays of the examples of several batches, and where in them each batch is."""
    picked = [each for each in together if isinstance(each, np.ndarray)]
    if not picked:  # slices
        return arrays, together
    every = np.concatenate(picked)
    ends = list(itertools.accumulate(map(len, picked)))
    parts = [slice(end - len(each), end) for end, each in zip(ends, picked, strict=True)]
    return [array[every] for array in arrays], parts
