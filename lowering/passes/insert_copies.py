"""The insertion of the copies that bring each value to the IPUs that read it."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Iterator

from lowering import ir
from lowering.ground import HOST, InternalError, IpuId, ValueId
from lowering.schedules import Kind, Phase, Schedule


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
        self.present: set[ir.Place] = set()
        self.needs = ir.PlacesOfReads()

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
        """Inserts copies in front of tasks; they serve later tasks only if these wait for them."""
        outside = set(self.present)
        for carry in node.carry:
            self.add_written_values((carry.entering,), carry.ipu)
        lasting = set(self.present)
        brought: dict[Kind, set[ir.Place]] = {}
        steps: list[ir.Node] = []
        for step in node.body.steps:
            kind, before = _kinds_before_task(node.schedule, step)
            self.present = lasting.union(*(brought.get(earlier, ()) for earlier in before))
            steps.extend(self.insert_copies_in_steps(ir.Sequence((step,))).steps)
            lasting.update(ir.places_of_writes(step))
            brought[kind] = self.present - lasting
        self.present = lasting.union(*brought.values())
        steps.extend(self.copies_for_reads((carry.leaving, carry.ipu) for carry in node.carry))
        self.present = outside
        return ir.Sequence(tuple(steps))

    def copies_for_reads(self, values_on_ipus: Iterable[ir.Place]) -> Iterator[ir.Copy]:
        """Yields the copies that bring values to IPUs, one per route."""
        routes: dict[tuple[IpuId, IpuId], list[ValueId]] = {}
        for value, ipu in sorted(values_on_ipus):
            if value in self.home and (value, ipu) not in self.present:
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
        outside = set(self.present)
        for value, ipu in body.arguments:
            self.add_written_values((value,), ipu)
        sequence = self.insert_copies_in_steps(body.sequence, body.results)
        self.present = outside
        return sequence


def _kinds_before_task(schedule: Schedule, task: ir.Node) -> tuple[Kind, list[Kind]]:
    """Returns the kind of a task of a pipeline, and the kinds that it waits for, of its copy."""
    if not isinstance(task, ir.Task):
        raise InternalError(f"a pipeline with a {type(task).__name__} among its tasks")
    spec = task.spec
    copy, stage = divmod(spec.stage, schedule.stages)
    phase = Phase(spec.kind.value)
    before = schedule.layout.kinds_before((phase, stage))
    first = copy * schedule.stages
    return (phase, spec.stage), [(earlier, first + other) for earlier, other in before]
