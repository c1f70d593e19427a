"""The fusion of all steps that need neither the host nor a second device into one kernel."""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from lowering import ir
from lowering.fusion.drop_storage import drop_storage
from lowering.fusion.emit import Values, evaluate_steps
from lowering.fusion.flatten_loops import flatten_loops
from lowering.ground import IpuId, ValueId
from lowering.jaxprs import trace_flat
from lowering.ops import axis_of_replicas
from lowering.passes import insert_copies

_ONE = IpuId(0)


def fuse(program: ir.Program, is_hosted: Callable[[ir.Node], bool]) -> ir.Program:
    """Returns the same program for one device, with few, large kernels.

    Before: a verified program.
    After:  everything runs on IPU 0; the tasks of a pipeline run micro-batch by micro-batch, the
            Sequential schedule. Steps for which `is_hosted` is true (queue operations, host
            calls, and branches around them at least) stay; each maximal run of other steps is
            one kernel, control flow included; a loop in a loop streams as one. In a body without
            hosted branches, elements are taken first and sent last: one kernel remains.
    """
    program = drop_storage(dc.replace(program, body=_move_steps_to_one_ipu(program.body)))
    program = ir.verify_after_pass("drop_storage", program, has_copies=False)
    program = flatten_loops(program, is_hosted)
    program = ir.verify_after_pass("flatten_loops", program, has_copies=False)
    body = _Fuser(program, is_hosted).fuse_steps(program.body, program.outputs)
    program = insert_copies(dc.replace(program, body=body, ipus=1))
    return ir.verify_after_pass("fuse", program)


def _move_steps_to_one_ipu(body: ir.Sequence) -> ir.Sequence:
    """Moves all steps to one IPU, without copies, and opens tasks."""
    kept = [_keep_one_copy(n) if isinstance(n, ir.Pipeline) else n for n in body.steps]
    steps = (node for node in ir.inline_tasks(kept) if not isinstance(node, ir.Copy))
    changed_steps = (
        ir.rewrite_bodies(node, lambda inner: _move_steps_to_one_ipu(inner.sequence))
        for node in steps
    )
    return ir.Sequence(tuple(map(_move_node_to_one_ipu, changed_steps)))


def _keep_one_copy(node: ir.Pipeline) -> ir.Pipeline:
    """Returns a pipeline that sends all micro-batches through the copy of the last one.

    One after the other, they need no other copy; the loop variables of these stay as they are.
    """
    schedule = node.schedule
    copy = schedule.copy_of(schedule.micro_batches - 1)
    kept = [
        step
        for step in node.body.steps
        if not isinstance(step, ir.Task) or step.spec.stage // schedule.stages == copy
    ]
    written = {value for step in kept for value in ir.values_written(step)}
    carry = tuple(
        c if c.leaving in written else dc.replace(c, leaving=c.entering) for c in node.carry
    )
    return dc.replace(node, body=ir.Sequence(tuple(kept)), carry=carry)


def _move_node_to_one_ipu(node: ir.Node) -> ir.Node:
    """Moves a node, whose bodies are moved already, to one IPU."""
    match node:
        case ir.Execute() | ir.StreamIn() | ir.StreamOut() | ir.Load() | ir.Store():
            return dc.replace(node, ipu=_ONE)
        case ir.Repeat():
            carry, slices, stacks = map(
                _move_entries_to_one_ipu, (node.carry, node.slices, node.stacks)
            )
            return dc.replace(node, carry=carry, slices=slices, stacks=stacks)
        case ir.Pipeline():
            count, carry = node.schedule.micro_batches, _move_entries_to_one_ipu(node.carry)
            return ir.Repeat(count=count, body=node.body, carry=carry, origin=node.origin)
        case ir.While():
            return dc.replace(node, carry=_move_entries_to_one_ipu(node.carry))
        case ir.Switch():
            return dc.replace(node, ipus=(_ONE,) * len(node.ipus))
        case _:
            return node


def _move_entries_to_one_ipu(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dc.replace(entry, ipu=_ONE) for entry in entries)


class _Fuser:
    def __init__(self, program: ir.Program, is_hosted: Callable[[ir.Node], bool]):
        self.program, self.hosted = program, is_hosted

    def fuse_steps(self, body: ir.Sequence, results: Sequence[ValueId]) -> ir.Sequence:
        groups = itertools.groupby(self.move_streams_to_ends(body.steps), self.hosted)
        read_after = set(results)
        fused_steps: list[ir.Node] = []
        for is_hosted, run in reversed([(is_hosted, list(run)) for is_hosted, run in groups]):
            if is_hosted:
                fused_steps[:0] = [ir.rewrite_bodies(node, self.fuse_body) for node in run]
            else:
                fused_steps.insert(0, self.fuse_run_into_kernel(run, read_after))
            read_after.update(*map(ir.values_read, run))
        return ir.Sequence(tuple(fused_steps))

    def move_streams_to_ends(self, steps: Sequence[ir.Node]) -> list[ir.Node]:
        """Moves elements first and results last, if no hosted branch or host call is there."""
        hosted = [node for node in steps if self.hosted(node)]
        if not all(isinstance(node, (ir.StreamIn, ir.StreamOut)) for node in hosted):
            return list(steps)
        stream_ins = [node for node in hosted if isinstance(node, ir.StreamIn)]
        stream_outs = [node for node in hosted if isinstance(node, ir.StreamOut)]
        return [*stream_ins, *(node for node in steps if not self.hosted(node)), *stream_outs]

    def fuse_run_into_kernel(self, run: Sequence[ir.Node], read_later: set[ValueId]) -> ir.Execute:
        if len(run) == 1 and isinstance(run[0], ir.Execute):
            return run[0]
        fused_steps = ir.Sequence(tuple(run))
        reads = ir.values_read(fused_steps)
        writes = tuple(value for value in ir.values_written(fused_steps) if value in read_later)

        def run_fused_steps(*operands: Any) -> list[Any]:
            values: Values = dict(zip(reads, operands, strict=True))
            evaluate_steps(fused_steps, values)
            return [values[value] for value in writes]

        avals = [self.program.avals[value] for value in reads]
        jaxpr = trace_flat(run_fused_steps, avals, axis_of_replicas(self.program.replicas))
        origin = next((n.kernel.origin for n in run if isinstance(n, ir.Execute)), "")
        return ir.Execute(ir.Kernel(jaxpr, origin), _ONE, reads, writes)

    def fuse_body(self, body: ir.Body) -> ir.Sequence:
        return self.fuse_steps(body.sequence, body.values_read_after)


def is_one_kernel(program: ir.Program) -> bool:
    """Returns whether a program has at most one kernel between its copies."""
    steps = [node for node in program.body.steps if not isinstance(node, ir.Copy)]
    return len(steps) <= 1 and all(isinstance(node, ir.Execute) for node in steps)
