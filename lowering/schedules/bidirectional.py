"""Schedules whose micro-batches go through the IPUs in both directions, through copies of stages.

Even micro-batches go from the first IPU to the last one, odd ones from the last to the first.
"""

from __future__ import annotations

from collections.abc import Iterable

from lowering.schedules.layout import Layout
from lowering.schedules.task import Groups, Task
from lowering.schedules.ticks import Run


def place_both_ways(ipus: Groups, micro_batches: int) -> Layout | None:
    """Returns a layout with two copies of the stages: on the IPUs in order, and in reverse.

    Args:
      ipus: the IPUs of each stage.
      micro_batches: how many there are.

    Returns:
      None where there can be no two directions: with one stage or micro-batch, or where copies of
      a stage would be on more IPUs than others.
    """
    back = ipus[::-1]
    fits = back != ipus and [*map(len, back)] == [*map(len, ipus)]
    if micro_batches < 2 or not fits:
        return None
    return Layout(micro_batches=micro_batches, copies=(ipus, back), copy_pattern=(0, 1))


def orders_by_ipu(ipus: Groups, orders: Iterable[Iterable[Run]]) -> dict[int, list[Run]]:
    """Returns the order of each IPU, from the order of each stage's group of IPUs."""
    return {ipu: list(order) for group, order in zip(ipus, orders, strict=True) for ipu in group}


def number_both_ways(task: Task, direction: int) -> Task:
    """Returns a task of one direction, whose micro-batches are counted there, as one of both."""
    return task._replace(micro_batch=2 * task.micro_batch + direction)
