"""The combination of small batches into larger ones of a fixed number or size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from ipujax.ground import PyTree
from ipujax.poptorch._utils import combine_batch_tensors_gen
from ipujax.poptorch.poptorch_structures import flatten_tensors, rebuild_structure


def combine_batches(batches: Iterable[object], count: int, *, drop_last: bool) -> Iterator[PyTree]:
    """Concatenates every `count` batches along their first axis.

    Args:
      batches: structures of tensors, all alike.
      count: how many batches make a combined one.
      drop_last: whether a smaller last batch is dropped.
    """
    waiting: list[list[torch.Tensor]] = []
    batch = None
    for batch in batches:
        waiting.append(flatten_tensors(batch))
        if len(waiting) == count:
            yield _concatenate_batches(batch, waiting)
            waiting = []
    if waiting and not drop_last:
        yield _concatenate_batches(batch, waiting)


def rebatch(batches: Iterable[object], size: int, *, drop_last: bool) -> Iterator[PyTree]:
    """Yields the rows of batches again in batches of another size.

    Args:
      batches: structures of tensors, all alike but for the sizes of their first axes.
      size: rows of a new batch.
      drop_last: whether a smaller last batch is left out.
    """
    waiting: list[list[torch.Tensor]] = []
    rows = 0
    batch = None
    for batch in batches:
        tensors = flatten_tensors(batch)
        while tensors and rows + len(tensors[0]) >= size:
            missing = size - rows
            yield _concatenate_batches(batch, [*waiting, [tensor[:missing] for tensor in tensors]])
            tensors = [tensor[missing:] for tensor in tensors]
            waiting, rows = [], 0
        if tensors and len(tensors[0]):
            waiting.append(tensors)
            rows += len(tensors[0])
    if waiting and not drop_last:
        yield _concatenate_batches(batch, waiting)


def _concatenate_batches(structure: object, batches_of_tensors: list[list[torch.Tensor]]) -> PyTree:
    return rebuild_structure(structure, combine_batch_tensors_gen(batches_of_tensors))
