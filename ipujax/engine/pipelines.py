"""Replays a pipeline: the tasks of all micro-batches, in the order of its schedule.

Every micro-batch has its own values, which its tasks drop as soon as none of its later tasks reads
them; what is left between tasks is what the schedule's FIFOs hold. Kernels are only dispatched
here, so those of independent tasks overlap as far as the devices let them.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import jax

from ipujax.engine.lanes import LANE_OPERATIONS, MAXIMUM_LANES, cores_of, run_lanes
from ipujax.engine.transfers import Receiving
from ipujax.errors import OutOfRangeError
from ipujax.host.session import Session
from lowering import count_operations, ir, pipelines, schedules

if TYPE_CHECKING:
    from ipujax.engine.replay import Machine, Values

Phase = tuple[int, pipelines.Kind]


class PipelinedLoop:
    """A loop over micro-batches whose body is tasks, as a step of the machine that runs it."""

    def __init__(self, machine: Machine, node: ir.Pipeline):
        self.node, self.schedule = node, node.schedule
        bodies = _tasks(node.body)
        needs = ir.Needs()
        read = {phase: needs(body) for phase, body in bodies.items()}
        born = {phase: frozenset(ir.births(body)) for phase, body in bodies.items()}
        self.inside = frozenset[ir.Place]().union(*born.values())
        entering = {(c.entering, c.ipu) for c in node.carry}
        self.outside = tuple(frozenset[ir.Place]().union(*read.values()) - self.inside - entering)
        self.tasks = {p: _Task(machine, body, node, read[p]) for p, body in bodies.items()}
        self.touched = {phase: read[phase] | born[phase] for phase in bodies}
        self.lanes = self._lanes(machine)
        # What comes from the host, as a literal does, is not the pipeline's to overwrite.
        lent: defaultdict[ir.IpuId, list[ir.Carry]] = defaultdict(list)
        for c in node.carry:
            if machine.is_hosted(c.initial):
                lent[c.ipu].append(c)
        self.lent = [
            (carry, machine.copying([c.initial for c in carry], ipu)) for ipu, carry in lent.items()
        ]
        taken = (step for step in ir.walk(node.body) if isinstance(step, ir.StreamIn))
        self.infeeds = tuple(dict.fromkeys(step.queue for step in taken))
        steps = (step for task in self.tasks.values() for step in task.steps)
        self.receiving = [step for step in steps if isinstance(step, Receiving)]

    def _lanes(self, machine: Machine) -> list[frozenset[int]]:
        """The stages by the thread that dispatches their tasks.

        XLA's CPU client runs what one thread dispatches to a device in order; so that stages on
        one device overlap, each lane has a thread of its own, if tasks are worth waking it.
        """
        operations = [task.operations for task in self.tasks.values()]
        mean = sum(operations) / max(len(operations), 1)
        ipus = sorted({ipu for stage in self.schedule.ipus for ipu in stage})
        count = min(MAXIMUM_LANES, cores_of(machine.placement), len(ipus))
        if count < 2 or mean < LANE_OPERATIONS:
            return [frozenset(range(self.schedule.stages))]
        lanes: list[set[int]] = [set() for _ in range(count)]
        for stage, (ipu, *_) in enumerate(self.schedule.ipus):
            lanes[ipus.index(ipu) * count // len(ipus)].add(stage)
        return [frozenset(stages) for stages in lanes if stages]

    def steps(self, stages: Collection[int]) -> Iterator[Step]:
        """The tasks of some stages as they come, with what no later task of theirs touches.

        One by one: a pipeline may have more of them than there is room for.
        """

        @functools.cache
        def passed(
            before: frozenset[Phase], phase: Phase
        ) -> tuple[frozenset[Phase], tuple[ir.Place, ...]]:
            """What has run after a task, and what is dead then."""
            ran = before | {phase}
            left = (self.touched[p] for p in self.tasks if p not in ran)
            alive = frozenset[ir.Place]().union(*left)
            dead = (p for p in self.touched[phase] if p in self.inside and p not in alive)
            return ran, tuple(dead)

        ran: dict[int, frozenset[Phase]] = {}
        for tick in self.schedule.ticks:
            for task in tick:
                phase = (task.stage, pipelines.Kind(task.phase.value))
                if phase not in self.tasks:
                    continue
                before = ran.pop(task.micro_batch, frozenset[Phase]())
                after, dead = passed(before, phase)
                is_last = len(after) == len(self.tasks)
                if not is_last:
                    ran[task.micro_batch] = after
                if task.stage in stages:
                    yield Step(task, len(before), is_last, self.tasks[phase], dead)

    def __call__(self, values: Values, session: Session) -> None:
        """Runs all micro-batches."""
        for queue in self.infeeds:
            session.expect(queue, self.schedule.micro_batches)
        for step in self.receiving:
            step.expect(session, self.schedule.micro_batches)
        run = _Run(self, values, session)
        lanes = [self.steps(stages) for stages in self.lanes]
        with session.interrupts.handled_at_once():
            has_run = len(lanes) > 1 and run_lanes(lanes, run.do)
        if not has_run:
            for step in self.steps(range(self.schedule.stages)):
                run.do(step)
        for c, buffer in zip(self.node.carry, run.buffers, strict=True):
            values[c.final, c.ipu] = buffer


class _Run:
    """One execution of a pipelined loop.

    Attributes:
      buffers: the loop variables.
      under_way: the values of each micro-batch that has some.
    """

    def __init__(self, loop: PipelinedLoop, values: Values, session: Session):
        self.loop, self.session = loop, session
        copies: dict[ir.ValueId, jax.Array] = {}
        for lent, copy in loop.lent:
            arrays = copy(*(values[c.initial, c.ipu] for c in lent))
            copies.update(zip((c.entering for c in lent), arrays, strict=True))
        carry = loop.node.carry
        self.buffers = [copies.get(c.entering, values.get((c.initial, c.ipu))) for c in carry]
        self.shared = {place: values[place] for place in loop.outside}
        self.under_way: dict[int, Values] = {}

    def do(self, step: Step) -> None:
        """Runs a task, and drops what its micro-batch does not need any more."""
        number = step.task.micro_batch
        values = self.under_way.get(number)
        if values is None:
            values = self.under_way[number] = dict(self.shared)
        is_last = number == self.loop.schedule.micro_batches - 1
        try:
            step.runner(values, self.buffers, self.session, is_last)
        except OutOfRangeError as error:
            raise self.exhausted(error, number) from None
        for place in step.dead:
            values.pop(place, None)
        if len(values) == len(self.shared):
            del self.under_way[number]
            for queue in self.loop.infeeds:
                self.session.feeder(queue).completed(1)

    def exhausted(self, error: OutOfRangeError, number: int) -> OutOfRangeError:
        """The error of one micro-batch as that of all of them."""
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
      runner: what the task does.
      dead: what its micro-batch does not need any more.
    """

    task: schedules.Task
    rank: int
    is_last: bool
    runner: _Task
    dead: tuple[ir.Place, ...]


