"""The shards of a jaxpr's equations: read from marks, looked up, and written into marks.

The compiler itself places whole programs with `lowering.passes.place`; these functions are for
tools that look at jaxprs, or change them, before they are compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lowering import marks
from lowering.ground import HOST
from lowering.jaxprs import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Var,
    add_innermost_scope,
    map_sub_jaxprs,
    name_stack,
    replace_equations,
    unique_variables,
    user_frames_key,
)
from lowering.passes.inline_calls import inline_calls
from lowering.passes.place import PlacedBody, find_used_shards, place


def read_shard_mark(eqn: JaxprEqn) -> int | None:
    """Returns the shard in an equation's marks; a backward equation has its forward twin's."""
    return marks.read_marks(name_stack(eqn)).shard


def producer_of_each_variable(jaxpr: Jaxpr) -> dict[Var, int]:
    """Returns the index of the equation that gives each variable."""
    return {var: index for index, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}


def equations_needed_by(jaxpr: Jaxpr, roots: Iterable[int]) -> list[int]:
    """Returns the indices of some equations and of all that they depend on, in order."""
    needed, producer_of_variable = set(roots), producer_of_each_variable(jaxpr)
    for index in range(len(jaxpr.eqns) - 1, -1, -1):
        if index in needed:
            needed.update(_producers_of_operands(jaxpr.eqns[index], producer_of_variable))
    return sorted(needed)


def infer_shard_from_twin_or_operands(eqn: JaxprEqn, jaxpr: Jaxpr) -> int | None:
    """Returns the shard that an unmarked equation takes from its twin or operands.

    For a backward equation that is its forward twin, the equation from the same place of the
    user's code; failing that, and for all others, the first operand that comes from a marked
    equation.
    """
    if marks.read_marks(name_stack(eqn)).backward:
        key = user_frames_key(eqn)
        forward = (e for e in jaxpr.eqns if not marks.read_marks(name_stack(e)).backward)
        twins = {read_shard_mark(e) for e in forward if user_frames_key(e) == key} - {None}
        if len(twins) == 1:  # with more it is open: one line of the user's built several layers
            return twins.pop()
    operands = _producers_of_operands(eqn, producer_of_each_variable(jaxpr))
    shards = (read_shard_mark(jaxpr.eqns[index]) for index in operands)
    return next((shard for shard in shards if shard is not None), None)


def propagate_shard_marks(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Marks the equations around marked ones with the shard that `place` gives them.

    Before: any jaxpr.
    After:  calls with marks inside are opened. Backward equations and those that depend on marked
            ones are marked; those upstream of all marks are not. The placement is unchanged.
    """
    if not find_used_shards(closed):
        return closed
    return _write_shard_marks(place(inline_calls(closed)), "")


def _write_shard_marks(placed: PlacedBody, enclosing_stack: str) -> ClosedJaxpr:
    jaxpr = placed.jaxpr.jaxpr
    # An input of a body has a shard if marks give one to its operand.
    inputs = zip(jaxpr.invars, placed.inputs, strict=True)
    marked_variables = {var for var, shard in inputs if shard is not None}
    eqns: list[JaxprEqn] = []
    for index, (eqn, home) in enumerate(zip(jaxpr.eqns, placed.homes, strict=True)):
        stack = marks.join_name_stacks(enclosing_stack, name_stack(eqn))
        eqn_marks = marks.read_marks(stack)
        is_downstream = not marked_variables.isdisjoint(unique_variables(eqn.invars))
        if index in placed.bodies:
            eqns.append(_write_shard_marks_inside(eqn, placed.bodies[index], stack))
            marked_variables.update(eqn.outvars)
            continue
        needs_mark = home is not None and home != HOST and (is_downstream or eqn_marks.backward)
        if needs_mark and eqn_marks.shard is None:
            eqn = add_innermost_scope(eqn, marks.write_mark(marks.SHARD, str(home)))
        if needs_mark or eqn_marks.shard is not None:
            marked_variables.update(eqn.outvars)
        eqns.append(eqn)
    return ClosedJaxpr(replace_equations(jaxpr, eqns, jaxpr.outvars), placed.jaxpr.consts)


def _write_shard_marks_inside(eqn: JaxprEqn, bodies: Sequence[PlacedBody], stack: str) -> JaxprEqn:
    by_body = {id(body.jaxpr.jaxpr): body for body in bodies}
    return map_sub_jaxprs(eqn, lambda inner: _write_shard_marks(by_body[id(inner.jaxpr)], stack))


def _producers_of_operands(eqn: JaxprEqn, producer_of_variable: dict[Var, int]) -> list[int]:
    return [
        producer_of_variable[var]
        for var in unique_variables(eqn.invars)
        if var in producer_of_variable
    ]
