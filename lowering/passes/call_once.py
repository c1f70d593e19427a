"""Has callbacks of the host made once, not once for each replica."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax.numpy as jnp

from lowering.control_flow import ControlFlow, is_control_flow
from lowering.equations import evaluate_with
from lowering.errors import InternalError
from lowering.jaxpr import (
    ClosedJaxpr,
    JaxprEqn,
    at_source_of,
    bind_equation,
    call_body,
    in_context_of,
    map_sub_jaxprs,
)
from lowering.ops.collectives import REPLICAS
from lowering.ops.first_callback import call_first, is_shared_callback
from lowering.passes.rewrite import Anywhere, Rewriter
from lowering.passes.thread import Stepped, Values, threaded


def call_once(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Makes every callback with an effect one of the first replica's, at any depth.

    A condition may differ between replicas; vmap then runs all branches, and loops until the last
    replica is done. So branches and loops are told whether the first replica gets there.

    Before: collectives are resolved.
    After:  the host is called as often as the first replica alone would call it. Unchanged if
            there is one replica.
    """
    if replicas == 1:
        return closed
    return _Caller(Anywhere(is_shared_callback), (REPLICAS, replicas)).body(closed)


@dc.dataclass(slots=True)
class _Caller:
    """Rewrites bodies.

    Attributes:
      calls: whether a jaxpr has such callbacks, at any depth.
      axis: the replicas.
    """

    calls: Anywhere
    axis: tuple[str, int]

    def body(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """A body that the first replica gets to whenever the others do."""
        if not self.calls(closed.jaxpr):
            return closed
        rewriter = Rewriter(closed.jaxpr)
        for eqn in closed.jaxpr.eqns:
            if self.calls.test(eqn) or (eqn.primitive.name in _PARTING and self.calls.inside(eqn)):
                self.trace(rewriter, eqn)
            elif self.calls.inside(eqn):
                rewriter.keep(map_sub_jaxprs(eqn, self.body))
            else:
                rewriter.keep(eqn)
        return rewriter.closed(closed.consts)

    def trace(self, rewriter: Rewriter, eqn: JaxprEqn) -> None:
        """Puts what an equation does in its place, as the first replica gets there."""

        def function(*operands: Any) -> Values:
            return self.equation(eqn, operands, None if self.calls.test(eqn) else jnp.bool_(True))

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
        if self.calls.test(eqn):
            return call_first(eqn, inputs, here)
        body = call_body(eqn)
        if body is not None:
            return self.run(body, inputs, here)
        if is_control_flow(eqn):
            return self.control_flow(eqn, inputs, here)
        raise InternalError(f"`{eqn.primitive.name}` calls the host inside a condition")

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


_PARTING = ("cond", "while")  # whose conditions may differ between replicas
