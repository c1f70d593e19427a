"""Finds what waits between the forward and backward tasks of a pipeline, and how much of it."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

from lowering import ir
from lowering.ops.tasks import Kind
from lowering.schedules import simulate
from lowering.units import IpuId, ValueId


def size_fifos(program: ir.Program) -> ir.Program:
    """Names the FIFO of each stage.

    Before: copies have been inserted.
    After:  a pipeline names, for every stage and IPU, the values that its backward task (or its
            weights task) finds there from the forward pass, each once, and for how many
            micro-batches they are kept at most.
    """
    return dc.replace(program, body=ir.with_nodes(program.body, _sized))


def _sized(node: ir.Node) -> ir.Node:
    return dc.replace(node, fifos=_fifos(node)) if isinstance(node, ir.Pipeline) else node


def _fifos(node: ir.Pipeline) -> tuple[ir.Fifo, ...]:
    if not node.schedule.training:
        return ()
    depths = simulate(node.schedule).fifo_depth
    needs = ir.Needs()
    forward: set[ir.Place] = set()
    waiting: dict[int, list[ir.Place]] = {}
    steps: list[ir.Node] = []  # a task, and the copies in front of it
    for step in node.body.steps:
        steps.append(step)
        if not isinstance(step, ir.Task):
            continue
        spec = step.spec
        if spec.kind is Kind.FORWARD:
            forward.update(p for s in steps for p in ir.births(s))
        else:
            places = waiting.setdefault(spec.stage, [])
            read = frozenset(p for s in steps for p in needs(s))
            places += sorted((read & forward).difference(places))
        steps = []
    return tuple(
        fifo for stage, places in waiting.items() for fifo in _by_ipu(stage, places, depths[stage])
    )


def _by_ipu(stage: int, places: Sequence[ir.Place], depth: int) -> list[ir.Fifo]:
    values: dict[IpuId, list[ValueId]] = {}
    for value, ipu in places:
        values.setdefault(ipu, []).append(value)
    return [ir.Fifo(stage, tuple(on_ipu), ipu, depth) for ipu, on_ipu in values.items()]
