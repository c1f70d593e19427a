"""Conditions around collectives that may come out differently on the replicas.

On hardware, a replica that goes another way leaves the others waiting at the collective for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowering import marks
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    body_of_call,
    name_stack,
    sub_jaxprs,
    user_line,
)
from lowering.ops.collective_primitives import (
    count_p,
    equal_p,
    exchange_p,
    gather_p,
    index_p,
    scatter_p,
    sum_p,
)
from lowering.ops.control_flow_primitives import ControlFlow, is_control_flow
from lowering.ops.draws import is_draw
from lowering.ops.host_tables import lookup_p
from lowering.ops.streams import dequeue_p

_MEETINGS = frozenset({sum_p, gather_p, scatter_p, exchange_p})
_OF_EACH_REPLICA = frozenset({index_p, dequeue_p, lookup_p, scatter_p, exchange_p})
_EQUAL = frozenset({count_p, equal_p})
_WITH_CONDITION = ("cond", "while")


def find_divergent_conditions(closed: ClosedJaxpr, replicas: int) -> list[str]:
    """Returns the user's `file:line` of each condition that may part replicas at a collective.

    A value may differ between replicas if it is made of their own elements, indices, random
    numbers or lookups, and is neither a collective's result nor assumed to be equal.

    Args:
      closed: the function, as it was traced.
      replicas: their number.
    """
    meets = EquationFinder(lambda eqn: eqn.primitive in _MEETINGS)
    is_concerned = EquationFinder(
        lambda eqn: eqn.primitive.name in _WITH_CONDITION and meets.occurs_inside(eqn)
    )
    if replicas == 1 or not is_concerned(closed.jaxpr):
        return []
    search = _Search(replicas, is_concerned)
    search.follow_body(closed.jaxpr, [False] * len(closed.jaxpr.invars))
    return list(search.lines)


class _Search:
    """A walk through a function that follows which values may differ between replicas.

    Attributes:
      lines: the lines of conditions that may part replicas at a collective, in order.
    """

    def __init__(self, replicas: int, is_concerned: EquationFinder):
        self._replicas, self._is_concerned = replicas, is_concerned
        self.lines: dict[str, None] = {}

    def follow_body(self, jaxpr: Jaxpr, differs: Sequence[bool]) -> list[bool]:
        """Returns which results of a jaxpr may differ, from the inputs that may."""
        differing = {var for var, flag in zip(jaxpr.invars, differs, strict=True) if flag}
        for eqn in jaxpr.eqns:
            operands = [isinstance(atom, Var) and atom in differing for atom in eqn.invars]
            flags = self._follow_equation(eqn, operands)
            differing.update(var for var, flag in zip(eqn.outvars, flags, strict=True) if flag)
        return [not isinstance(atom, Literal) and atom in differing for atom in jaxpr.outvars]

    def _follow_equation(self, eqn: JaxprEqn, operands: Sequence[bool]) -> Sequence[bool]:
        primitive, results = eqn.primitive, len(eqn.outvars)
        if is_control_flow(eqn):
            return self._follow_control_flow(ControlFlow.view_of_equation(eqn), operands)
        body = body_of_call(eqn)
        if body is not None and len(body.jaxpr.invars) == len(operands):
            return self.follow_body(body.jaxpr, operands)
        if self._is_concerned.occurs_inside(eqn):
            # The walk does not know what of the equation such a body gets.
            for inner in sub_jaxprs(eqn):
                self.follow_body(inner, [True] * len(inner.invars))
        if primitive in _EQUAL or (
            primitive in (sum_p, gather_p) and eqn.params["group"] in (None, self._replicas)
        ):
            return [False] * results
        return [any(operands) or self._is_of_each_replica(eqn)] * results

    def _is_of_each_replica(self, eqn: JaxprEqn) -> bool:
        if eqn.primitive in _OF_EACH_REPLICA or is_draw(eqn):
            return True
        return bool(eqn.effects) and marks.read_marks(name_stack(eqn)).each_replica

    def _follow_control_flow(self, flow: ControlFlow, operands: Sequence[bool]) -> list[bool]:
        flags = list(operands)
        while True:
            parts = [
                self.follow_body(body.jaxpr, flow.select_body_operands(i, flags))
                for i, body in enumerate(flow.bodies)
                if not flow.is_condition(i)
            ]
            results = [any(of_bodies) for of_bodies in zip(*parts, strict=True)]
            carried = flags[flow.carried]
            settled = [a or b for a, b in zip(carried, results, strict=False)]
            if settled == carried:
                break
            flags[flow.carried] = settled
        if not self._condition_differs(flow, flags):
            return results
        if flow.kind in _WITH_CONDITION and self._is_concerned.test(flow.eqn):
            self.lines.setdefault(user_line(flow.eqn))
        return [True] * len(results)

    def _condition_differs(self, flow: ControlFlow, flags: Sequence[bool]) -> bool:
        """Returns whether the branch, or the number of iterations, may differ."""
        if flow.kind == "while":
            condition = flow.bodies[0].jaxpr
            return any(self.follow_body(condition, flow.select_body_operands(0, flags)))
        return any(flags[: flow.constants[0].start or 0])
