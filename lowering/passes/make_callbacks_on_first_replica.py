"""Makes the host be called as often as replicas on their own devices would call it."""

from __future__ import annotations

import dataclasses as dc

import jax.numpy as jnp
from jax import Array

from lowering import marks
from lowering.jaxprs import (
    Aval,
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    bind_equation,
    body_of_call,
    evaluate_equations_with,
    map_sub_jaxprs,
    name_stack,
    typed_jax,
    use_configuration_of,
    use_source_of,
)
from lowering.ops import (
    REPLICAS,
    ControlFlow,
    call_for_first_replica,
    host_tables,
    is_control_flow,
    is_shared_callback,
    user_ops,
)
from lowering.passes.thread_state import ResultsAndState, Values, thread_state_through


def make_callbacks_on_first_replica(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Lets only the first replica make each callback with an effect, at any depth.

    A condition may differ between replicas; vmap then runs all branches, and loops until the last
    replica is done. So branches and loops get a flag whether the replica really runs them. Where it
    does not, it neither makes callbacks nor calls compiled functions of the user's.

    Before: collectives are resolved.
    After:  the host is called by callbacks as often as the first replica alone would call it; and
            for other calls, in branches and loops, by each replica that really runs them.
            Unchanged if there is one replica.
    """
    if replicas == 1:
        return closed
    calls = EquationFinder(lambda eqn: is_shared_callback(eqn) or _is_call_of_each_replica(eqn))
    changes = EquationFinder(
        lambda eqn: is_shared_callback(eqn) or _may_diverge_before_calls(eqn, calls)
    )
    return _Caller(calls, changes, (REPLICAS, replicas)).guard_body(closed)


def _may_diverge_before_calls(eqn: JaxprEqn, calls: EquationFinder) -> bool:
    """Returns whether replicas may take different branches before a call of the host."""
    return eqn.primitive.name in _PARTING and calls.occurs_inside(eqn)


def _is_call_of_each_replica(eqn: JaxprEqn) -> bool:
    """Returns whether each replica calls the host, or a user's function, for itself."""
    if eqn.primitive in (*user_ops.PRIMITIVES, *host_tables.PRIMITIVES):
        return True
    return (
        eqn.primitive.name == "pure_callback" and marks.read_marks(name_stack(eqn)).outside is None
    )


@dc.dataclass(slots=True)
class _Caller:
    """A rewriter of bodies that guards their calls of the host.

    Attributes:
      calls: tests whether a jaxpr has callbacks, or calls of each replica, at any depth.
      changes: tests whether a jaxpr has an equation that becomes another one.
      axis: the axis of the replicas.
    """

    calls: EquationFinder
    changes: EquationFinder
    axis: tuple[str, int]

    def guard_body(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """Guards the calls of a body that the first replica runs whenever the others do."""
        if not self.changes(closed.jaxpr):
            return closed
        rewriter = EquationRewriter(closed.jaxpr)
        for eqn in closed.jaxpr.eqns:
            if self.changes.test(eqn):
                self.trace_guarded_equation(rewriter, eqn)
            elif self.changes.occurs_inside(eqn):
                rewriter.keep_equation(map_sub_jaxprs(eqn, self.guard_body))
            else:
                rewriter.keep_equation(eqn)
        return rewriter.build_rewritten_jaxpr(closed.consts)

    def trace_guarded_equation(self, rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
        """Replaces an equation by its guarded form, as the first replica runs it."""

        def run_guarded_equation(*operands: Array) -> Values:
            if is_shared_callback(eqn):
                return call_for_first_replica(eqn, operands, None)
            return self.evaluate_guarded_equation(eqn, operands, jnp.bool_(True))

        with use_configuration_of(eqn):
            rewriter.replace_by_function(eqn, run_guarded_equation, self.axis)

    def evaluate_guarded_body(
        self, closed: ClosedJaxpr, operands: Values, is_reached: Array
    ) -> list[Array]:
        """Evaluates a body that a replica really runs if `is_reached`, a bool[], is true."""

        def evaluate_equation(eqn: JaxprEqn, inputs: Values) -> Values:
            if not self.calls.test(eqn) and not self.calls.occurs_inside(eqn):
                return bind_equation(eqn, inputs)
            with use_source_of(eqn):
                return self.evaluate_guarded_equation(eqn, inputs, is_reached)

        return evaluate_equations_with(closed, operands, evaluate_equation)

    def evaluate_guarded_equation(self, eqn: JaxprEqn, inputs: Values, is_reached: Array) -> Values:
        """Evaluates a callback, or an equation with callbacks inside."""
        if is_shared_callback(eqn):
            return call_for_first_replica(eqn, inputs, is_reached)
        if _is_call_of_each_replica(eqn):
            return _call_where_reached(is_reached, eqn, inputs)
        body = body_of_call(eqn)
        if body is not None:
            return self.evaluate_guarded_body(body, inputs, is_reached)
        if is_control_flow(eqn):
            return self.evaluate_guarded_control_flow(eqn, inputs, is_reached)
        return bind_equation(map_sub_jaxprs(eqn, self.guard_body), inputs)

    def evaluate_guarded_control_flow(
        self, eqn: JaxprEqn, inputs: Values, is_reached: Array
    ) -> Values:
        """Evaluates control flow; a condition runs at the end of an iteration, for the next."""
        flow = ControlFlow.view_of_equation(eqn)
        if flow.pipeline is not None:
            return bind_equation(map_sub_jaxprs(eqn, self.guard_body), inputs)

        def evaluate_condition_for(variables: Values, is_reached: Array) -> Array:
            return self.evaluate_guarded_body(
                flow.bodies[0], [*inputs[flow.constants[0]], *variables], is_reached
            )[0]

        def run_body_if_reached(
            body_index: int, closed: ClosedJaxpr, operands: Values, conditions: Values
        ) -> ResultsAndState:
            if flow.is_condition(body_index):
                return conditions, conditions
            body_is_reached = (
                is_reached & (inputs[0] == body_index) if flow.kind == "cond" else is_reached
            )
            for goes in conditions:
                body_is_reached = body_is_reached & goes
            results = self.evaluate_guarded_body(closed, operands, body_is_reached)
            return results, [evaluate_condition_for(results, body_is_reached) for _ in conditions]

        start = (
            [evaluate_condition_for(inputs[flow.carried], is_reached)]
            if flow.kind == "while"
            else []
        )
        return thread_state_through(eqn, inputs, start, run_body_if_reached, self.axis)[0]


def _call_where_reached(is_reached: Array, eqn: JaxprEqn, inputs: Values) -> Values:
    """Makes a call for each replica for which `is_reached` is true; others get zeros.

    Over a vmapped axis replicas take turns, so that each has a condition of its own.
    """

    def call_if_reached(is_reached: Array, *operands: Array) -> list[Array]:
        avals: list[Aval] = [var.aval for var in eqn.outvars]
        zeros = [typed_jax.zeros(aval.shape, aval.dtype) for aval in avals]
        return typed_jax.cond(is_reached, lambda: bind_equation(eqn, operands), lambda: zeros)

    return typed_jax.sequential_vmap(call_if_reached)(is_reached, *inputs)


_PARTING = ("cond", "while")  # whose conditions may differ between replicas
