"""The replacement of Refs by values that go from each write to the next read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax

from lowering.ground import LoweringError
from lowering.jaxprs import (
    AbstractRef,
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    Jaxpr,
    JaxprEqn,
    add_discharge_rule,
    constants_to_arguments,
    current_user_line,
    discharge_state,
    function_of_jaxpr,
    jaxpr_of_equations_with_constants,
    rewrite_equations,
    sub_jaxprs,
    touches_refs,
    trace_flat,
    user_line,
)
from lowering.ops import (
    Array,
    ControlFlow,
    TaskSpec,
    dequeue_p,
    repeat_p,
    repeat_with_queues,
    split_repeat_operands,
    task_p,
)


def discharge_refs(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Makes a pure function of one that reads and writes Refs.

    Before: any jaxpr; its constants are no Refs.
    After:  there are no Refs. Those among the arguments are values, and their last values come
            after the results, in the order of the arguments.
    Raises: LoweringError for Refs inside what JAX cannot do without them.
    """
    if not touches_refs(closed):
        return closed
    try:
        has_refs_first = EquationFinder(lambda eqn: _count_leading_refs(eqn) > 0)
        return rewrite_equations(
            discharge_state(closed), has_refs_first, _move_refs_behind_variables
        )
    except NotImplementedError as refused:
        raise LoweringError(
            f"a Ref is used where JAX cannot do without it: {refused}",
            where=next(filter(None, _lines_touching_refs(closed.jaxpr)), ""),
            fix="hand over the Ref's value (`ref[...]`) instead, and write the result afterwards",
        ) from None


def _lines_touching_refs(jaxpr: Jaxpr) -> Iterator[str]:
    """Yields the user's lines of equations whose bodies touch Refs, innermost first."""
    for eqn in jaxpr.eqns:
        for body in filter(touches_refs, sub_jaxprs(eqn)):
            yield from _lines_touching_refs(body)
            yield user_line(eqn)
            yield from map(user_line, body.eqns)


def _count_leading_refs(eqn: JaxprEqn) -> int:
    """Returns how many Refs JAX puts in front of the variables of a loop with queues.

    The error at the end of a data set expects the user's variables right behind the loop's counter.
    """
    if eqn.primitive.name != "while":
        return 0
    body = ControlFlow.view_of_equation(eqn).bodies[1].jaxpr
    loops = (e.params["loop"].structure for e in body.eqns if e.primitive is dequeue_p)
    leaves = next((loop.num_leaves for loop in loops if loop is not None), None)
    return 0 if leaves is None else len(body.outvars) - 1 - leaves


def _move_refs_behind_variables(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
    num_refs, flow = _count_leading_refs(eqn), ControlFlow.view_of_equation(eqn)
    constants = [eqn.invars[part] for part in flow.constants]

    def rotate_refs_to_end(atoms: Sequence[Any], first: int = 0) -> list[Any]:
        return [*atoms[:first], *atoms[first + num_refs :], *atoms[first : first + num_refs]]

    def rebuild_loop_body(body_index: int) -> ClosedJaxpr:
        closed = flow.bodies[body_index]
        jaxpr = closed.jaxpr
        outvars = (
            jaxpr.outvars if flow.is_condition(body_index) else rotate_refs_to_end(jaxpr.outvars)
        )
        return jaxpr_of_equations_with_constants(
            closed,
            rotate_refs_to_end(jaxpr.invars, len(constants[body_index])),
            outvars,
            jaxpr.eqns,
        )

    loop = flow.replace_bodies_and_constants(
        [rebuild_loop_body(0), rebuild_loop_body(1)], constants
    )
    invars = rotate_refs_to_end(eqn.invars, flow.carried.start)
    rewriter.keep_equation(loop.replace(invars=invars, outvars=rotate_refs_to_end(eqn.outvars)))


def _run_repeat_without_refs(
    *operands: Any, body: ClosedJaxpr, num_consts: int, count: int | None, loop: Any, pipeline: Any
) -> Any:
    """Runs a loop with the Refs that its body uses as loop variables, behind the others."""
    is_ref = _which_arguments_are_refs(body)[:num_consts]
    if pipeline is not None and any(is_ref):
        raise _error_of_ref_in_pipeline(pipeline.origin)
    trips, constants, carry = split_repeat_operands(operands, num_consts, count)
    consts = [x for x, is_ref_operand in zip(constants, is_ref, strict=True) if not is_ref_operand]
    states = [x for x, is_one in zip(constants, is_ref, strict=True) if is_one]
    pure = function_of_jaxpr(discharge_state(body))

    def run_body_with_ref_values(*flat: Any) -> list[Any]:
        last = len(consts) + len(carry)
        other_constants, ref_values = iter(flat[: len(consts)]), iter(flat[last:])
        body_constants = [
            next(ref_values) if is_ref_operand else next(other_constants)
            for is_ref_operand in is_ref
        ]
        return pure(*body_constants, *flat[len(consts) : last])

    avals = [jax.typeof(x) for x in (*consts, *carry, *states)]
    pure_body, lifted_constants = constants_to_arguments(
        trace_flat(run_body_with_ref_values, avals)
    )
    results = repeat_with_queues(
        pure_body, [*lifted_constants, *consts], [*carry, *states], trips, loop, pipeline
    )
    last = iter(results[len(carry) :])
    kept = [next(last) if is_one else None for is_one in is_ref]
    steering = len(operands) - len(constants) - len(carry)
    return [*[None] * steering, *kept, *[None] * len(carry)], results[: len(carry)]


def _run_task_without_refs(*operands: Array, body: ClosedJaxpr, spec: TaskSpec) -> Any:
    """Runs a task without Refs; it may use Refs only if it makes them itself."""
    if any(_which_arguments_are_refs(body)):
        raise _error_of_ref_in_pipeline(current_user_line())
    results = task_p.bind(*operands, body=discharge_state(body), spec=spec)
    return [None] * len(operands), results


def _which_arguments_are_refs(body: ClosedJaxpr) -> list[bool]:
    return [isinstance(aval, AbstractRef) for aval in body.in_avals]


def _error_of_ref_in_pipeline(line: str) -> LoweringError:
    return LoweringError(
        "a pipeline's stage uses a Ref from outside: tasks of several micro-batches run at once, "
        "so nothing says who reads and writes it first",
        where=line,
        fix="make the Ref inside the stage, pass its value on from stage to stage, or enqueue "
        "what it was meant to collect",
    )


add_discharge_rule(repeat_p, _run_repeat_without_refs)
add_discharge_rule(task_p, _run_task_without_refs)
