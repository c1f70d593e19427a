"""Watches every operation for the floating-point faults that the configuration asks about.

The IPU raises an exception in the tile that divides by zero. XLA has no such thing, so the
program carries one int32 along, through loops and branches too: 0, or the number of the first
operation that did what `floating_point_behaviour.inv`, `div0` or `oflo` forbids.
"""

from __future__ import annotations

import contextlib
import dataclasses as dc
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering import marks
from lowering.collectives import REPLICAS
from lowering.ir.program import Fault
from lowering.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    bind_equation,
    call_body,
    name_stack,
    run_equations,
    trace_flat,
    user_line,
)
from lowering.narrow import POLES, SCOPE
from lowering.options import Options
from lowering.passes.evaluate import evaluate_with
from lowering.pipelines.task import TaskSpec, is_task, task_p
from lowering.streams import repeat, repeat_p, uses_streams

# What was done to a result, and of which operation; see `lowering.narrow`.
NARROWED = re.compile(rf"(?<![^/(]){SCOPE}\[([^\]]*)\]")

# Those of `POLES` that are infinite for other operands as well: too large a result.
_OVERFLOWING_POLES = frozenset({"div", "pow", "integer_pow"})

# Operations that only move data: what comes out was there before.
_MOVES = frozenset({
    "broadcast_in_dim", "reshape", "transpose", "slice", "dynamic_slice", "dynamic_update_slice",
    "concatenate", "pad", "gather", "scatter", "select_n", "squeeze", "expand_dims", "rev", "copy",
    "copy_p", "stop_gradient", "neg", "abs", "max", "min", "reduce_max", "reduce_min", "sort",
    "clamp", "sign", "floor", "ceil", "round", "iota", "bitcast_convert_type", "real", "imag",
    "optimization_barrier", "all_gather", "all_to_all", "sharding_constraint", "ipu_dequeue",
    "ipu_load", "ipu_store", "ipu_recomputation_checkpoint",
})  # fmt: skip


def insert_checks(
    closed: ClosedJaxpr, options: Options, replicas: int
) -> tuple[ClosedJaxpr, tuple[Fault, ...]]:
    """Adds one output: 0, or 1 + the index of the first fault that happened.

    Before: collectives are resolved.
    After:  the jaxpr has one more result, int32[], equal on all replicas; unchanged, with no
            faults, if the options catch none or no operation could do it.
    """
    if not options.catches:
        return closed, ()
    watcher = _Watcher(options, (REPLICAS, replicas) if replicas > 1 else None)

    def watched(*operands: Any) -> list[Any]:
        outputs, fault = watcher.run(closed.jaxpr, closed.consts, operands)
        if replicas > 1:
            fault = lax.pmax(fault, REPLICAS)
        return [*outputs, fault]

    whole = trace_flat(watched, closed.in_avals, watcher.axis)
    return (whole, tuple(watcher.faults)) if watcher.faults else (closed, ())


