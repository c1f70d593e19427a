"""The partition of a placed jaxpr into kernels, one IPU each, and branches of the tree."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

from lowering import ir
from lowering.ground import HOST, IpuId, ValueId
from lowering.jaxprs import (
    Atom,
    Aval,
    JaxprEqn,
    Literal,
    Var,
    add_caller_frames,
    add_innermost_scope,
    jaxpr_of_equations,
    name_stack,
    unique_variables,
    user_line,
)
from lowering.marks import ATTRIBUTE, PARTIALS_TYPE, join_name_stacks, read_marks, write_mark
from lowering.ops import (
    ControlFlow,
    PlannedPipeline,
    dequeue_p,
    load_p,
    name_of_host_operation,
    repeat_p,
    store_p,
    task_p,
)
from lowering.passes.group_equations import Group, group_equations
from lowering.passes.place import Home, PlacedBody


def partition(placed: PlacedBody, *, name: str, ipus: int, replicas: int) -> ir.Program:
    """Makes the Program tree, still without copies.

    Before: every equation has a home.
    After:  every equation is in exactly one kernel, step or branch; steps of a sequence stand in
            an order that keeps all dependencies.
    """
    table = _ValueTable()
    jaxpr = placed.jaxpr.jaxpr
    inputs = table.bind_to_new_values(jaxpr.invars)
    table.bind_constants(placed)
    body = _Body(table, placed, "").build_body_sequence()
    outputs = tuple(table.value_of_atom(atom) for atom in jaxpr.outvars)
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


class _ValueTable:
    """The values of the program while it is being built; all bodies share it."""

    def __init__(self) -> None:
        self.avals: list[Aval] = []
        self.constants: list[tuple[ValueId, Any]] = []
        self.ids: dict[Var, ValueId] = {}

    def new_value_of_aval(self, aval: Aval) -> ValueId:
        self.avals.append(aval)
        return ValueId(len(self.avals) - 1)

    def bind_to_new_values(self, variables: Sequence[Var]) -> tuple[ValueId, ...]:
        """Gives each variable a new value."""
        values = tuple(self.new_value_of_aval(var.aval) for var in variables)
        self.ids.update(zip(variables, values, strict=True))
        return values

    def bind_constants(self, placed: PlacedBody) -> None:
        for var, data in zip(placed.jaxpr.jaxpr.constvars, placed.jaxpr.consts, strict=True):
            self.ids[var] = self.add_constant(var.aval, data)

    def add_constant(self, aval: Aval, data: Any) -> ValueId:
        value = self.new_value_of_aval(aval)
        self.constants.append((value, data))
        return value

    def value_of_atom(self, atom: Atom) -> ValueId:
        """Returns the value of an operand; a literal becomes a constant."""
        if isinstance(atom, Literal):
            return self.add_constant(atom.aval, atom.val)
        return self.ids[atom]


class _Body:
    """The partition of one body."""

    def __init__(
        self,
        table: _ValueTable,
        placed: PlacedBody,
        enclosing_stack: str,
        outer_eqn: JaxprEqn | None = None,
    ):
        self.table, self.placed, self.enclosing, self.around = (
            table,
            placed,
            enclosing_stack,
            outer_eqn,
        )

    def build_body_sequence(self) -> ir.Sequence:
        groups, shared = group_equations(self.placed, self.enclosing)
        return ir.Sequence(
            tuple(
                self.build_step_of_group(self.add_outer_frames(group), shared) for group in groups
            )
        )

    def add_outer_frames(self, group: Group) -> Group:
        """Returns the group, whose equations get what the equation around the body says of them.

        These are its frames, and the type of partial sums that the scopes around it ask for.
        """
        jaxpr = self.placed.jaxpr.jaxpr
        eqns = [add_caller_frames(eqn, self.around, jaxpr) for eqn in group.eqns]
        partials = read_marks(self.enclosing).partials_type
        if partials is not None:
            mark = write_mark(ATTRIBUTE, PARTIALS_TYPE, partials)
            eqns = [
                eqn if read_marks(name_stack(eqn)).partials_type else add_innermost_scope(eqn, mark)
                for eqn in eqns
            ]
        return dc.replace(group, eqns=eqns)

    def build_step_of_group(self, group: Group, shared: set[Var]) -> ir.Node:
        if group.is_kernel:
            return self.build_kernel(group, shared)
        (eqn,) = group.eqns
        bodies = self.placed.bodies.get(group.index)
        if bodies is None and eqn.primitive in (load_p, store_p):
            return self.build_load_or_store(eqn, group.home)
        if bodies is None:
            return self.build_stream_step(eqn, group.home)
        stack, homes = (
            join_name_stacks(self.enclosing, name_stack(eqn)),
            self.placed.results[group.index],
        )
        branch_builder = _BranchBuilder(
            self.table, ControlFlow.view_of_equation(eqn), bodies, homes, stack
        )
        return _BRANCHES[branch_builder.flow.kind](branch_builder)

    def build_kernel(self, group: Group, shared: set[Var]) -> ir.Node:
        inner_variables = {var for eqn in group.eqns for var in eqn.outvars}
        operands = unique_variables(a for eqn in group.eqns for a in eqn.invars)
        invars = [var for var in operands if var not in inner_variables]
        outvars = [v for eqn in group.eqns for v in eqn.outvars if v in shared]
        jaxpr = jaxpr_of_equations(self.placed.jaxpr.jaxpr, invars, outvars, group.eqns)
        kernel = ir.Kernel(jaxpr, user_line(group.eqns[0]))
        reads = tuple(self.table.ids[var] for var in invars)
        writes = self.table.bind_to_new_values(outvars)
        if group.home == HOST:
            name = group.outside or name_of_host_operation(group.eqns[0]) or "host"
            return ir.HostCall(name, kernel, reads, writes, once=group.outside is not None)
        return ir.Execute(kernel, _ipu_of_home(group.home), reads, writes)

    def build_load_or_store(self, eqn: JaxprEqn, home: Home) -> ir.Node:
        value = self.table.value_of_atom(eqn.invars[0])
        (result,) = self.table.bind_to_new_values(eqn.outvars)
        step = ir.Load if eqn.primitive is load_p else ir.Store
        return step(value, result, _ipu_of_home(home), eqn.params["storage"])

    def build_stream_step(self, eqn: JaxprEqn, home: Home) -> ir.Node:
        params, ipu = eqn.params, _ipu_of_home(home)
        if eqn.primitive is dequeue_p:
            writes = self.table.bind_to_new_values(eqn.outvars)
            origin, loop = user_line(eqn), params["loop"].structure
            return ir.StreamIn(params["queue"], ipu, writes, params["count"], origin, loop)
        reads = tuple(self.table.value_of_atom(atom) for atom in eqn.invars)
        return ir.StreamOut(
            params["queue"], ipu, reads, params["structure"], params["count"], user_line(eqn)
        )


@dc.dataclass(frozen=True, slots=True)
class _BranchBuilder:
    """The translation of control flow into a branch of the tree."""

    table: _ValueTable
    flow: ControlFlow
    bodies: tuple[PlacedBody, ...]
    homes: tuple[Home, ...]
    stack: str

    def operand_values(self) -> list[ValueId]:
        return [self.table.value_of_atom(atom) for atom in self.flow.eqn.invars]

    def bind_body_arguments(self, body_index: int, consts: Sequence[ValueId]) -> list[ValueId]:
        """Binds a body's arguments: constants as outside, others to new values. Returns these."""
        placed = self.bodies[body_index]
        invars = placed.jaxpr.jaxpr.invars
        self.table.ids.update(zip(invars[: len(consts)], consts, strict=True))
        self.table.bind_constants(placed)
        return list(self.table.bind_to_new_values(invars[len(consts) :]))

    def build_body(self, body_index: int) -> tuple[ir.Sequence, list[ValueId]]:
        """Returns a body's steps, and the values that it returns."""
        placed = self.bodies[body_index]
        sequence = _Body(self.table, placed, self.stack, self.flow.eqn).build_body_sequence()
        return sequence, [self.table.value_of_atom(a) for a in placed.jaxpr.jaxpr.outvars]

    def list_result_values(self) -> list[ValueId]:
        return list(self.table.bind_to_new_values(self.flow.eqn.outvars))

    def build_carries(self, *names: Sequence[ValueId]) -> tuple[ir.Carry, ...]:
        """Returns the loop variables, given their four names; they are the first results."""
        names_of_variables = (
            names_of_all[: self.flow.num_loop_variables] for names_of_all in (self.homes, *names)
        )
        return tuple(
            ir.Carry(*four, ipu=_ipu_of_home(home))
            for home, *four in zip(*names_of_variables, strict=True)
        )

    @property
    def origin(self) -> str:
        return user_line(self.flow.eqn)


