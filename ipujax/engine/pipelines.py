"""Replays a pipeline: the tasks of all micro-batches, in the order of its schedule.

Every micro-batch has its own values, which its tasks drop as soon as none of its later tasks reads
them; the values kept between tasks are those in the schedule's FIFOs. Kernels are only dispatched
here, so those of independent tasks overlap as far as the devices let them.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, cast

import jax
import numpy as np

from ipujax.engine.lanes import (
    LANE_OPERATIONS,
    MAXIMUM_LANES,
    count_lane_cores,
    run_lanes_if_configured_alike,
)
from ipujax.engine.queue_session import Session
from ipujax.engine.transfers import Receiving
from ipujax.ground import OutOfRangeError
from lowering import count_operations, ir, pipelines, schedules

if TYPE_CHECKING:
    from ipujax.engine.replay import Machine, Values

# Finding a task and its dead values takes some us of each call; keeping it, some 200 bytes.
REMEMBERED_TASKS = 10_000

Phase = tuple[int, pipelines.TaskRole]


class PipelinedLoop:
    """A loop over micro-batches whose body is tasks, as a step of the machine that runs it."""

    def __init__(self, machine: Machine, node: ir.Pipeline):
        self.node, self.schedule = node, schedules.spread_copies(node.schedule)
        bodies = _split_into_tasks(node.body)
        needs = ir.PlacesOfReads()
        read = {phase: needs(body) for phase, body in bodies.items()}
        born = {phase: frozenset(ir.places_of_writes(body)) for phase, body in bodies.items()}
        self.inside = frozenset[ir.Place]().union(*born.values())
        entering = {(c.entering, c.ipu) for c in node.carry}
        self.outside = tuple(frozenset[ir.Place]().union(*read.values()) - self.inside - entering)
        self.tasks = {p: _Task(machine, body, node, read[p]) for p, body in bodies.items()}
        self.numbers_tasks = bool(node.counters) and (
            len(node.schedule.copies) > 1 or not schedules.runs_forward_in_order(node.schedule)
        )
        self.touched = {phase: read[phase] | born[phase] for phase in bodies}
        self.lanes = self._assign_lanes(machine)
        self.remembered_tasks: dict[frozenset[int], list[Step]] = {}
        # What comes from the host, as a literal does, is not the pipeline's to overwrite.
        lent: defaultdict[ir.IpuId, list[ir.Carry]] = defaultdict(list)
        for c in node.carry:
            if machine.comes_from_host(c.initial):
                lent[c.ipu].append(c)
        self.lent = [
            (carry, machine.build_copier([c.initial for c in carry], ipu))
            for ipu, carry in lent.items()
        ]
        stream_ins = (step for step in ir.walk_nodes(node.body) if isinstance(step, ir.StreamIn))
        self.infeeds = tuple(dict.fromkeys(step.queue for step in stream_ins))
        self.receiving = [
            (step, schedules.count_micro_batches(node.schedule, stage))
            for (stage, _), task in self.tasks.items()
            for step in task.steps
            if isinstance(step, Receiving)
        ]

    def _assign_lanes(self, machine: Machine) -> list[frozenset[int]]:
        """Returns the stages that each thread dispatches.

        XLA's CPU client runs what one thread dispatches to a device in order; so that stages on
        one device overlap, each lane has a thread of its own, if tasks are worth waking it.
        """
        operations = [task.operations for task in self.tasks.values()]
        mean = sum(operations) / max(len(operations), 1)
        ipus = sorted({ipu for stage in self.schedule.ipus for ipu in stage})
        count = min(MAXIMUM_LANES, count_lane_cores(machine.placement), len(ipus))
        # Stages and their copies use a queue in the order of micro-batches.
        shares_queues = len(self.node.schedule.copies) > 1 and any(
            isinstance(step, (ir.StreamIn, ir.StreamOut)) for step in ir.walk_nodes(self.node.body)
        )
        if count < 2 or mean < LANE_OPERATIONS or shares_queues:
            return [frozenset(range(self.schedule.stages))]
        lanes: list[set[int]] = [set() for _ in range(count)]
        for stage, (ipu, *_) in enumerate(self.schedule.ipus):
            lanes[ipus.index(ipu) * count // len(ipus)].add(stage)
        return [frozenset(stages) for stages in lanes if stages]

    def tasks_of_stages(self, stages: frozenset[int]) -> Iterable[Step]:
        """Returns the tasks of some stages in order; those of short pipelines are remembered."""
        if len(self.tasks) * self.schedule.micro_batches > REMEMBERED_TASKS:
            return self.iterate_tasks_of_stages(stages)
        if stages not in self.remembered_tasks:
            self.remembered_tasks[stages] = list(self.iterate_tasks_of_stages(stages))
        return self.remembered_tasks[stages]

    def iterate_tasks_of_stages(self, stages: Collection[int]) -> Iterator[Step]:
        """Yields the tasks of some stages in order, with the values that are dead after each.

        One by one: a pipeline may have more of them than there is room for.
        """

        @functools.cache
        def find_dead_values(
            finished: frozenset[Phase], phase: Phase
        ) -> tuple[frozenset[Phase], tuple[ir.Place, ...]]:
            """Returns the phases that have run after a task, and the values that are dead then."""
            ran = finished | {phase}
            later_touched = (self.touched[p] for p in self.tasks if p not in ran)
            alive = frozenset[ir.Place]().union(*later_touched)
            dead = (p for p in self.touched[phase] if p in self.inside and p not in alive)
            return ran, tuple(dead)

        stages_of_copy = self.node.schedule.stages
        tasks_of_copy = Counter(stage // stages_of_copy for stage, _ in self.tasks)
        ran: dict[int, frozenset[Phase]] = {}
        for tick in self.schedule.ticks:
            for task in tick:
                phase = (task.stage, pipelines.TaskRole(task.phase.value))
                if phase not in self.tasks:
                    continue
                finished_phases = ran.pop(task.micro_batch, frozenset[Phase]())
                phases_after, dead = find_dead_values(finished_phases, phase)
                is_last = len(phases_after) == tasks_of_copy[task.stage // stages_of_copy]
                if not is_last:
                    ran[task.micro_batch] = phases_after
                if task.stage in stages:
                    yield Step(task, len(finished_phases), is_last, self.tasks[phase], dead)

    def __call__(self, values: Values, session: Session) -> None:
        """Runs all micro-batches."""
        for queue in self.infeeds:
            session.announce_single_elements(queue, self.schedule.micro_batches)
        for step, count in self.receiving:
            step.announce_messages(session, count)
        run = _Run(self, values, session)
        lanes = [self.tasks_of_stages(stages) for stages in self.lanes]
        with session.interrupts.handle_interrupts_immediately():
            has_run = len(lanes) > 1 and run_lanes_if_configured_alike(lanes, run.run_task)
        if not has_run:
            for step in self.tasks_of_stages(frozenset(range(self.schedule.stages))):
                run.run_task(step)
        for c, buffer in zip(self.node.carry, run.buffers, strict=True):
            values[c.final, c.ipu] = buffer


class _Run:
    """One run of a pipelined loop.

    Attributes:
      buffers: the loop variables.
      under_way: the values of each micro-batch that is under way.
    """

    def __init__(self, loop: PipelinedLoop, values: Values, session: Session):
        self.loop, self.session = loop, session
        copies: dict[ir.ValueId, jax.Array] = {}
        for lent, copy in loop.lent:
            arrays = copy(*(values[c.initial, c.ipu] for c in lent))
            copies.update(zip((c.entering for c in lent), arrays, strict=True))
        carry = loop.node.carry
        self.buffers = [copies.get(c.entering, values.get((c.initial, c.ipu))) for c in carry]
        self.shared = {value_key: values[value_key] for value_key in loop.outside}
        self.under_way: dict[int, Values] = {}

    def run_task(self, step: Step) -> None:
        """Runs a task, and drops the values that its micro-batch no longer needs."""
        number = step.task.micro_batch
        values = self.under_way.get(number)
        if values is None:
            values = self.under_way[number] = dict(self.shared)
        is_last = number == self.loop.schedule.micro_batches - 1
        try:
            if self.loop.numbers_tasks:
                step.runner.set_counters(self.buffers, number)
            step.runner(values, self.buffers, self.session, is_last)
        except OutOfRangeError as error:
            raise self.end_of_data_error(error, number) from None
        for value_key in step.dead:
            values.pop(value_key, None)
        if len(values) == len(self.shared):
            del self.under_way[number]
            for queue in self.loop.infeeds:
                self.session.get_single_element_feeder(queue).forget_used_elements(1)

    def end_of_data_error(self, error: OutOfRangeError, number: int) -> OutOfRangeError:
        """Builds the error of all micro-batches from that of one micro-batch."""
        return OutOfRangeError(
            str(error),
            requested=self.loop.schedule.micro_batches * error.requested,
            available=number * error.requested + error.available,
            infeed=error.infeed,
        )


@dc.dataclass(frozen=True, eq=False)
class Step:
    """A task of the schedule.

    Attributes:
      task: stage, phase and micro-batch.
      rank: how many tasks of its micro-batch stand before it.
      is_last: whether none stands behind it.
      runner: the compiled steps of the task.
      dead: the values that its micro-batch no longer needs.
    """

    task: schedules.Task
    rank: int
    is_last: bool
    runner: _Task
    dead: tuple[ir.Place, ...]


class _Task:
    """The compiled steps of one task, for any micro-batch.

    Attributes:
      steps: the copies in front of it, and its own.
      adds: the values through which it reads and writes a buffer, and the buffer's number.
      counters: the buffers that are the number of the micro-batch.
      leaves: values whose last micro-batch outlives the pipeline, with their numbers.
      operations: the approximate number of operations of one micro-batch.
    """

    def __init__(
        self, machine: Machine, body: ir.Sequence, loop: ir.Pipeline, read: Collection[ir.Place]
    ):
        born = set(ir.places_of_writes(body))
        self.adds: list[tuple[ir.Place, ir.Place, int]] = []
        self.leaves: list[tuple[ir.Place, int]] = []
        for number, c in enumerate(loop.carry):
            entering, leaving = (c.entering, c.ipu), (c.leaving, c.ipu)
            if leaving in born and entering in read:
                self.adds.append((entering, leaving, number))
            elif leaving in born:
                self.leaves.append((leaving, number))
        nodes = ir.inline_tasks(body.steps)
        kernels = (node.kernel for node in nodes if isinstance(node, ir.Execute))
        self.operations = sum(count_operations(kernel.jaxpr.jaxpr) for kernel in kernels)
        counters = set(loop.counters)
        self.counters = [number for key, _, number in self.adds if key[0] in counters]
        donated = frozenset(value_key for value_key, _, _ in self.adds)
        self.steps = [machine.build_step(node, donated) for node in nodes]

    def set_counters(self, buffers: list[jax.Array | None], micro_batch: int) -> None:
        """Sets the loop variables that are the number of the micro-batch."""
        for number in self.counters:
            buffer = cast(jax.Array, buffers[number])
            buffers[number] = _fill_with_number(buffer, np.int32(micro_batch))

    def __call__(
        self, values: Values, buffers: list[jax.Array | None], session: Session, is_last: bool
    ) -> None:
        """Runs the task on the values of a micro-batch."""
        for value_key, _, number in self.adds:
            values[value_key] = buffers[number]
        for step in self.steps:
            step(values, session)
        for entering_key, leaving_key, number in self.adds:
            del values[entering_key]
            buffers[number] = values.pop(leaving_key)
        if is_last:
            for value_key, number in self.leaves:
                buffers[number] = values[value_key]


@jax.jit
def _fill_with_number(buffer: jax.Array, number: np.int32) -> jax.Array:
    """Returns an array like another one, where that is, filled with a number."""
    return buffer * 0 + number


def _split_into_tasks(body: ir.Sequence) -> dict[Phase, ir.Sequence]:
    """Splits a pipeline's body into its tasks, each with the copies in front of it."""
    tasks: dict[Phase, ir.Sequence] = {}
    waiting: list[ir.Node] = []
    for node in body.steps:
        waiting.append(node)
        if isinstance(node, ir.Task):
            tasks[node.spec.stage, node.spec.kind] = ir.Sequence(tuple(waiting))
            waiting = []
    return tasks
