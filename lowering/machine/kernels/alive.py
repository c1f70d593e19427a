"""The tensors of a kernel that are alive at each step, and the memory they take on each tile."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lowering.machine.kernels.layouts import OperandTiles, TensorLayout


class LiveTensor(NamedTuple):
    """A tensor that is alive during some steps.

    Attributes:
      name: shape and dtype.
      operation: the primitive that makes it, or a word for what is none.
      origin: the user's `file:line`, or "".
      laid: its layout on the tiles.
      category: one of `profile.CATEGORIES`.
      value: its number in the Program; None inside of kernels.
      path: the user's name of it, or "".
      label: what makes it, in the words that people use.
      scope: the named scopes around what makes it, as `blocks/attention`, or "".
    """

    name: str
    operation: str
    origin: str
    laid: TensorLayout
    category: str = "activations"
    value: int | None = None
    path: str = ""
    label: str = ""
    scope: str = ""

    @property
    def total_bytes(self) -> int:
        """Bytes on all tiles together."""
        return self.laid.mapping.total_bytes


class _Changes:
    """The steps at which what is alive changes, or work space is there.

    Args:
      first: the first step of each tensor.
      last: the last step of each.
      space: work space at each step.
      space_tiles: how many tiles have it.
    """

    def __init__(
        self, first: np.ndarray, last: np.ndarray, space: np.ndarray, space_tiles: np.ndarray
    ) -> None:
        self._lives, self._spaces = (first, last), (space, space_tiles)

    @functools.cached_property
    def steps(self) -> Sequence[tuple[Sequence[int], int, int, Sequence[int]]]:
        """The tensors that begin, the work space and its tiles, and the tensors that end."""
        firsts: list[int] = self._lives[0].tolist()
        lasts: list[int] = self._lives[1].tolist()
        spaces, space_tiles = (numbers.tolist() for numbers in self._spaces)
        begin: list[list[int]] = [[] for _ in spaces]
        end: list[list[int]] = [[] for _ in spaces]
        for number, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
            if first <= last:
                begin[first].append(number)
                end[last].append(number)
        steps = zip(begin, spaces, space_tiles, end, strict=True)
        return [step for step in steps if step[0] or step[1] or step[3]]


@dc.dataclass(frozen=True, kw_only=True, eq=False)
class LivenessRecord:
    """The steps of a piece of a program and the tensors alive at each, beside those from before.

    A tensor is alive from its first step to its last; one whose last step comes before its first
    was never alive. Work space lies on the first tiles.

    Attributes:
      tiles: how many tiles there are.
      names: the names of the steps.
      origins: the user's line of each step.
      operations: the number of each step's operation, or None.
      bytes: int64 [steps], on all tiles together, work space included.
      space: int64 [steps], work space on each tile that has any.
      space_tiles: int64 [steps], how many tiles have it.
      tensors: all that are alive at some step.
      first: int64 [tensors].
      last: int64 [tensors].
      left: the tensors that are alive after the last step, by their keys.
      changes: the steps at which these change.
      known_peaks: `tile_peak_bytes`, if they are known already.
    """

    tiles: int
    names: tuple[str, ...]
    origins: tuple[str, ...]
    operations: tuple[int | None, ...]
    bytes: np.ndarray
    space: np.ndarray
    space_tiles: np.ndarray
    tensors: tuple[LiveTensor, ...]
    first: np.ndarray
    last: np.ndarray
    left: Mapping[object, int]
    changes: _Changes
    known_peaks: np.ndarray | None = None

    @property
    def temporary_bytes(self) -> np.ndarray:
        """int64 [steps]: work space, on all tiles together."""
        return self.space * self.space_tiles

    @property
    def step_of_peak_memory(self) -> int:
        """The first step that needs the most memory; 0 if there are no steps."""
        return int(self.bytes.argmax()) if len(self.bytes) else 0

    @property
    def peak_bytes_of_all_tiles(self) -> int:
        """Bytes on all tiles together at the step that needs the most."""
        return int(self.bytes.max(initial=0))

    def tensors_alive_at(self, step: int) -> list[LiveTensor]:
        """Returns the tensors that are alive at a step."""
        is_alive = (self.first <= step) & (step <= self.last)
        return [self.tensors[i] for i in np.flatnonzero(is_alive)]

    def for_operands(self, operand_tiles: OperandTiles) -> LivenessRecord:
        """Returns the record of a kernel whose operands begin on these tiles."""
        layouts = [tensor.laid.for_operands(operand_tiles) for tensor in self.tensors]
        pairs = list(zip(self.tensors, layouts, strict=True))
        if all(layout is tensor.laid for tensor, layout in pairs):
            return self
        tensors = (
            tensor if layout is tensor.laid else tensor._replace(laid=layout)
            for tensor, layout in pairs
        )
        return dc.replace(self, tensors=tuple(tensors), known_peaks=None)

    @functools.cached_property
    def tile_peak_bytes(self) -> np.ndarray:
        """int64 [tiles]: the most that each tile holds at any step."""
        if self.known_peaks is not None:
            return self.known_peaks
        live, peak = np.zeros((2, self.tiles), dtype=np.int64)
        held = [tensor.laid.mapping.bytes_per_tile() for tensor in self.tensors]
        for begun, space, tiles, ended in self.changes.steps:
            for number in begun:
                live += held[number]
            if space:
                used = live.copy()
                used[:tiles] += space
                np.maximum(peak, used, out=peak)
            elif ended:  # at all other steps tiles hold no more than at the next one
                np.maximum(peak, live, out=peak)
            for number in ended:
                live -= held[number]
        return peak


class MemoryTracker:
    """A running account of the tensors that are alive.

    Args:
      tiles: how many tiles there are.
    """

    def __init__(self, tiles: int) -> None:
        self._tiles = tiles
        self._total = 0
        self._alive: dict[object, int] = {}
        self._tensors: list[LiveTensor] = []
        self._first: list[int] = []
        self._last: list[int] = []
        # The columns of `LivenessRecord`, in its order.
        self._steps: list[tuple[str, str, int | None, int, int, int]] = []

    def add_tensor(self, key: object, tensor: LiveTensor) -> None:
        """Starts the life of a tensor; one with the same key is dropped first."""
        self.drop_tensor(key)
        self._begin_life(key, tensor)
        self._total += tensor.total_bytes

    def drop_tensor(self, key: object) -> LiveTensor | None:
        """Ends the life of a tensor and returns it; returns None if it was not alive."""
        if key not in self._alive:
            return None
        tensor = self._end_life(key)
        self._total -= tensor.total_bytes
        return tensor

    def hand_over_memory(self, key: object, new_key: object, tensor: LiveTensor) -> None:
        """Reuses the memory of one live tensor for another.

        The memory of a variable stays a variable's, with its name unless the new tensor has a name
        of its own.
        """
        if key not in self._alive:
            return
        old = self._end_life(key)
        changes: dict[str, Any] = {"laid": old.laid}
        if old.category == "variables":
            changes |= {"category": "variables", "path": tensor.path or old.path}
        self._begin_life(new_key, tensor._replace(**changes))

    def record_step(
        self,
        name: str,
        origin: str = "",
        temporary_bytes: float = 0.0,
        tiles: int = 0,
        operation: int | None = None,
    ) -> None:
        """Records a step with `temporary_bytes` bytes of work space on the first tiles."""
        space = round(temporary_bytes)
        self._steps.append((name, origin, operation, self._total + space * tiles, space, tiles))

    def record_body(
        self, body: LivenessRecord, surviving: Mapping[int, tuple[object, LiveTensor]] | None = None
    ) -> None:
        """Records a body that runs, with its own steps and tensors.

        Args:
          body: its liveness record.
          surviving: those of its tensors that live on, each with its new key and description; all
            others die with it.
        """
        start, number = len(self._steps), len(self._tensors)
        numbers = (body.bytes + self._total, body.space, body.space_tiles)
        step_names = body.names, body.origins, body.operations
        columns = (*step_names, *(column.tolist() for column in numbers))
        self._steps.extend(zip(*columns, strict=True))
        self._tensors.extend(body.tensors)
        self._first.extend((body.first + start).tolist())
        self._last.extend((body.last + start).tolist())
        for i, (key, tensor) in (surviving or {}).items():
            self.drop_tensor(key)
            self._alive[key] = number + i
            self._tensors[number + i] = tensor
            self._total += tensor.total_bytes

    def finish_record(self) -> LivenessRecord:
        """Returns the record of all steps and tensors."""
        last = np.array(self._last, dtype=np.int64)
        last[list(self._alive.values())] = len(self._steps) - 1
        numbers = np.array([step[3:] for step in self._steps], dtype=np.int64).reshape(-1, 3)
        bytes_, space, space_tiles = numbers.T.copy()
        first = np.array(self._first, dtype=np.int64)
        return LivenessRecord(
            tiles=self._tiles,
            names=tuple(step[0] for step in self._steps),
            origins=tuple(step[1] for step in self._steps),
            operations=tuple(step[2] for step in self._steps),
            bytes=bytes_,
            space=space,
            space_tiles=space_tiles,
            tensors=tuple(self._tensors),
            first=first,
            last=last,
            left=dict(self._alive),
            changes=_Changes(first, last, space, space_tiles),
        )

    def _begin_life(self, key: object, tensor: LiveTensor) -> None:
        self._alive[key] = len(self._tensors)
        self._tensors.append(tensor)
        self._first.append(len(self._steps))
        self._last.append(-1)

    def _end_life(self, key: object) -> LiveTensor:
        number = self._alive.pop(key)
        self._last[number] = len(self._steps) - 1
        return self._tensors[number]


class TileMemoryTracker(MemoryTracker):
    """A running account that keeps the most that each tile holds, of bodies all at once."""

    def __init__(self, tiles: int) -> None:
        super().__init__(tiles)
        self._live, self._peak = np.zeros((2, tiles), dtype=np.int64)

    def add_tensor(self, key: object, tensor: LiveTensor) -> None:
        """Starts the life of a tensor; one with the same key is dropped first."""
        super().add_tensor(key, tensor)
        self._live += tensor.laid.mapping.bytes_per_tile()

    def drop_tensor(self, key: object) -> LiveTensor | None:
        """Ends the life of a tensor and returns it; returns None if it was not alive."""
        tensor = super().drop_tensor(key)
        if tensor is not None:
            self._live -= tensor.laid.mapping.bytes_per_tile()
        return tensor

    def record_step(
        self,
        name: str,
        origin: str = "",
        temporary_bytes: float = 0.0,
        tiles: int = 0,
        operation: int | None = None,
    ) -> None:
        """Records a step with `temporary_bytes` bytes of work space on the first tiles."""
        super().record_step(name, origin, temporary_bytes, tiles, operation)
        used = self._live
        if space := round(temporary_bytes):
            used = used.copy()
            used[:tiles] += space
        np.maximum(self._peak, used, out=self._peak)

    def record_body(
        self, body: LivenessRecord, surviving: Mapping[int, tuple[object, LiveTensor]] | None = None
    ) -> None:
        """Records a body that runs, see `MemoryTracker`."""
        if len(body.bytes):
            np.maximum(self._peak, self._live + body.tile_peak_bytes, out=self._peak)
        super().record_body(body, surviving)
        for _, tensor in (surviving or {}).values():
            self._live += tensor.laid.mapping.bytes_per_tile()

    def finish_record(self) -> LivenessRecord:
        """Returns the record of all steps and tensors."""
        return dc.replace(super().finish_record(), known_peaks=self._peak.copy())
