"""Makes one kernel of all that needs neither the host nor a second device."""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from lowering import ir
from lowering.fusion.drop_storage import drop_storage
from lowering.fusion.emit import Values, emit
from lowering.fusion.flatten_loops import flatten_loops
from lowering.jaxpr import trace_flat
from lowering.ops.collectives import axis_of
from lowering.passes.insert_copies import insert_copies
from lowering.units import IpuId, ValueId

_ONE = IpuId(0)


def fuse(program: ir.Program, hosted: Callable[[ir.Node], bool]) -> ir.Program:
    """The same program for one device: a Program with few, large kernels.

    Before: a verified program.
    After:  everything runs on IPU 0; the tasks of a pipeline run micro-batch by micro-batch, the
            Sequential schedule. Steps for which `hosted` is true (queue operations, host
            calls, and branches around them at least) stay; each maximal run of other steps is
            one kernel, control flow included; a loop in a loop streams as one. In a body without
            hosted branches, elements are taken first and sent last, so that one kernel is left.
    """
    program = drop_storage(dc.replace(program, body=_collapse(program.body)))
    program = flatten_loops(program, hosted)
    body = _Fuser(program, hosted).sequence(program.body, program.outputs)
    return insert_copies(dc.replace(program, body=body, ipus=1))


def _collapse(body: ir.Sequence) -> ir.Sequence:
    """All on one IPU, without copies; tasks are opened."""
    steps = (node for node in ir.opened(body.steps) if not isinstance(node, ir.Copy))
    inside = (ir.with_bodies(node, lambda inner: _collapse(inner.sequence)) for node in steps)
    return ir.Sequence(tuple(map(_collapsed, inside)))


def _collapsed(node: ir.Node) -> ir.Node:
    """The node on one IPU; its bodies are already."""
    match node:
        case ir.Execute() | ir.StreamIn() | ir.StreamOut() | ir.Load() | ir.Store():
            return dc.replace(node, ipu=_ONE)
        case ir.Repeat():
            carry, slices, stacks = map(_moved, (node.carry, node.slices, node.stacks))
            return dc.replace(node, carry=carry, slices=slices, stacks=stacks)
        case ir.Pipeline():
            count, carry = node.schedule.micro_batches, _moved(node.carry)
            return ir.Repeat(count=count, body=node.body, carry=carry, origin=node.origin)
        case ir.While():
            return dc.replace(node, carry=_moved(node.carry))
        case ir.Switch():
            return dc.replace(node, ipus=(_ONE,) * len(node.ipus))
        case _:
            return node


def _moved(names: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dc.replace(name, ipu=_ONE) for name in names)


class _Fuser:
    def __init__(self, program: ir.Program, hosted: Callable[[ir.Node], bool]):
        self.program, self.hosted = program, hosted

    def sequence(self, body: ir.Sequence, results: Sequence[ValueId]) -> ir.Sequence:
        grouped = itertools.groupby(self.ordered(body.steps), self.hosted)
        read_after = set(results)
        fused: list[ir.Node] = []
        for is_hosted, run in reversed([(is_hosted, list(run)) for is_hosted, run in grouped]):
            if is_hosted:
                fused[:0] = [ir.with_bodies(node, self.inside) for node in run]
            else:
                fused.insert(0, self.kernel(run, read_after))
            read_after.update(*map(ir.reads, run))
        return ir.Sequence(tuple(fused))

    def ordered(self, steps: Sequence[ir.Node]) -> list[ir.Node]:
        """Elements first, results last, where no hosted branch or host call could care."""
        hosted = [node for node in steps if self.hosted(node)]
        if not all(isinstance(node, (ir.StreamIn, ir.StreamOut)) for node in hosted):
            return list(steps)
        first = [node for node in hosted if isinstance(node, ir.StreamIn)]
        last = [node for node in hosted if isinstance(node, ir.StreamOut)]
        return [*first, *(node for node in steps if not self.hosted(node)), *last]

    def kernel(self, run: Sequence[ir.Node], wanted: set[ValueId]) -> ir.Execute:
        if len(run) == 1 and isinstance(run[0], ir.Execute):
            return run[0]
        whole = ir.Sequence(tuple(run))
        reads = ir.reads(whole)
        writes = tuple(value for value in ir.writes(whole) if value in wanted)

        def function(*operands: Any) -> list[Any]:
            values: Values = dict(zip(reads, operands, strict=True))
            emit(whole, values)
            return [values[value] for value in writes]

        avals = [self.program.avals[value] for value in reads]
        jaxpr = trace_flat(function, avals, axis_of(self.program.replicas))
        origin = next((n.kernel.origin for n in run if isinstance(n, ir.Execute)), "")
        return ir.Execute(ir.Kernel(jaxpr, origin), _ONE, reads, writes)

    def inside(self, body: ir.Body) -> ir.Sequence:
        return self.sequence(body.sequence, body.leaving)


def is_one_kernel(program: ir.Program) -> bool:
    """Whether a fused program is a single kernel between its copies (or none at all)."""
    steps = [node for node in program.body.steps if not isinstance(node, ir.Copy)]
    return len(steps) <= 1 and all(isinstance(node, ir.Execute) for node in steps)