def _ipu_of_home(home: Home) -> IpuId:
    return IpuId(0) if home is None or home == HOST else home


def _build_repeat_or_pipeline(builder: _BranchBuilder) -> ir.Node:
    flow, operands = builder.flow, builder.operand_values()
    entering = builder.bind_body_arguments(0, operands[flow.constants[0]])
    sequence, leaving = builder.build_body(0)
    results, count, params = builder.list_result_values(), flow.num_loop_variables, flow.eqn.params
    carry = builder.build_carries(operands[flow.carried], entering, leaving, results)
    if isinstance(flow.pipeline, PlannedPipeline):
        return ir.Pipeline(
            name=flow.pipeline.name,
            schedule=flow.pipeline.schedule,
            body=sequence,
            carry=carry,
            origin=builder.origin,
            variables=flow.pipeline.variables,
            counters=tuple(carry[number].entering for number in flow.pipeline.counters),
        )
    rows = operands[flow.elements]
    argument_homes = builder.bodies[0].wanted
    slices = zip(
        rows, entering[count:], argument_homes[len(argument_homes) - len(rows) :], strict=True
    )
    stacks = zip(leaving[count:], results[count:], builder.homes[count:], strict=True)
    loop = params.get("loop")
    return ir.Repeat(
        count=flow.trips,
        trips=operands[0] if flow.trips is None else None,
        body=sequence,
        carry=carry,
        slices=tuple(ir.Slice(stacked, e, _ipu_of_home(home)) for stacked, e, home in slices),
        stacks=tuple(ir.Stack(e, stacked, _ipu_of_home(home)) for e, stacked, home in stacks),
        reverse=params.get("reverse", False),
        loop=None if loop is None else loop.structure,
        names=() if loop is None else loop.names,
        origin=builder.origin,
    )


