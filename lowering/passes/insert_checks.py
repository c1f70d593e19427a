"""Watches every operation for the floating-point faults that the configuration asks about.

The IPU raises an exception in the tile that divides by zero. XLA has no such thing, so the
program carries one int32 along, through loops and branches too: 0, or the number of the first
operation that did what `floating_point_behaviour.inv`, `div0` or `oflo` forbids.
"""

from __future__ import annotations

import dataclasses as dc
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering import marks
from lowering.ir.program import Fault
from lowering.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    bind_equation,
    call_body,
    hoisted,
    is_tracer,
    name_stack,
    run_equations,
    scan_counts,
    trace_flat,
    user_line,
)
from lowering.narrow import POLES, SCOPE
from lowering.ops.collectives import REPLICAS
from lowering.ops.streams import repeat, repeat_p, uses_streams
from lowering.ops.tasks import TaskSpec, is_task, task_p
from lowering.options import Options
from lowering.passes.evaluate import evaluate_with
from lowering.passes.facts import NEVER, Bits, Watch
from lowering.passes.rewrite import Anywhere

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
    has_shards: Anywhere = dc.field(default_factory=lambda: Anywhere(_has_shard))

    def run(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[Any],
        operands: Sequence[Any],
        *,
        spread: bool = False,
    ) -> tuple[list[Any], Any]:
        """The results, and the smallest number of a fault that happened, or 0.

        Args:
          jaxpr: the body to evaluate.
          consts: its constants.
          operands: what it is evaluated on.
          spread: whether its operations may be on different IPUs even if no mark says so.
        """
        spread = spread or self.has_shards(jaxpr)
        watch = Watch(spread=spread, infinities=self.catches_infinities)
        inner: list[Any] = []

        def watched(eqn: JaxprEqn, given: list[Any]) -> list[Any]:
            outputs = self.equation(watch, inner, eqn, given)
            watch.reduce()
            return outputs

        outputs = evaluate_with(ClosedJaxpr(jaxpr, consts), operands, watched)
        return outputs, watch.first(inner)

    def equation(
        self, watch: Watch, inner: list[Any], eqn: JaxprEqn, inputs: list[Any]
    ) -> list[Any]:
        branch = _BRANCHES.get(eqn.primitive.name)
        if branch is not None:
            before = len(self.faults)
            outputs, fault = branch(self, eqn, inputs)
            if len(self.faults) > before:
                inner.append(fault)
            return outputs
        body = call_body(eqn)
        if body is not None:
            with jax.named_scope(str(eqn.source_info.name_stack) or "call"):
                return evaluate_with(body, inputs, lambda e, x: self.equation(watch, inner, e, x))
        outputs = bind_equation(eqn, inputs)
        watch.made(eqn, inputs, outputs)
        narrowed = NARROWED.search(name_stack(eqn))
        # How a float16 is made of a result is no operation of the user's.
        if not narrowed or eqn.primitive.name == "reduce_precision":
            self.check(watch, eqn, inputs, outputs)
        return outputs

    def check(
        self, watch: Watch, eqn: JaxprEqn, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        """Watches an equation where the user placed it."""
        name = eqn.primitive.name
        made = [x for x in outputs if _is_float(x) and not watch.is_harmless(x)]
        converted = name == "convert_element_type" and not _is_float(outputs[0])
        if name in _MOVES or not (made or converted):
            return
        shard = marks.read(name_stack(eqn)).shard
        ins = [watch.facts(x, shard) for x in inputs]
        nan_before = NEVER.union(*(x.nan for x in ins))
        wrong_before = nan_before.union(*(x.inf for x in ins))
        for out in made:
            facts = watch.facts(out, shard)
            self.fault(watch, "invalid", eqn, facts.nan, nan_before)
            if not self.catches_infinities:
                continue
            pole = _pole(watch, name, inputs, out, facts.inf, shard) if name in POLES else NEVER
            # What a division by zero gives can be told from what it was given, for each element.
            wrong = NEVER if name == "div" else wrong_before
            self.fault(watch, "division by zero", eqn, pole, wrong)
            if name not in POLES or name in _OVERFLOWING_POLES:
                self.fault(watch, "overflow", eqn, facts.inf, wrong_before | pole)
        if converted:
            self.fault(watch, "invalid", eqn, nan_before, NEVER)

    def fault(self, watch: Watch, kind: str, eqn: JaxprEqn, happened: Bits, unless: Bits) -> None:
        """Numbers a fault, if it is asked for and possible: some bit set and none of the others."""
        if self.catches(kind) and not happened <= unless:
            watch.add_fault(self.number(kind, eqn), happened, unless)

    @property
    def catches_infinities(self) -> bool:
        return self.options.catch_division or self.options.catch_overflow

    def catches(self, kind: str) -> bool:
        options = self.options
        caught = {
            "invalid": options.catch_invalid,
            "division by zero": options.catch_division,
            "overflow": options.catch_overflow,
        }
        return caught[kind]

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
    consts, carry = scan_counts(eqn)
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
    body, tables = hoisted(body)
    start = [*carry, jnp.int32(0)]
    *state, fault = repeat(body, [*tables, *consts], start, trips, p["loop"])
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
            *outputs, fault = task.run([*given, faults.pop(0)])
            faults.append(fault)
            return outputs

        return [*evaluate_with(body, operands[: len(inputs)], run), *faults]

    number = jax.typeof(jnp.int32(0))
    whole = trace_flat(watched, [*body.in_avals, *([number] * count)], watcher.axis)
    start = [*carry, *([jnp.int32(0)] * count)]
    whole, tables = hoisted(whole)
    results = repeat(whole, [*tables, *consts], start, p["count"], p["loop"], p["pipeline"])
    fault: Any = None
    for found in results[len(carry) :]:
        fault = found if fault is None else jnp.where(fault == 0, found, fault)
    return results[: len(carry)], fault


def _watched_task(watcher: _Watcher, eqn: JaxprEqn) -> _Task | None:
    """A task whose last operand and last result are its fault number; None if it cannot fail."""
    body: ClosedJaxpr = eqn.params["body"]
    before = len(watcher.faults)
    watched = watcher.body(body, body.in_avals, len(body.out_avals))
    if len(watcher.faults) == before:
        return None
    return _Task.of(eqn, watched, (len(body.in_avals), len(body.out_avals)))


def _task(watcher: _Watcher, eqn: JaxprEqn, inputs: list[Any]) -> tuple[list[Any], Any]:
    """A task outside of pipelines, as the weight update is: its last result is its fault."""
    body: ClosedJaxpr = eqn.params["body"]

    def function(*operands: Any) -> list[Any]:
        outputs, fault = watcher.run(body.jaxpr, body.consts, operands, spread=True)
        return [*outputs, fault]

    watched = trace_flat(function, body.in_avals, watcher.axis)
    *outputs, fault = _Task.of(eqn, watched).run(inputs)
    return outputs, fault


@dc.dataclass(frozen=True, slots=True)
class _Task:
    """A task that watches, and the constants that are its first operands."""

    eqn: JaxprEqn
    consts: Sequence[Any]

    @staticmethod
    def of(eqn: JaxprEqn, watched: ClosedJaxpr, *accumulated: tuple[int, int]) -> _Task:
        """The task with another body, which has one more buffer for each pair."""
        body, consts = hoisted(watched)
        spec: TaskSpec = eqn.params["spec"]
        pairs = (*spec.accumulated, *accumulated)
        shifted = tuple((operand + len(consts), result) for operand, result in pairs)
        params = {"body": body, "spec": dc.replace(spec, accumulated=shifted)}
        return _Task(eqn.replace(params=params), consts)

    def run(self, operands: Sequence[Any]) -> list[Any]:
        return bind_equation(self.eqn, [*self.consts, *operands])


_BRANCHES: dict[str, Callable[[_Watcher, JaxprEqn, list[Any]], tuple[list[Any], Any]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    repeat_p.name: _repeat,
    task_p.name: _task,
}


def _pole(
    watch: Watch, name: str, inputs: Sequence[Any], out: Any, inf: Bits, shard: int | None
) -> Bits:
    """Whether an operation with poles was asked for the value at one."""
    if name not in _OVERFLOWING_POLES:
        return inf
    if name != "div":
        return watch.where(lambda: jnp.isinf(out) & (inputs[0] == 0), out, shard)
    numerator, denominator = inputs
    if not is_tracer(denominator) and bool(np.all(np.asarray(denominator) != 0)):
        return NEVER

    def by_zero() -> Any:
        return (denominator == 0) & (numerator != 0) & jnp.isfinite(numerator)

    return watch.where(by_zero, out, shard)


def _has_shard(eqn: JaxprEqn) -> bool:
    return marks.read(name_stack(eqn)).shard is not None


def _evaluate(closed: ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
    return run_equations(closed.jaxpr, closed.consts, operands)


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact)
