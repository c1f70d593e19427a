"""Has the host called as often as replicas of their own devices would call it."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.custom_batching import sequential_vmap

from lowering import marks
from lowering.control_flow import ControlFlow, is_control_flow
from lowering.equations import evaluate_with
from lowering.jaxpr import (
    ClosedJaxpr,
    JaxprEqn,
    at_source_of,
    bind_equation,
    call_body,
    in_context_of,
    map_sub_jaxprs,
    name_stack,
)
from lowering.ops import host_tables, user_ops
from lowering.ops.collectives import REPLICAS
from lowering.ops.first_callback import call_first, is_shared_callback
from lowering.passes.rewrite import Anywhere, Rewriter
from lowering.passes.thread import Stepped, Values, threaded


def call_once(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Makes every callback with an effect one of the first replica's, at any depth.

    A condition may differ between replicas; vmap then runs all branches, and loops until the last
    replica is done. So branches and loops are told whether a replica gets there. Where it does
    not, it neither makes callbacks nor calls compiled functions of the user's.

    Before: collectives are resolved.
    After:  the host is called by callbacks as often as the first replica alone would call it; and
            for other calls, in branches and loops, by each replica that gets there. Unchanged if
            there is one replica.
    """
    if replicas == 1:
        return closed
    calls = Anywhere(lambda eqn: is_shared_callback(eqn) or _is_own_call(eqn))
    changes = Anywhere(lambda eqn: is_shared_callback(eqn) or _parts_before_calls(eqn, calls))
    return _Caller(calls, changes, (REPLICAS, replicas)).body(closed)


def _parts_before_calls(eqn: JaxprEqn, calls: Anywhere) -> bool:
    """Whether replicas may go different ways to something that calls the host."""
    return eqn.primitive.name in _PARTING and calls.inside(eqn)


def _is_own_call(eqn: JaxprEqn) -> bool:
    """Whether each replica asks the host, or a compiled function of the user's, for itself."""
    if eqn.primitive in (*user_ops.PRIMITIVES, *host_tables.PRIMITIVES):
        return True
    return eqn.primitive.name == "pure_callback" and marks.read(name_stack(eqn)).outside is None


@dc.dataclass(slots=True)
class _Caller:
    """Rewrites bodies.

    Attributes:
      calls: whether a jaxpr has callbacks, or calls of each replica, at any depth.
      changes: whether it has something that becomes another operation.
      axis: the replicas.
    """

    calls: Anywhere
    changes: Anywhere
    axis: tuple[str, int]

    def body(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """A body that the first replica gets to whenever the others do."""
        if not self.changes(closed.jaxpr):
            return closed
        rewriter = Rewriter(closed.jaxpr)
        for eqn in closed.jaxpr.eqns:
            if self.changes.test(eqn):
                self.trace(rewriter, eqn)
            elif self.changes.inside(eqn):
                rewriter.keep(map_sub_jaxprs(eqn, self.body))
            else:
                rewriter.keep(eqn)
        return rewriter.closed(closed.consts)

    def trace(self, rewriter: Rewriter, eqn: JaxprEqn) -> None:
        """Puts what an equation does in its place, as the first replica gets there."""

        def function(*operands: Any) -> Values:
            here = None if is_shared_callback(eqn) else jnp.bool_(True)
            return self.equation(eqn, operands, here)

        with in_context_of(eqn):
            rewriter.trace(eqn, function, self.axis)

    def run(self, closed: ClosedJaxpr, operands: Values, here: Any) -> list[Any]:
        """Evaluates a body that the first replica gets to if `here`, a bool[], is true for it."""

        def evaluated(eqn: JaxprEqn, inputs: Values) -> Values:
            if not self.calls.test(eqn) and not self.calls.inside(eqn):
                return bind_equation(eqn, inputs)
            with at_source_of(eqn):
                return self.equation(eqn, inputs, here)

        return evaluate_with(closed, operands, evaluated)

    def equation(self, eqn: JaxprEqn, inputs: Values, here: Any) -> Values:
        """Evaluates a callback, or an equation with callbacks inside."""
        if is_shared_callback(eqn):
            return call_first(eqn, inputs, here)
        if _is_own_call(eqn):
            return _call_where(here, eqn, inputs)
        body = call_body(eqn)
        if body is not None:
            return self.run(body, inputs, here)
        if is_control_flow(eqn):
            return self.control_flow(eqn, inputs, here)
        return bind_equation(map_sub_jaxprs(eqn, self.body), inputs)

    def control_flow(self, eqn: JaxprEqn, inputs: Values, here: Any) -> Values:
        """The condition of a loop is evaluated at the end of an iteration, for the next one."""
        flow = ControlFlow.of(eqn)
        if flow.pipeline is not None:
            return bind_equation(map_sub_jaxprs(eqn, self.body), inputs)

        def goes_on(variables: Values, here: Any) -> Any:
            return self.run(flow.bodies[0], [*inputs[flow.constants[0]], *variables], here)[0]

        def run(number: int, closed: ClosedJaxpr, operands: Values, going: Values) -> Stepped:
            if flow.is_condition(number):
                return going, going
            told = here & (inputs[0] == number) if flow.kind == "cond" else here
            for goes in going:
                told = told & goes
            results = self.run(closed, operands, told)
            return results, [goes_on(results, told) for _ in going]

        start = [goes_on(inputs[flow.carried], here)] if flow.kind == "while" else []
        return threaded(eqn, inputs, start, run, self.axis)[0]


def _call_where(here: Any, eqn: JaxprEqn, inputs: Values) -> Values:
    """Makes a call for each replica for which `here` is true; the others get zeros.

    Over a vmapped axis replicas take turns, so that each has a condition of its own.
    """

    def call(here: Any, *operands: Any) -> list[Any]:
        avals: list[Any] = [var.aval for var in eqn.outvars]
        zeros = [jnp.zeros(aval.shape, aval.dtype) for aval in avals]
        return lax.cond(here, lambda: bind_equation(eqn, operands), lambda: zeros)

    return sequential_vmap(call)(here, *inputs)


_PARTING = ("cond", "while")  # whose conditions may differ between replicas
