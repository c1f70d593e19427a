"""Makes one kernel of all that needs neither the host nor a second device."""

from __future__ import annotations

import dataclasses as dc
from collections import ChainMap
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any

from jax import lax

from lowering.collectives import REPLICAS
from lowering.ir import program as ir
from lowering.jaxpr import run_equations, trace_flat
from lowering.passes.insert_copies import insert_copies
from lowering.units import IpuId, ValueId

_ONE = IpuId(0)

Values = MutableMapping[ValueId, Any]


def fuse(program: ir.Program, hosted: Callable[[ir.Node], bool]) -> ir.Program:
    """The same program for one device: a Program with few, large kernels.

    Before: a verified program.
    After:  everything runs on IPU 0. Steps for which `hosted` is true (queue operations, host
            calls, and branches around them at least) stay; each maximal run of other steps is
            one kernel, control flow included. In a body without hosted branches, elements are
            taken first and sent last, so that one kernel is left.
    """
    collapsed = _collapse(program.body)
    body = _Fuser(program, hosted).sequence(collapsed, program.outputs)
    return insert_copies(dc.replace(program, body=body, ipus=1))


def _collapse(body: ir.Sequence) -> ir.Sequence:
    """All on one IPU, without copies."""
    steps = (_collapsed(node) for node in body.steps if not isinstance(node, ir.Copy))
    return ir.Sequence(tuple(steps))


def _collapsed(node: ir.Node) -> ir.Node:
    match node:
        case ir.Execute() | ir.StreamIn() | ir.StreamOut():
            return dc.replace(node, ipu=_ONE)
        case ir.Repeat():
            return dc.replace(
                node,
                body=_collapse(node.body),
                carry=_moved(node.carry),
                slices=_moved(node.slices),
                stacks=_moved(node.stacks),
            )
        case ir.While():
            return dc.replace(
                node,
                condition=_collapse(node.condition),
                body=_collapse(node.body),
                carry=_moved(node.carry),
            )
        case ir.Switch():
            branches = tuple(dc.replace(b, body=_collapse(b.body)) for b in node.branches)
            return dc.replace(node, branches=branches, ipus=(_ONE,) * len(node.ipus))
        case ir.Sequence():
            return _collapse(node)
        case _:
            return node


def _moved(names: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dc.replace(name, ipu=_ONE) for name in names)


class _Fuser:
    def __init__(self, program: ir.Program, hosted: Callable[[ir.Node], bool]):
        self.program, self.hosted = program, hosted

    def sequence(self, body: ir.Sequence, results: Sequence[ValueId]) -> ir.Sequence:
        steps = self.ordered(body.steps)
        after = self.read_after(steps, results)
        fused: list[ir.Node] = []
        run: list[ir.Node] = []
        for index, node in enumerate(steps):
            if not self.hosted(node):
                run.append(node)
                if index + 1 < len(steps) and not self.hosted(steps[index + 1]):
                    continue
                fused.append(self.kernel(run, after[index]))
                run = []
            else:
                fused.append(self.inside(node))
        return ir.Sequence(tuple(fused))

    def ordered(self, steps: Sequence[ir.Node]) -> list[ir.Node]:
        """Elements first, results last, where no hosted branch or host call could care."""
        hosted = [node for node in steps if self.hosted(node)]
        if not all(isinstance(node, (ir.StreamIn, ir.StreamOut)) for node in hosted):
            return list(steps)
        first = [node for node in hosted if isinstance(node, ir.StreamIn)]
        last = [node for node in hosted if isinstance(node, ir.StreamOut)]
        return [*first, *(node for node in steps if not self.hosted(node)), *last]

    def read_after(
        self, steps: Sequence[ir.Node], results: Sequence[ValueId]
    ) -> list[set[ValueId]]:
        """For each hosted-run boundary, the values that anything after it reads."""
        after: list[set[ValueId]] = [set()] * len(steps)
        live = set(results)
        for index in range(len(steps) - 1, -1, -1):
            boundary = index + 1 == len(steps) or self.hosted(steps[index + 1])
            if boundary and not self.hosted(steps[index]):
                after[index] = set(live)
            live.update(ir.reads(steps[index]))
        return after

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

        replicas = self.program.replicas
        axis = (REPLICAS, replicas) if replicas > 1 else None
        avals = [self.program.avals[value] for value in reads]
        origin = next((n.kernel.origin for n in run if isinstance(n, ir.Execute)), "")
        return ir.Execute(ir.Kernel(trace_flat(function, avals, axis), origin), _ONE, reads, writes)

    def inside(self, node: ir.Node) -> ir.Node:
        """A hosted branch, with its bodies fused."""
        match node:
            case ir.Repeat():
                results = [c.leaving for c in node.carry] + [s.element for s in node.stacks]
                return dc.replace(node, body=self.sequence(node.body, results))
            case ir.While():
                leaving = [c.leaving for c in node.carry]
                return dc.replace(
                    node,
                    condition=self.sequence(node.condition, [node.predicate]),
                    body=self.sequence(node.body, leaving),
                )
            case ir.Switch():
                branches = tuple(
                    dc.replace(b, body=self.sequence(b.body, b.results)) for b in node.branches
                )
                return dc.replace(node, branches=branches)
            case _:
                return node


