"""Cuts a placed jaxpr into kernels, one IPU each, and control flow into branches of the tree."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

from lowering import ir
from lowering.control_flow import ControlFlow
from lowering.equations import sliced, variables
from lowering.jaxpr import Atom, Aval, JaxprEqn, Literal, Var, called_from, name_stack, user_line
from lowering.marks import joined
from lowering.ops.storage import load_p, store_p
from lowering.ops.streams import dequeue_p, repeat_p
from lowering.ops.tasks import PlannedPipeline, task_p
from lowering.ops.user_ops import name_on_host
from lowering.passes.group import Group, group_equations
from lowering.passes.place import Home, PlacedBody
from lowering.units import HOST, IpuId, ValueId


def partition(placed: PlacedBody, *, name: str, ipus: int, replicas: int) -> ir.Program:
    """Makes the Program tree, still without copies.

    Before: every equation has a home.
    After:  every equation is in exactly one kernel, step or branch; steps of a sequence stand in
            an order that keeps all dependencies.
    """
    table = _Table()
    jaxpr = placed.jaxpr.jaxpr
    inputs = table.bind(jaxpr.invars)
    table.bind_constants(placed)
    body = _Body(table, placed, "").sequence()
    outputs = tuple(table.value(atom) for atom in jaxpr.outvars)
    return ir.Program(
        name=name,
        avals=tuple(table.avals),
        inputs=inputs,
        constants=tuple(table.constants),
        body=body,
        outputs=outputs,
        ipus=ipus,
        replicas=replicas,
    )


class _Table:
    """The values of the program while it is being built; bodies share it."""

    def __init__(self) -> None:
        self.avals: list[Aval] = []
        self.constants: list[tuple[ValueId, Any]] = []
        self.ids: dict[Var, ValueId] = {}

    def new(self, aval: Aval) -> ValueId:
        self.avals.append(aval)
        return ValueId(len(self.avals) - 1)

    def bind(self, variables: Sequence[Var]) -> tuple[ValueId, ...]:
        """Gives each variable a new value."""
        values = tuple(self.new(var.aval) for var in variables)
        self.ids.update(zip(variables, values, strict=True))
        return values

    def bind_constants(self, placed: PlacedBody) -> None:
        for var, data in zip(placed.jaxpr.jaxpr.constvars, placed.jaxpr.consts, strict=True):
            self.ids[var] = self.constant(var.aval, data)

    def constant(self, aval: Aval, data: Any) -> ValueId:
        value = self.new(aval)
        self.constants.append((value, data))
        return value

    def value(self, atom: Atom) -> ValueId:
        """The value of an operand; a literal becomes a constant."""
        if isinstance(atom, Literal):
            return self.constant(atom.aval, atom.val)
        return self.ids[atom]


class _Body:
    """One body being cut."""

    def __init__(
        self, table: _Table, placed: PlacedBody, enclosing: str, around: JaxprEqn | None = None
    ):
        self.table, self.placed, self.enclosing, self.around = table, placed, enclosing, around

    def sequence(self) -> ir.Sequence:
        groups, shared = group_equations(self.placed, self.enclosing)
        return ir.Sequence(tuple(self.step(self.called(group), shared) for group in groups))

    def called(self, group: Group) -> Group:
        """The group, whose equations have the frames of what is around the body, too."""
        jaxpr = self.placed.jaxpr.jaxpr
        eqns = [called_from(eqn, self.around, jaxpr) for eqn in group.eqns]
        return dc.replace(group, eqns=eqns)

    def step(self, group: Group, shared: set[Var]) -> ir.Node:
        if group.is_kernel:
            return self.kernel_step(group, shared)
        (eqn,) = group.eqns
        bodies = self.placed.bodies.get(group.index)
        if bodies is None and eqn.primitive in (load_p, store_p):
            return self.storage_step(eqn, group.home)
        if bodies is None:
            return self.stream_step(eqn, group.home)
        stack, homes = joined(self.enclosing, name_stack(eqn)), self.placed.results[group.index]
        inner = _Inner(self.table, ControlFlow.of(eqn), bodies, homes, stack)
        return _BRANCHES[inner.flow.kind](inner)

    def kernel_step(self, group: Group, shared: set[Var]) -> ir.Node:
        made = {var for eqn in group.eqns for var in eqn.outvars}
        used = variables(a for eqn in group.eqns for a in eqn.invars)
        invars = [var for var in used if var not in made]
        outvars = [v for eqn in group.eqns for v in eqn.outvars if v in shared]
        jaxpr = sliced(self.placed.jaxpr.jaxpr, invars, outvars, group.eqns)
        kernel = ir.Kernel(jaxpr, user_line(group.eqns[0]))
        reads = tuple(self.table.ids[var] for var in invars)
        writes = self.table.bind(outvars)
        if group.home == HOST:
            name = group.outside or name_on_host(group.eqns[0]) or "host"
            return ir.HostCall(name, kernel, reads, writes, once=group.outside is not None)
        return ir.Execute(kernel, _ipu(group.home), reads, writes)

    def storage_step(self, eqn: JaxprEqn, home: Home) -> ir.Node:
        value = self.table.value(eqn.invars[0])
        (result,) = self.table.bind(eqn.outvars)
        step = ir.Load if eqn.primitive is load_p else ir.Store
        return step(value, result, _ipu(home), eqn.params["storage"])

    def stream_step(self, eqn: JaxprEqn, home: Home) -> ir.Node:
        params, ipu = eqn.params, _ipu(home)
        if eqn.primitive is dequeue_p:
            writes = self.table.bind(eqn.outvars)
            origin, loop = user_line(eqn), params["loop"].structure
            return ir.StreamIn(params["queue"], ipu, writes, params["count"], origin, loop)
        reads = tuple(self.table.value(atom) for atom in eqn.invars)
        return ir.StreamOut(
            params["queue"], ipu, reads, params["structure"], params["count"], user_line(eqn)
        )


@dc.dataclass(frozen=True, slots=True)
class _Inner:
    """Control flow being turned into a branch of the tree."""

    table: _Table
    flow: ControlFlow
    bodies: tuple[PlacedBody, ...]
    homes: tuple[Home, ...]
    stack: str

    def operands(self) -> list[ValueId]:
        return [self.table.value(atom) for atom in self.flow.eqn.invars]

    def enter(self, number: int, consts: Sequence[ValueId]) -> list[ValueId]:
        """Names a body's arguments: constants as outside, the others anew. Gives the new ones."""
        placed = self.bodies[number]
        invars = placed.jaxpr.jaxpr.invars
        self.table.ids.update(zip(invars[: len(consts)], consts, strict=True))
        self.table.bind_constants(placed)
        return list(self.table.bind(invars[len(consts) :]))

    def body(self, number: int) -> tuple[ir.Sequence, list[ValueId]]:
        """A body's steps, and the values that it returns."""
        placed = self.bodies[number]
        sequence = _Body(self.table, placed, self.stack, self.flow.eqn).sequence()
        return sequence, [self.table.value(a) for a in placed.jaxpr.jaxpr.outvars]

    def results(self) -> list[ValueId]:
        return list(self.table.bind(self.flow.eqn.outvars))

    def carry(self, *names: Sequence[ValueId]) -> tuple[ir.Carry, ...]:
        """The loop variables, given their four names; they are the first results."""
        first = (each[: self.flow.variables] for each in (self.homes, *names))
        return tuple(ir.Carry(*four, ipu=_ipu(home)) for home, *four in zip(*first, strict=True))

    @property
    def origin(self) -> str:
        return user_line(self.flow.eqn)


