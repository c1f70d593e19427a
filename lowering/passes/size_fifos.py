"""Finds what waits between the forward and backward tasks of a pipeline, and how much of it."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

from lowering.ir import program as ir
from lowering.ir.liveness import Needs
from lowering.ir.places import Place, births
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
    return dc.replace(program, body=_sequence(program.body))


def _sequence(body: ir.Sequence) -> ir.Sequence:
    return ir.Sequence(tuple(map(_sized, body.steps)))


def _sized(node: ir.Node) -> ir.Node:
    match node:
        case ir.Repeat(pipeline=ir.Pipeline() as pipeline):
            return dc.replace(node, pipeline=dc.replace(pipeline, fifos=_fifos(node, pipeline)))
        case ir.Repeat():
            return dc.replace(node, body=_sequence(node.body))
        case ir.While():
            return dc.replace(node, body=_sequence(node.body))
        case ir.Switch():
            branches = tuple(dc.replace(b, body=_sequence(b.body)) for b in node.branches)
            return dc.replace(node, branches=branches)
        case _:
            return node


def _fifos(node: ir.Repeat, pipeline: ir.Pipeline) -> tuple[ir.Fifo, ...]:
    if not pipeline.schedule.training:
        return ()
    depths = simulate(pipeline.schedule).fifo_depth
    needs = Needs()
    forward: set[Place] = set()
    waiting: dict[int, list[Place]] = {}
    steps: list[ir.Node] = []  # a task, and the copies in front of it
    for step in node.body.steps:
        steps.append(step)
        if not isinstance(step, ir.Task):
            continue
        spec = step.spec
        if spec.kind is Kind.FORWARD:
            forward.update(p for s in steps for p in births(s))
        else:
            found = waiting.setdefault(spec.stage, [])
            read = frozenset(p for s in steps for p in needs(s))
            found += sorted((read & forward).difference(found))
        steps = []
    return tuple(
        fifo for stage, places in waiting.items() for fifo in _by_ipu(stage, places, depths[stage])
    )


def _by_ipu(stage: int, places: Sequence[Place], depth: int) -> list[ir.Fifo]:
    values: dict[IpuId, list[ValueId]] = {}
    for value, ipu in places:
        values.setdefault(ipu, []).append(value)
    return [ir.Fifo(stage, tuple(own), ipu, depth) for ipu, own in values.items()]
