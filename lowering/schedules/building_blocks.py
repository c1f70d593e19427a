"""Schedules that run one building block again for each micro-batch, as tightly as memory allows.

A block has a time for each task of a micro-batch; that of the next one is a round later. An IPU
takes its tasks in the order of these times, but runs one ahead of those that still wait for their
inputs, if what comes before it then still fits in memory (Qi et al., "Pipeline Parallelism with
Controllable Memory", arXiv 2405.15362, reorder and squeeze in the same way).
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence

from lowering.schedules.earliest_ticks import dispatch_key
from lowering.schedules.needs_table import inputs_of_task
from lowering.schedules.task import Kind, Phase, Task
from lowering.schedules.ticks import Run, Tick, Ticks

_LOOK_AHEAD = 48  # tasks of an IPU's order that may run before its first one


@dc.dataclass(frozen=True, slots=True)
class Block:
    """The times of one micro-batch's tasks, and how to follow them.

    Attributes:
      times: for each kind of task, when it runs, in ticks.
      lazy: whether gradients of weights only run where nothing else can.
      reserves: whether there is always room for a forward task of a position's last stage, which
        keeps to the memory although the order alone would not.
    """

    times: Mapping[Kind, int]
    lazy: bool
    reserves: bool = False


@dc.dataclass(frozen=True, slots=True)
class BlockPipeline:
    """A pipeline on which a block is repeated.

    Attributes:
      positions: the position of each stage, from 0: stages at one position share their IPUs.
      memory: the most micro-batches in flight at a position, of all its stages together.
    """

    positions: Sequence[int]
    memory: int

    @property
    def round_ticks(self) -> int:
        """The ticks of a micro-batch at a position."""
        return 3 * len(self.positions) // len(set(self.positions))


def repeat_blocks(
    pipeline: BlockPipeline, blocks: Sequence[Block], micro_batches: int
) -> Ticks | None:
    """Follows each block and returns the shortest ticks; None if all need more memory.

    Many micro-batches repeat the steady state of few.
    """
    few = min(micro_batches, len(pipeline.positions) + 2 * pipeline.round_ticks)
    candidates = [ticks for block in blocks if (ticks := _follow_block(pipeline, block, few))]
    for ticks in sorted(candidates, key=len):
        repeated = _repeat_steady_state(pipeline, ticks, micro_batches - few)
        if repeated is not None:
            return repeated
    return None


def _follow_block(pipeline: BlockPipeline, block: Block, micro_batches: int) -> list[Tick] | None:
    """Returns the ticks of a block's order; None if the order itself needs more memory."""
    orders = _orders_of_block(pipeline, block, micro_batches)
    for order in orders:
        if not block.reserves and _most_in_flight(order) > pipeline.memory:
            return None
    inputs = {kind: inputs_of_task(*kind, len(pipeline.positions)) for kind in block.times}
    done = dict.fromkeys(block.times, 0)  # each kind runs in the order of micro-batches
    in_flight = [0] * len(orders)
    last = [max(task.stage for task in order) for order in orders]
    ticks: list[Tick] = []
    while any(orders):
        tick: list[Task] = []
        for position, order in enumerate(orders):
            room = pipeline.memory - in_flight[position]
            index = _choose_task(order[:_LOOK_AHEAD], inputs, done, room, block, last[position])
            if index is not None:
                tick.append(order.pop(index))
                in_flight[position] += _change_in_flight(tick[-1])
        if not tick:
            return None  # what is needed next is out of sight
        for stage, phase, _ in tick:
            done[phase, stage] += 1
        ticks.append(tuple(sorted(tick, key=dispatch_key)))
    return ticks


def _orders_of_block(pipeline: BlockPipeline, block: Block, micro_batches: int) -> list[list[Task]]:
    """Returns the order of tasks at each position."""
    orders: list[list[Task]] = []
    for position in range(len(set(pipeline.positions))):
        timed = [
            (time + pipeline.round_ticks * number, phase, Task(stage, phase, number))
            for (phase, stage), time in block.times.items()
            if pipeline.positions[stage] == position
            for number in range(micro_batches)
        ]
        orders.append([task for _, _, task in sorted(timed)])
    return orders


def _choose_task(
    order: Sequence[Task],
    inputs: Mapping[Kind, Sequence[Kind]],
    done: Mapping[Kind, int],
    room: int,
    block: Block,
    last_stage: int,
) -> int | None:
    """Returns the index of the task that a position's IPUs run next; None if they can run none.

    Args:
      order: the next tasks.
      inputs: the kinds of tasks whose results those of each kind read.
      done: how many tasks of each kind have run.
      room: how many more micro-batches may be in flight.
      block: the block.
      last_stage: the last stage at the position.
    """
    in_flight, most, postponed = 0, 0, None
    for index, (stage, phase, number) in enumerate(order):
        is_forward, is_weights = phase is Phase.FORWARD, phase is Phase.WEIGHTS
        needed = stage != last_stage if block.reserves else most
        may_run = needed < room if is_forward else postponed is None or not is_weights
        if may_run and all([done[input_kind] > number for input_kind in inputs[phase, stage]]):
            if not is_weights or not block.lazy:
                return index
            postponed = index
        in_flight += is_forward - is_weights
        most = in_flight if in_flight > most else most
    return postponed


def _change_in_flight(task: Task) -> int:
    return (task.phase == Phase.FORWARD) - (task.phase == Phase.WEIGHTS)


def _most_in_flight(order: Sequence[Task]) -> int:
    in_flight = most = 0
    for task in order:
        in_flight += _change_in_flight(task)
        most = max(most, in_flight)
    return most


def _repeat_steady_state(
    pipeline: BlockPipeline, ticks: Sequence[Tick], extra_rounds: int
) -> Ticks | None:
    """Runs a round of the steady state again for more micro-batches; None if there is none.

    After a round, each stage has run one more task of each phase than before.
    """
    if not extra_rounds:
        return Ticks([Run(tuple(ticks))])
    length = pipeline.round_ticks
    kinds = 3 * len(pipeline.positions)
    for begin in range(len(ticks) - length):
        tasks = [task for tick in ticks[begin : begin + length] for task in tick]
        if len(tasks) == kinds == len({(task.phase, task.stage) for task in tasks}):
            later = [
                tuple(Task(stage, phase, number + extra_rounds) for stage, phase, number in tick)
                for tick in ticks[begin + length :]
            ]
            warm_up, steady = tuple(ticks[:begin]), tuple(ticks[begin : begin + length])
            return Ticks([Run(warm_up), Run(steady, 1 + extra_rounds, 1), Run(tuple(later))])
    return None
