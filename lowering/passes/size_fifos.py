"""The size of the FIFOs between the forward and backward tasks of a pipeline."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

from lowering import ir
from lowering.ground import IpuId, ValueId
from lowering.ops import TaskRole
from lowering.schedules import fifo_depths


def size_fifos(program: ir.Program) -> ir.Program:
    """Lists the FIFOs of each stage of a pipeline.

    Before: copies have been inserted.
    After:  a pipeline names, for every stage and IPU, the values of the forward pass that its
            backward task (or its weights task) reads there, each once, and for how many
            micro-batches they are kept at most.
    """
    return dc.replace(program, body=ir.rewrite_nodes(program.body, _add_fifos))


def _add_fifos(node: ir.Node) -> ir.Node:
    return (
        dc.replace(node, fifos=_fifos_of_pipeline(node)) if isinstance(node, ir.Pipeline) else node
    )


def _fifos_of_pipeline(node: ir.Pipeline) -> tuple[ir.Fifo, ...]:
    if not node.schedule.training:
        return ()
    depths = fifo_depths(node.schedule)
    reads_of_node = ir.PlacesOfReads()
    forward: set[ir.Place] = set()
    waiting: dict[int, list[ir.Place]] = {}
    steps: list[ir.Node] = []  # a task, and the copies in front of it
    for step in node.body.steps:
        steps.append(step)
        if not isinstance(step, ir.Task):
            continue
        spec = step.spec
        if spec.kind is TaskRole.FORWARD:
            forward.update(p for s in steps for p in ir.places_of_writes(s))
        else:
            values_on_ipus = waiting.setdefault(spec.stage, [])
            read = frozenset(p for s in steps for p in reads_of_node(s))
            values_on_ipus += sorted((read & forward).difference(values_on_ipus))
        steps = []
    return tuple(
        fifo
        for stage, places in waiting.items()
        for fifo in _fifos_of_stage(stage, places, depths[stage])
    )


def _fifos_of_stage(stage: int, values_on_ipus: Sequence[ir.Place], depth: int) -> list[ir.Fifo]:
    values: dict[IpuId, list[ValueId]] = {}
    for value, ipu in values_on_ipus:
        values.setdefault(ipu, []).append(value)
    return [ir.Fifo(stage, tuple(on_ipu), ipu, depth) for ipu, on_ipu in values.items()]