@dc.dataclass(slots=True)
class _Watcher:
    """Evaluates jaxprs with a fault number at their side; used inside a trace."""

    options: Options
    axis: tuple[str, int] | None
    faults: list[Fault] = dc.field(default_factory=list[Fault])

    def run(
        self, jaxpr: Jaxpr, consts: Sequence[Any], operands: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        faults: list[Any] = [jnp.int32(0)]

        def watched(eqn: JaxprEqn, given: list[Any]) -> list[Any]:
            outputs, found = self.equation(eqn, given)
            if found is not None:
                faults[0] = jnp.where(faults[0] == 0, found, faults[0])
            return outputs

        return evaluate_with(ClosedJaxpr(jaxpr, consts), operands, watched), faults[0]

    def equation(self, eqn: JaxprEqn, inputs: list[Any]) -> tuple[list[Any], Any]:
        branch = _BRANCHES.get(eqn.primitive.name)
        if branch is not None:
            return branch(self, eqn, inputs)
        inner = call_body(eqn)
        if inner is not None:
            with jax.named_scope(str(eqn.source_info.name_stack) or "call"):
                return self.run(inner.jaxpr, inner.consts, inputs)
        outputs = bind_equation(eqn, inputs)
        narrowed = NARROWED.search(name_stack(eqn))
        if narrowed and eqn.primitive.name != "reduce_precision":
            return outputs, None  # how a float16 is made of a result is no operation of the user's
        with _on_ipu_of(eqn):
            return outputs, self.check(eqn, inputs, outputs)

    def check(self, eqn: JaxprEqn, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        if eqn.primitive.name in _MOVES:
            return None
        ins = [x for x in inputs if _is_float(x)]
        fault: Any = None
        found = [
            condition
            for out in filter(_is_float, outputs)
            for condition in self.conditions(eqn.primitive.name, ins, inputs, out)
        ]
        if self.options.catch_invalid and eqn.primitive.name == "convert_element_type":
            found += [("invalid", _any(jnp.isnan(x))) for x in ins if not _is_float(outputs[0])]
        for kind, happened in found:
            number = jnp.where(happened, jnp.int32(self.number(kind, eqn)), jnp.int32(0))
            fault = number if fault is None else jnp.where(fault == 0, number, fault)
        return fault

    def conditions(
        self, name: str, ins: Sequence[Any], inputs: Sequence[Any], out: Any
    ) -> list[tuple[str, Any]]:
        """What to watch in one result: the kind of fault, and whether it happened."""
        conditions: list[tuple[str, Any]] = []
        if self.options.catch_invalid:
            conditions.append(("invalid", _any(jnp.isnan(out)) & ~_some(jnp.isnan, ins)))
        infinite = _any(jnp.isinf(out)) & ~_some(_not_finite, ins)
        pole = _at_pole(name, inputs, out, infinite) if name in POLES else None
        if self.options.catch_division and pole is not None:
            conditions.append(("division by zero", pole))
        if self.options.catch_overflow and (pole is None or name in _OVERFLOWING_POLES):
            conditions.append(("overflow", infinite if pole is None else infinite & ~pole))
        return conditions

    def number(self, kind: str, eqn: JaxprEqn) -> int:
        narrowed = NARROWED.search(name_stack(eqn))
        name = narrowed[1] if narrowed else eqn.primitive.name
        self.faults.append(Fault(kind, name, user_line(eqn)))
        return len(self.faults)

    def body(self, closed: ClosedJaxpr, avals: Sequence[Any], carried: int) -> ClosedJaxpr:
        """A loop body with the fault as its last loop variable, after `carried` others."""

        def watched(*operands: Any) -> list[Any]:
            *given, fault = operands
            outputs, found = self.run(closed.jaxpr, closed.consts, given)
            fault = jnp.where(fault == 0, found, fault)
            return [*outputs[:carried], fault, *outputs[carried:]]

        return trace_flat(watched, [*avals, jax.typeof(jnp.int32(0))], self.axis)


def _scan(watcher: _Watcher, eqn: JaxprEqn, inputs: list[Any]) -> tuple[list[Any], Any]:
    p = eqn.params
    consts, carry = p["num_consts"], p["num_carry"]
    body = watcher.body(p["jaxpr"], p["jaxpr"].in_avals, carry)

    def step(carried: Any, sliced: Any) -> Any:
        *state, fault = carried
        operands = [*inputs[:consts], *state, *sliced, fault]
        results = _evaluate(body, operands)
        return results[: carry + 1], results[carry + 1 :]

    start = [*inputs[consts : consts + carry], jnp.int32(0)]
    (*state, fault), stacked = lax.scan(
        step, start, inputs[consts + carry :], length=p["length"], reverse=p["reverse"]
    )
    return [*state, *stacked], fault


def _while(watcher: _Watcher, eqn: JaxprEqn, inputs: list[Any]) -> tuple[list[Any], Any]:
    p = eqn.params
    first, second = p["cond_nconsts"], p["body_nconsts"]
    test = p["cond_jaxpr"]
    body = watcher.body(p["body_jaxpr"], p["body_jaxpr"].in_avals, len(eqn.outvars))
    tested = _watched_condition(watcher, test)

    def condition(carried: Any) -> Any:
        return _evaluate(test, [*inputs[:first], *carried[:-1]])[0]

    def after_condition(carried: Sequence[Any]) -> Sequence[Any]:
        if tested is None:
            return carried
        _, fault = _evaluate(tested, [*inputs[:first], *carried])
        return [*carried[:-1], fault]

    def step(carried: Any) -> Any:
        return _evaluate(body, [*inputs[first : first + second], *after_condition(carried)])

    final = lax.while_loop(condition, step, [*inputs[first + second :], jnp.int32(0)])
    *state, fault = after_condition(final)
    return state, fault


def _watched_condition(watcher: _Watcher, test: ClosedJaxpr) -> ClosedJaxpr | None:
    """A loop's condition with its fault, to be evaluated once more; None if it has none to find.

    A condition can return nothing but its answer, so a fault in it is found beside it.
    """
    if uses_streams(test.jaxpr):  # once more would take another element
        return None
    before = len(watcher.faults)
    tested = watcher.body(test, test.in_avals, 1)
    return tested if len(watcher.faults) > before else None


def _cond(watcher: _Watcher, eqn: JaxprEqn, inputs: list[Any]) -> tuple[list[Any], Any]:
    def watched(branch: ClosedJaxpr) -> Callable[..., list[Any]]:
        def function(*operands: Any) -> list[Any]:
            outputs, fault = watcher.run(branch.jaxpr, branch.consts, operands)
            return [*outputs, fault]

        return function

    branches = [watched(branch) for branch in eqn.params["branches"]]
    *outputs, fault = lax.switch(inputs[0], branches, *inputs[1:])
    return outputs, fault


def _repeat(watcher: _Watcher, eqn: JaxprEqn, inputs: list[Any]) -> tuple[list[Any], Any]:
    p = eqn.params
    if p["pipeline"] is not None:
        return _pipeline(watcher, eqn, inputs)
    trips = p["count"] if p["count"] is not None else inputs[0]
    operands = inputs if p["count"] is not None else inputs[1:]
    consts, carry = operands[: p["num_consts"]], operands[p["num_consts"] :]
    body = watcher.body(p["body"], p["body"].in_avals, len(carry))
    *state, fault = repeat(body, consts, [*carry, jnp.int32(0)], trips, p["loop"])
    return state, fault


def _pipeline(watcher: _Watcher, eqn: JaxprEqn, inputs: list[Any]) -> tuple[list[Any], Any]:
    """A loop whose body still is tasks; each that may fail has a loop variable for its faults."""
    p = eqn.params
    body: ClosedJaxpr = p["body"]
    consts, carry = inputs[: p["num_consts"]], inputs[p["num_consts"] :]
    tasks = {id(e): _watched_task(watcher, e) for e in body.jaxpr.eqns if is_task(e)}
    count = sum(task is not None for task in tasks.values())

    def watched(*operands: Any) -> list[Any]:
        faults = list(operands[len(inputs) :])

        def run(e: JaxprEqn, given: list[Any]) -> list[Any]:
            task = tasks.get(id(e))
            if task is None:
                return bind_equation(e, given)
            *outputs, fault = bind_equation(task, [*given, faults.pop(0)])
            faults.append(fault)
            return outputs

        return [*evaluate_with(body, operands[: len(inputs)], run), *faults]

    number = jax.typeof(jnp.int32(0))
    whole = trace_flat(watched, [*body.in_avals, *([number] * count)], watcher.axis)
    start = [*carry, *([jnp.int32(0)] * count)]
    results = repeat(whole, consts, start, p["count"], p["loop"], p["pipeline"])
    fault: Any = None
    for found in results[len(carry) :]:
        fault = found if fault is None else jnp.where(fault == 0, found, fault)
    return results[: len(carry)], fault


def _watched_task(watcher: _Watcher, eqn: JaxprEqn) -> JaxprEqn | None:
    """A task whose last operand and last result are its fault number; None if it cannot fail."""
    body: ClosedJaxpr = eqn.params["body"]
    spec: TaskSpec = eqn.params["spec"]
    before = len(watcher.faults)
    watched = watcher.body(body, body.in_avals, len(body.out_avals))
    if len(watcher.faults) == before:
        return None
    pair = (len(body.in_avals), len(body.out_avals))
    spec = dc.replace(spec, accumulated=(*spec.accumulated, pair))
    return eqn.replace(params={"body": watched, "spec": spec})


def _task(watcher: _Watcher, eqn: JaxprEqn, inputs: list[Any]) -> tuple[list[Any], Any]:
    """A task outside of pipelines, as the weight update is: its last result is its fault."""
    body: ClosedJaxpr = eqn.params["body"]

    def function(*operands: Any) -> list[Any]:
        outputs, fault = watcher.run(body.jaxpr, body.consts, operands)
        return [*outputs, fault]

    watched = trace_flat(function, body.in_avals, watcher.axis)
    params = {"body": watched, "spec": eqn.params["spec"]}
    *outputs, fault = bind_equation(eqn.replace(params=params), inputs)
    return outputs, fault


_BRANCHES: dict[str, Callable[[_Watcher, JaxprEqn, list[Any]], tuple[list[Any], Any]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    repeat_p.name: _repeat,
    task_p.name: _task,
}


def _at_pole(name: str, inputs: Sequence[Any], out: Any, infinite: Any) -> Any:
    """Whether an operation with poles was asked for the value at one."""
    if name == "div":
        numerator, denominator = inputs
        return _any((denominator == 0) & (numerator != 0) & jnp.isfinite(numerator))
    if name in _OVERFLOWING_POLES:
        return infinite & _any(jnp.isinf(out) & (inputs[0] == 0))
    return infinite


def _on_ipu_of(eqn: JaxprEqn) -> contextlib.AbstractContextManager[Any]:
    """Where an operation is watched: where the user placed it."""
    shard = marks.read(name_stack(eqn)).shard
    if shard is None:
        return contextlib.nullcontext()
    return jax.named_scope(marks.write(marks.SHARD, str(shard)))


def _evaluate(closed: ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
    return run_equations(closed.jaxpr, closed.consts, operands)


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact)


def _any(mask: Any) -> Any:
    return jnp.any(mask)


def _not_finite(x: Any) -> Any:
    return ~jnp.isfinite(x)


def _some(test: Callable[[Any], Any], values: Sequence[Any]) -> Any:
    found: Any = jnp.bool_(False)
    for value in values:
        found = found | _any(test(value))
    return found
