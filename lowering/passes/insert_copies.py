"""The insertion of the copies that bring each value to the IPUs that read it."""

from __future__ import annotations

import contextlib
import dataclasses as dc
from collections.abc import Callable, Generator, Iterable, Iterator

from lowering import ir
from lowering.ground import HOST, InternalError, IpuId, ValueId
from lowering.ops import TaskSpec
from lowering.schedules import Phase, Schedule


def insert_copies(program: ir.Program) -> ir.Program:
    """Adds copies, so that every value is present on the IPUs that read it.

    Before: values live only where they are written; arguments and constants on the host.
    After:  every read finds its value on its own IPU; what a loop only reads is copied once,
            before the loop; results are on the host.
    """
    presence = _ValuePresence()
    presence.add_written_values((*program.inputs, *(value for value, _ in program.constants)), HOST)
    body = presence.insert_copies_in_steps(
        program.body, ((value, HOST) for value in program.outputs)
    )
    return dc.replace(program, body=body)


class _ValuePresence:
    """The IPUs on which each value is present, while a program is walked."""

    def __init__(self) -> None:
        self.home: dict[ValueId, IpuId] = {}
        self.present: set[ir.Place] = set()  # in the innermost body
        self.is_around: list[Callable[[ir.Place], bool]] = []  # in the bodies around it
        self.needs = ir.PlacesOfReads()

    def is_present(self, place: ir.Place) -> bool:
        return place in self.present or any(is_there(place) for is_there in self.is_around)

    @contextlib.contextmanager
    def inner_body(self, *also_present: Callable[[ir.Place], bool]) -> Generator[set[ir.Place]]:
        """Gives what becomes present in a body; behind it, that is present no more."""
        around, is_around = self.present, self.is_around
        self.present, self.is_around = set(), [*is_around, around.__contains__, *also_present]
        yield self.present
        self.present, self.is_around = around, is_around

    def add_written_values(self, values: Iterable[ValueId], ipu: IpuId) -> None:
        for value in values:
            self.home[value] = ipu
            self.present.add((value, ipu))

    def insert_copies_in_steps(
        self, body: ir.Sequence, results: Iterable[ir.Place] = ()
    ) -> ir.Sequence:
        steps: list[ir.Node] = []
        for node in body.steps:
            steps.extend(self.copies_for_reads(self.needs(node)))
            steps.append(self.insert_copies_in_bodies(node))
            for value, ipu in ir.places_of_writes(node):
                self.add_written_values((value,), ipu)
        steps.extend(self.copies_for_reads(results))
        return ir.Sequence(tuple(steps))

    def insert_copies_between_tasks(self, node: ir.Pipeline) -> ir.Sequence:
        """Inserts copies in front of tasks; they serve later tasks only if these wait for them.

        A stage takes what others have made in front of its next task, whichever of its tasks reads
        it: so it waits in this stage, and not in the one that made it.
        """
        brought = _BroughtCopies(node.schedule)
        reads_of_stages = self._collect_reads_of_stages(node)
        makers: dict[ValueId, TaskSpec] = {}
        steps: list[ir.Node] = []
        with self.inner_body() as lasting:
            for carry in node.carry:
                self.add_written_values((carry.entering,), carry.ipu)
            for step in node.body.steps:
                task = _spec_of_task(step)
                arrived = {
                    (value, ipu)
                    for value, ipu in reads_of_stages[task.stage]
                    if value in makers and brought.runs_before(makers[value], task)
                }
                with self.inner_body(brought.are_before(task)) as in_task:
                    steps.extend(self.copies_for_reads(arrived.union(self.needs(step))))
                    steps.extend(self.insert_copies_in_steps(ir.Sequence((step,))).steps)
                lasting.update(ir.places_of_writes(step))
                makers.update((value, task) for value, _ in ir.places_of_writes(step))
                brought.add(in_task - lasting, task)
            with self.inner_body(brought.are_at_end):
                leaving = [(carry.leaving, carry.ipu) for carry in node.carry]
                steps.extend(self.copies_for_reads(leaving))
        return ir.Sequence(tuple(steps))

    def _collect_reads_of_stages(self, node: ir.Pipeline) -> dict[int, set[ir.Place]]:
        reads: dict[int, set[ir.Place]] = {}
        for step in node.body.steps:
            reads.setdefault(_spec_of_task(step).stage, set()).update(self.needs(step))
        return reads

    def copies_for_reads(self, values_on_ipus: Iterable[ir.Place]) -> Iterator[ir.Copy]:
        """Yields the copies that bring values to IPUs, one per route."""
        routes: dict[tuple[IpuId, IpuId], list[ValueId]] = {}
        for value, ipu in sorted(values_on_ipus):
            if value in self.home and not self.is_present((value, ipu)):
                self.present.add((value, ipu))
                routes.setdefault((self.home[value], ipu), []).append(value)
        for source, target in sorted(routes):
            yield ir.Copy(tuple(routes[source, target]), source, target)

    def insert_copies_in_bodies(self, node: ir.Node) -> ir.Node:
        """Returns the node with copies inside its bodies."""
        if isinstance(node, ir.Pipeline):
            return dc.replace(node, body=self.insert_copies_between_tasks(node))
        if isinstance(node, ir.Task):  # its copies serve all steps that follow
            return ir.rewrite_bodies(node, lambda body: self.insert_copies_in_steps(body.sequence))
        return ir.rewrite_bodies(node, self.insert_copies_in_body)

    def insert_copies_in_body(self, body: ir.Body) -> ir.Sequence:
        """Inserts copies in a body, so that its results are on their IPUs at its end."""
        with self.inner_body():
            for value, ipu in body.arguments:
                self.add_written_values((value,), ipu)
            return self.insert_copies_in_steps(body.sequence, body.results)


class _BroughtCopies:
    """The values that copies in front of a pipeline's tasks have brought to other IPUs.

    They are there for tasks that wait for these tasks: those of the same copy of the stages.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._bringers: dict[ir.Place, list[TaskSpec]] = {}

    def add(self, places: Iterable[ir.Place], task: TaskSpec) -> None:
        """Adds what the copies in front of a task have brought."""
        for place in places:
            self._bringers.setdefault(place, []).append(task)

    def are_before(self, task: TaskSpec) -> Callable[[ir.Place], bool]:
        """Returns what tells whether a value is on an IPU before a task."""
        return lambda place: any(
            self.runs_before(bringer, task) for bringer in self._bringers.get(place, ())
        )

    def are_at_end(self, place: ir.Place) -> bool:
        """Tells whether a value is on an IPU after all tasks."""
        return place in self._bringers

    def runs_before(self, earlier: TaskSpec, later: TaskSpec) -> bool:
        """Tells whether a task waits for another one, of the same copy of the stages."""
        (copy, first), (other_copy, second) = (
            divmod(task.stage, self._schedule.stages) for task in (earlier, later)
        )
        kinds = (Phase(earlier.kind.value), first), (Phase(later.kind.value), second)
        return copy == other_copy and self._schedule.layout.runs_before(*kinds)


def _spec_of_task(step: ir.Node) -> TaskSpec:
    if not isinstance(step, ir.Task):
        raise InternalError(f"a pipeline with a {type(step).__name__} among its tasks")
    return step.spec