def emit(body: ir.Sequence, values: Values) -> None:
    """Evaluates steps that need no host on arrays or tracers; adds what they write to `values`."""
    for node in body.steps:
        match node:
            case ir.Execute():
                operands = [values[value] for value in node.reads]
                results = run_equations(node.kernel.jaxpr.jaxpr, (), operands)
                values.update(zip(node.writes, results, strict=True))
            case ir.Copy():
                continue  # one device: the value is there
            case ir.Sequence():
                emit(node, values)
            case ir.Repeat():
                _emit_repeat(node, values)
            case ir.While():
                _emit_while(node, values)
            case ir.Switch():
                _emit_switch(node, values)
            case ir.StreamIn() | ir.StreamOut() | ir.HostCall():
                raise TypeError(f"{type(node).__name__} needs the host")


def _emit_repeat(node: ir.Repeat, values: Values) -> None:
    def step(carried: Any, sliced: Any) -> Any:
        inner: Values = ChainMap({}, values)
        inner.update(zip((c.entering for c in node.carry), carried, strict=True))
        inner.update(zip((s.element for s in node.slices), sliced, strict=True))
        emit(node.body, inner)
        return [inner[c.leaving] for c in node.carry], [inner[s.element] for s in node.stacks]

    initial = [values[c.initial] for c in node.carry]
    if node.trips is not None:
        trips = values[node.trips]
        final = lax.fori_loop(0, trips, lambda _, carried: step(carried, ())[0], initial)
        stacked: Iterable[Any] = ()
    else:
        slices = [values[s.stacked] for s in node.slices]
        final, stacked = lax.scan(step, initial, slices, length=node.count, reverse=node.reverse)
    values.update(zip((c.final for c in node.carry), final, strict=True))
    values.update(zip((s.stacked for s in node.stacks), stacked, strict=True))


def _emit_while(node: ir.While, values: Values) -> None:
    def entered(carried: Any) -> Values:
        inner: Values = ChainMap({}, values)
        inner.update(zip((c.entering for c in node.carry), carried, strict=True))
        return inner

    def condition(carried: Any) -> Any:
        inner = entered(carried)
        emit(node.condition, inner)
        return inner[node.predicate]

    def step(carried: Any) -> Any:
        inner = entered(carried)
        emit(node.body, inner)
        return [inner[c.leaving] for c in node.carry]

    final = lax.while_loop(condition, step, [values[c.initial] for c in node.carry])
    values.update(zip((c.final for c in node.carry), final, strict=True))


def _emit_switch(node: ir.Switch, values: Values) -> None:
    def chosen(branch: ir.Branch) -> Callable[[], list[Any]]:
        def function() -> list[Any]:
            inner: Values = ChainMap({}, values)
            emit(branch.body, inner)
            return [inner[value] for value in branch.results]

        return function

    results = lax.switch(values[node.index], [chosen(branch) for branch in node.branches])
    values.update(zip(node.writes, results, strict=True))


def is_one_kernel(program: ir.Program) -> bool:
    """Whether a fused program is a single kernel between its copies (or none at all)."""
    steps = [node for node in program.body.steps if not isinstance(node, ir.Copy)]
    return len(steps) <= 1 and all(isinstance(node, ir.Execute) for node in steps)
