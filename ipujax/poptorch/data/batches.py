"""Small batches put together to combined ones, and cut again, without a look at who reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ipujax.poptorch.structures import flatten, rebuild


def combine(batches: Iterable[Any], count: int, *, drop_last: bool) -> Iterator[Any]:
    """Each `count` batches as one, along their first axis.

    Args:
      batches: structures of tensors, all alike.
      count: how many make one.
      drop_last: whether a rest of fewer is left out.
    """
    waiting: list[list[torch.Tensor]] = []
    batch = None
    for batch in batches:
        waiting.append(flatten(batch))
        if len(waiting) == count:
            yield _joined(batch, waiting)
            waiting = []
    if waiting and not drop_last:
        yield _joined(batch, waiting)


def rebatch(batches: Iterable[Any], size: int, *, drop_last: bool) -> Iterator[Any]:
    """The same rows in batches of another size.

    Args:
      batches: structures of tensors, all alike but for the sizes of their first axes.
      size: rows of a new batch.
      drop_last: whether a rest of fewer is left out.
    """
    waiting: list[list[torch.Tensor]] = []
    rows = 0
    batch = None
    for batch in batches:
        tensors = flatten(batch)
        while tensors and rows + len(tensors[0]) >= size:
            missing = size - rows
            yield _joined(batch, [*waiting, [tensor[:missing] for tensor in tensors]])
            tensors = [tensor[missing:] for tensor in tensors]
            waiting, rows = [], 0
        if tensors and len(tensors[0]):
            waiting.append(tensors)
            rows += len(tensors[0])
    if waiting and not drop_last:
        yield _joined(batch, waiting)


def _joined(structure: Any, parts: list[list[torch.Tensor]]) -> Any:
    columns = zip(*parts, strict=True)
    return rebuild(structure, (torch.cat(column) for column in columns))