class _Task:
    """What a task does for any micro-batch.

    Attributes:
      steps: the copies in front of it, and its own.
      adds: places at which it finds a buffer and leaves it, and the buffer's number.
      leaves: places whose value in the last micro-batch outlives the pipeline.
      operations: of one micro-batch, roughly.
    """

    def __init__(
        self, machine: Machine, body: ir.Sequence, loop: ir.Pipeline, read: Collection[ir.Place]
    ):
        born = set(ir.births(body))
        self.adds: list[tuple[ir.Place, ir.Place, int]] = []
        self.leaves: list[tuple[ir.Place, int]] = []
        for number, c in enumerate(loop.carry):
            entering, leaving = (c.entering, c.ipu), (c.leaving, c.ipu)
            if leaving in born and entering in read:
                self.adds.append((entering, leaving, number))
            elif leaving in born:
                self.leaves.append((leaving, number))
        nodes = ir.opened(body.steps)
        kernels = (node.kernel for node in nodes if isinstance(node, ir.Execute))
        self.operations = sum(count_operations(kernel.jaxpr.jaxpr) for kernel in kernels)
        donated = frozenset(place for place, _, _ in self.adds)
        self.steps = [machine.step(node, donated) for node in nodes]

    def __call__(
        self, values: Values, buffers: list[jax.Array | None], session: Session, is_last: bool
    ) -> None:
        """Runs the task on the values of a micro-batch."""
        for place, _, number in self.adds:
            values[place] = buffers[number]
        for step in self.steps:
            step(values, session)
        for before, after, number in self.adds:
            del values[before]
            buffers[number] = values.pop(after)
        if is_last:
            for place, number in self.leaves:
                buffers[number] = values[place]


def _tasks(body: ir.Sequence) -> dict[Phase, ir.Sequence]:
    """The steps of each task, the copies in front of it among them."""
    tasks: dict[Phase, ir.Sequence] = {}
    waiting: list[ir.Node] = []
    for node in body.steps:
        waiting.append(node)
        if isinstance(node, ir.Task):
            tasks[node.spec.stage, node.spec.kind] = ir.Sequence(tuple(waiting))
            waiting = []
    return tasks
