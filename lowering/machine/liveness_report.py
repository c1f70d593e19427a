"""Data on the liveness of tensors, for reports on what fills an IPU's memory."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Protocol

import numpy as np

_NAMED_BY_PATH = ("argument", "loop variable", "stream-in")  # they say nothing more


class OnTiles(Protocol):
    """The bytes of a tensor on each tile; a `TileMapping` or `TileBytes`."""

    @property
    def total_bytes(self) -> int:
        """Bytes on all tiles together."""
        ...

    def bytes_per_tile(self) -> np.ndarray:
        """Returns int64 [tiles]: the bytes that each tile holds."""
        ...


@dc.dataclass(frozen=True, slots=True, eq=False)
class TileBytes:
    """Bytes of a tensor by tile, without its elements, as read from a report's file.

    Attributes:
      held: int64 [tiles].
    """

    held: np.ndarray

    @property
    def total_bytes(self) -> int:
        """Bytes on all tiles together."""
        return int(self.held.sum())

    def bytes_per_tile(self) -> np.ndarray:
        """Returns int64 [tiles]: the bytes that each tile holds."""
        return self.held


def describe_owner(path: str, label: str) -> str:
    """Returns what a tensor belongs to: `params['w']`, `results[0], divide`, `matmul 64 x 512`.

    Args:
      path: the user's name of it, or "".
      label: what makes it, in words.
    """
    if path and label.endswith(_NAMED_BY_PATH):
        return path
    return ", ".join(filter(None, (path, label)))


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """A tensor on one IPU, and the steps between which it is alive.

    One that takes over the memory of another has a life of its own, which begins as the other's
    ends.

    Attributes:
      name: shape and dtype, as `float16[1024,4096]`.
      category: one of `profile.CATEGORIES`.
      operation: the primitive that makes it; "argument" and "constant" for those.
      origin: the user's `file:line`, or "".
      mapping: its bytes on each tile.
      first: the step at which it begins to live; None for one that is always there.
      last: the last step at which it is there; None for one that is always there.
      value: its number in the Program; None for one inside of a kernel.
      path: the user's name of it, as `params['w']` or `params['w']: gradient sum`, or "".
      label: what makes it, in the words that people use, as `matmul 64 x 512`.
      scope: the named scopes around what makes it, as `blocks/attention`, or "".
    """

    name: str
    category: str
    operation: str
    origin: str
    mapping: OnTiles
    first: int | None
    last: int | None
    value: int | None = None
    path: str = ""
    label: str = ""
    scope: str = ""

    @property
    def owner(self) -> str:
        """What it belongs to, see `describe_owner`."""
        return describe_owner(self.path, self.label or self.operation)

    @property
    def total_bytes(self) -> int:
        """Bytes on all tiles together."""
        return self.mapping.total_bytes

    def alive_at(self, step: int) -> bool:
        """Returns whether the tensor is alive at a step."""
        if self.first is None or self.last is None:
            return True
        return self.first <= step <= self.last


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Liveness:
    """The contents of one IPU's memory beside code, step by step, while a call runs.

    Steps are in the order in which they run; bodies of loops and tasks of pipelines are there once.

    Attributes:
      names: the names of the steps.
      origins: the user's line of each, or "".
      operations: the number of each step's operation, see `OperationTotal`; None for steps without
        one, and in reports of earlier versions.
      bytes: int64 [steps], on all tiles together: tensors that are not always alive, work space
        included.
      temporary_bytes: int64 [steps], the work space among them.
      tensors: the tensors, those that are always alive first.
    """

    names: Sequence[str]
    origins: Sequence[str]
    operations: Sequence[int | None]
    bytes: np.ndarray
    temporary_bytes: np.ndarray
    tensors: Sequence[Lifetime]

    @property
    def worst(self) -> int:
        """The first step that needs the most memory; 0 if there are no steps."""
        return int(self.bytes.argmax()) if len(self.bytes) else 0

    def alive_at(self, step: int) -> list[Lifetime]:
        """Returns the tensors that are alive at a step, largest first."""
        alive = (tensor for tensor in self.tensors if tensor.alive_at(step))
        return sorted(alive, key=lambda tensor: -tensor.total_bytes)