def _build_while(builder: _BranchBuilder) -> ir.Node:
    operands = builder.operand_values()
    tested, stepped = (operands[part] for part in builder.flow.constants)
    entering = builder.bind_body_arguments(1, stepped)
    builder.bind_body_arguments(0, [*tested, *entering])
    test, (predicate,) = builder.build_body(0)
    sequence, leaving = builder.build_body(1)
    loops_of_elements = (step.loop for step in sequence.steps if isinstance(step, ir.StreamIn))
    return ir.While(
        loop=next(loops_of_elements, None),
        condition=test,
        predicate=predicate,
        body=sequence,
        carry=builder.build_carries(
            operands[builder.flow.carried], entering, leaving, builder.list_result_values()
        ),
        origin=builder.origin,
    )


def _build_switch(builder: _BranchBuilder) -> ir.Node:
    index, *operands = builder.operand_values()
    branches: list[ir.Branch] = []
    for number in range(len(builder.bodies)):
        builder.bind_body_arguments(number, operands)
        sequence, results = builder.build_body(number)
        branches.append(ir.Branch(sequence, tuple(results)))
    return ir.Switch(
        index=index,
        branches=tuple(branches),
        writes=tuple(builder.list_result_values()),
        ipus=tuple(map(_ipu_of_home, builder.homes)),
        origin=builder.origin,
    )


def _build_task(builder: _BranchBuilder) -> ir.Node:
    builder.bind_body_arguments(0, builder.operand_values())
    sequence, results = builder.build_body(0)
    eqn = builder.flow.eqn
    builder.table.ids.update(zip(eqn.outvars, results, strict=True))
    return ir.Task(eqn.params["spec"], sequence, builder.origin)


_BRANCHES = {
    "scan": _build_repeat_or_pipeline,
    repeat_p.name: _build_repeat_or_pipeline,
    task_p.name: _build_task,
    "while": _build_while,
    "cond": _build_switch,
}