def _ipu(home: Home) -> IpuId:
    return IpuId(0) if home is None or home == HOST else home


def _loop(inner: _Inner) -> ir.Node:
    flow, operands = inner.flow, inner.operands()
    entering = inner.enter(0, operands[flow.constants[0]])
    sequence, leaving = inner.body(0)
    results, count, params = inner.results(), flow.variables, flow.eqn.params
    carry = inner.carry(operands[flow.carried], entering, leaving, results)
    if isinstance(flow.pipeline, PlannedPipeline):
        return ir.Pipeline(
            name=flow.pipeline.name,
            schedule=flow.pipeline.schedule,
            body=sequence,
            carry=carry,
            origin=inner.origin,
            variables=flow.pipeline.variables,
        )
    rows = operands[flow.elements]
    wanted = inner.bodies[0].wanted
    slices = zip(rows, entering[count:], wanted[len(wanted) - len(rows) :], strict=True)
    stacks = zip(leaving[count:], results[count:], inner.homes[count:], strict=True)
    loop = params.get("loop")
    return ir.Repeat(
        count=flow.trips,
        trips=operands[0] if flow.trips is None else None,
        body=sequence,
        carry=carry,
        slices=tuple(ir.Slice(stacked, e, _ipu(home)) for stacked, e, home in slices),
        stacks=tuple(ir.Stack(e, stacked, _ipu(home)) for e, stacked, home in stacks),
        reverse=params.get("reverse", False),
        loop=None if loop is None else loop.structure,
        names=() if loop is None else loop.names,
        origin=inner.origin,
    )


def _while(inner: _Inner) -> ir.Node:
    operands = inner.operands()
    tested, stepped = (operands[part] for part in inner.flow.constants)
    entering = inner.enter(1, stepped)
    inner.enter(0, [*tested, *entering])
    test, (predicate,) = inner.body(0)
    sequence, leaving = inner.body(1)
    taken = (step.loop for step in sequence.steps if isinstance(step, ir.StreamIn))
    return ir.While(
        loop=next(taken, None),
        condition=test,
        predicate=predicate,
        body=sequence,
        carry=inner.carry(operands[inner.flow.carried], entering, leaving, inner.results()),
        origin=inner.origin,
    )


def _cond(inner: _Inner) -> ir.Node:
    index, *operands = inner.operands()
    branches: list[ir.Branch] = []
    for number in range(len(inner.bodies)):
        inner.enter(number, operands)
        sequence, results = inner.body(number)
        branches.append(ir.Branch(sequence, tuple(results)))
    return ir.Switch(
        index=index,
        branches=tuple(branches),
        writes=tuple(inner.results()),
        ipus=tuple(map(_ipu, inner.homes)),
        origin=inner.origin,
    )


def _task(inner: _Inner) -> ir.Node:
    inner.enter(0, inner.operands())
    sequence, results = inner.body(0)
    eqn = inner.flow.eqn
    inner.table.ids.update(zip(eqn.outvars, results, strict=True))
    return ir.Task(eqn.params["spec"], sequence, inner.origin)


_BRANCHES = {
    "scan": _loop,
    repeat_p.name: _loop,
    task_p.name: _task,
    "while": _while,
    "cond": _cond,
}
