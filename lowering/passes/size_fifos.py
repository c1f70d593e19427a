"""The size of the FIFOs between the forward and backward tasks of a pipeline."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping

from lowering import ir
from lowering.ground import IpuId, ValueId
from lowering.ops import TaskRole, TaskSpec
from lowering.schedules import Phase, Schedule, count_waiting, spread_copies


def size_fifos(program: ir.Program) -> ir.Program:
    """Lists the FIFOs of each stage of a pipeline.

    Before: copies have been inserted.
    After:  a pipeline names, for every stage and IPU, the values of the forward pass that its
            backward task (or its weights task) reads there, each once, and for how many
            micro-batches they are kept at most; so too what its backward task leaves to the
            weights task, and what tasks that offload, load or compute again read and leave.
    """
    return dc.replace(
        program,
        body=ir.rewrite_nodes(
            program.body, lambda node: add_fifos(node) if isinstance(node, ir.Pipeline) else node
        ),
    )


def add_fifos(node: ir.Pipeline) -> ir.Pipeline:
    """Returns a pipeline with the FIFOs that its schedule needs; see `size_fifos`."""
    return dc.replace(node, fifos=_fifos_of_pipeline(node))


def _fifos_of_pipeline(node: ir.Pipeline) -> tuple[ir.Fifo, ...]:
    if not node.schedule.training:
        return ()
    spread = spread_copies(node.schedule)
    reads_of_node = ir.PlacesOfReads()
    maker: dict[ir.Place, TaskSpec] = {}
    waits: dict[int, dict[ir.Place, tuple[TaskSpec, TaskSpec]]] = {}
    steps: list[ir.Node] = []  # a task, and the copies in front of it
    for step in node.body.steps:
        steps.append(step)
        if not isinstance(step, ir.Task):
            continue
        spec = step.spec
        if spec.kind is not TaskRole.FORWARD:
            read = {p for s in steps for p in reads_of_node(s)}
            of_stage = waits.setdefault(spec.stage, {})
            for place in sorted(read & maker.keys()):
                # A gradient that another stage's backward task reads is on its way there.
                if (maker[place].kind, spec.kind) != (TaskRole.BACKWARD, TaskRole.BACKWARD):
                    of_stage[place] = maker[place], spec
        written = (p for s in steps for p in ir.places_of_writes(s))
        maker.update((p, spec) for p in written)
        steps = []
    return tuple(
        fifo for stage, waiting in waits.items() for fifo in _fifos_of_stage(spread, stage, waiting)
    )


def _fifos_of_stage(
    spread: Schedule, stage: int, waiting: Mapping[ir.Place, tuple[TaskSpec, TaskSpec]]
) -> list[ir.Fifo]:
    """Returns the FIFOs of a stage, from the first and the last task of what waits in them."""
    depths = {
        tasks: count_waiting(spread, *((Phase(task.kind.value), task.stage) for task in tasks))
        for tasks in set(waiting.values())
    }
    values: dict[tuple[IpuId, int], list[ValueId]] = {}
    for (value, ipu), tasks in waiting.items():
        values.setdefault((ipu, depths[tasks]), []).append(value)
    return [ir.Fifo(stage, tuple(on_ipu), *place) for place, on_ipu in values.items()]
