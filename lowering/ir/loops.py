"""What a loop of a Program says of its variables, and a pipeline of what waits in it."""

from __future__ import annotations

import dataclasses as dc

from lowering.units import IpuId, ValueId


@dc.dataclass(frozen=True, slots=True)
class Carry:
    """A loop variable: four names for one buffer on one IPU.

    Attributes:
      initial: before the loop.
      entering: as the body (and the condition) sees it.
      leaving: as the body computes it.
      final: after the loop.
    """

    initial: ValueId
    entering: ValueId
    leaving: ValueId
    final: ValueId
    ipu: IpuId


@dc.dataclass(frozen=True, slots=True)
class Slice:
    """Iteration i of a loop reads `stacked[i]` as `element`."""

    stacked: ValueId
    element: ValueId
    ipu: IpuId


@dc.dataclass(frozen=True, slots=True)
class Stack:
    """Iteration i of a loop writes `element` to `stacked[i]`."""

    element: ValueId
    stacked: ValueId
    ipu: IpuId


@dc.dataclass(frozen=True, slots=True)
class Fifo:
    """Values of a stage that wait for its backward task while other micro-batches pass.

    Attributes:
      depth: micro-batches that wait at most, the one being worked on not counted.
    """

    stage: int
    values: tuple[ValueId, ...]
    ipu: IpuId
    depth: int
