"""Turns Refs into values that go from each write to the next read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax

from lowering.control_flow import ControlFlow
from lowering.equations import function_of, part_of
from lowering.errors import LoweringError
from lowering.jaxpr import (
    AbstractRef,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    current_user_line,
    discharge_state,
    discharges,
    hoisted,
    sub_jaxprs,
    touches_refs,
    trace_flat,
    user_line,
)
from lowering.ops.streams import dequeue_p, loop_operands, repeat, repeat_p
from lowering.ops.tasks import TaskSpec, task_p
from lowering.ops.types import Array
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten


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
        has_refs_first = Anywhere(lambda eqn: _refs_first(eqn) > 0)
        return rewritten(discharge_state(closed), has_refs_first, _put_refs_last)
    except NotImplementedError as refused:
        raise LoweringError(
            f"a Ref is used where JAX cannot do without it: {refused}",
            where=next(filter(None, _lines(closed.jaxpr)), ""),
            fix="hand over the Ref's value (`ref[...]`) instead, and write the result afterwards",
        ) from None


def _lines(jaxpr: Jaxpr) -> Iterator[str]:
    """The user's lines of equations whose bodies touch Refs, innermost first."""
    for eqn in jaxpr.eqns:
        for inner in filter(touches_refs, sub_jaxprs(eqn)):
            yield from _lines(inner)
            yield user_line(eqn)
            yield from map(user_line, inner.eqns)


def _refs_first(eqn: JaxprEqn) -> int:
    """How many Refs JAX has put in front of the variables of a user's loop with queues.

    The error that a data set's end raises finds the user's variables behind the loop's counter.
    """
    if eqn.primitive.name != "while":
        return 0
    body = ControlFlow.of(eqn).bodies[1].jaxpr
    loops = (e.params["loop"].structure for e in body.eqns if e.primitive is dequeue_p)
    leaves = next((loop.num_leaves for loop in loops if loop is not None), None)
    return 0 if leaves is None else len(body.outvars) - 1 - leaves


def _put_refs_last(rewriter: Rewriter, eqn: JaxprEqn) -> None:
    refs, flow = _refs_first(eqn), ControlFlow.of(eqn)
    constants = [eqn.invars[part] for part in flow.constants]

    def turned(atoms: Sequence[Any], first: int = 0) -> list[Any]:
        return [*atoms[:first], *atoms[first + refs :], *atoms[first : first + refs]]

    def body(number: int) -> ClosedJaxpr:
        closed = flow.bodies[number]
        jaxpr = closed.jaxpr
        outvars = jaxpr.outvars if flow.is_condition(number) else turned(jaxpr.outvars)
        return part_of(closed, turned(jaxpr.invars, len(constants[number])), outvars, jaxpr.eqns)

    loop = flow.rebuilt([body(0), body(1)], constants)
    invars = turned(eqn.invars, flow.carried.start)
    rewriter.keep(loop.replace(invars=invars, outvars=turned(eqn.outvars)))


def _repeat_without_refs(
    *operands: Any, body: ClosedJaxpr, num_consts: int, count: int | None, loop: Any, pipeline: Any
) -> Any:
    """Refs that the body uses become loop variables, behind the others."""
    is_ref = _are_refs(body)[:num_consts]
    if pipeline is not None and any(is_ref):
        raise _in_pipeline(pipeline.origin)
    trips, constants, carry = loop_operands(operands, num_consts, count)
    consts = [x for x, is_one in zip(constants, is_ref, strict=True) if not is_one]
    states = [x for x, is_one in zip(constants, is_ref, strict=True) if is_one]
    pure = function_of(discharge_state(body))

    def step(*flat: Any) -> list[Any]:
        last = len(consts) + len(carry)
        others, kept = iter(flat[: len(consts)]), iter(flat[last:])
        inner = [next(kept) if is_one else next(others) for is_one in is_ref]
        return pure(*inner, *flat[len(consts) : last])

    avals = [jax.typeof(x) for x in (*consts, *carry, *states)]
    stepped, more = hoisted(trace_flat(step, avals))
    results = repeat(stepped, [*more, *consts], [*carry, *states], trips, loop, pipeline)
    last = iter(results[len(carry) :])
    kept = [next(last) if is_one else None for is_one in is_ref]
    steering = len(operands) - len(constants) - len(carry)
    return [*[None] * steering, *kept, *[None] * len(carry)], results[: len(carry)]


def _task_without_refs(*operands: Array, body: ClosedJaxpr, spec: TaskSpec) -> Any:
    """A stage may use Refs that it makes itself."""
    if any(_are_refs(body)):
        raise _in_pipeline(current_user_line())
    results = task_p.bind(*operands, body=discharge_state(body), spec=spec)
    return [None] * len(operands), results


def _are_refs(body: ClosedJaxpr) -> list[bool]:
    return [isinstance(aval, AbstractRef) for aval in body.in_avals]


def _in_pipeline(line: str) -> LoweringError:
    return LoweringError(
        "a pipeline's stage uses a Ref from outside: tasks of several micro-batches run at once, "
        "so nothing says who reads and writes it first",
        where=line,
        fix="make the Ref inside the stage, pass its value on from stage to stage, or enqueue "
        "what it was meant to collect",
    )


discharges(repeat_p, _repeat_without_refs)
discharges(task_p, _task_without_refs)
