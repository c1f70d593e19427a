"""Watches every operation for the floating-point faults that the configuration asks about.

The IPU raises an exception in the tile that divides by zero. XLA has no such thing, so the
program carries one int32 along, through loops and branches too: 0, or the number of the first
operation that did what `floating_point_behaviour.inv`, `div0` or `oflo` forbids.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering import marks
from lowering.control_flow import ControlFlow, is_control_flow
from lowering.equations import evaluate_with, function_of
from lowering.ir.program import Fault
from lowering.jaxpr import (
    ClosedJaxpr,
    JaxprEqn,
    bind_equation,
    call_body,
    is_tracer,
    name_stack,
    trace_flat,
    user_line,
)
from lowering.narrow import POLES
from lowering.ops.collectives import REPLICAS, axis_of
from lowering.ops.streams import uses_streams
from lowering.ops.tasks import task_p
from lowering.options import Options
from lowering.passes.facts import NEVER, Bits, Watch
from lowering.passes.rewrite import Anywhere
from lowering.passes.thread import Stepped, Values, threaded

# What was done to a result, and of which operation; see `lowering.narrow`.
NARROWED = re.compile(rf"(?<![^/(]){marks.NARROWED}\[([^\]]*)\]")

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
    watcher = _Watcher(options, axis_of(replicas))

    def watched(*operands: Any) -> list[Any]:
        outputs, fault = watcher.run(closed, operands)
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
        self, closed: ClosedJaxpr, operands: Values, *, spread: bool = False
    ) -> tuple[list[Any], Any]:
        """The results, and the smallest number of a fault that happened, or 0.

        Args:
          closed: the body to evaluate.
          operands: what it is evaluated on.
          spread: whether its operations may be on different IPUs even if no mark says so.
        """
        spread = spread or self.has_shards(closed.jaxpr)
        watch = Watch(spread=spread, infinities=self.catches_infinities)
        inner: list[Any] = []

        def watched(eqn: JaxprEqn, inputs: Values) -> Values:
            outputs = self.equation(watch, inner, eqn, inputs)
            watch.reduce()
            return outputs

        outputs = evaluate_with(closed, operands, watched)
        return outputs, watch.first(inner)

    def equation(self, watch: Watch, inner: list[Any], eqn: JaxprEqn, inputs: Values) -> Values:
        if is_control_flow(eqn):
            before = len(self.faults)
            outputs, fault = self.inside(eqn, inputs)
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

    def check(self, watch: Watch, eqn: JaxprEqn, inputs: Values, outputs: Values) -> None:
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
        if kind in self.options.catches and not happened <= unless:
            watch.add_fault(self.number(kind, eqn), happened, unless)

    @property
    def catches_infinities(self) -> bool:
        return self.options.catch_division or self.options.catch_overflow

    def number(self, kind: str, eqn: JaxprEqn) -> int:
        narrowed = NARROWED.search(name_stack(eqn))
        name = narrowed[1] if narrowed else eqn.primitive.name
        self.faults.append(Fault(kind, name, user_line(eqn)))
        return len(self.faults)

    def inside(self, eqn: JaxprEqn, inputs: Values) -> tuple[Values, Any]:
        """The results of control flow, and the first fault in it."""
        flow = ControlFlow.of(eqn)
        tested = self.condition(flow)

        def after_condition(variables: Values, state: Values) -> Values:
            if tested is None:
                return state
            return function_of(tested)(*inputs[flow.constants[0]], *variables, *state)

        def run(number: int, closed: ClosedJaxpr, operands: Values, state: Values) -> Stepped:
            if flow.is_condition(number):
                return function_of(closed)(*operands), state
            if tested is not None:
                state = after_condition(operands[-flow.variables :], state)
            before = len(self.faults)
            outputs, fault = self.run(closed, operands, spread=flow.kind == task_p.name)
            if state and len(self.faults) == before:
                return outputs, state
            return outputs, [_first(*state, fault)]

        start = [jnp.int32(0)] if flow.is_loop else []
        outputs, state = threaded(eqn, inputs, start, run, self.axis)
        state = after_condition(outputs, state)
        return outputs, _first(*state) if state else jnp.int32(0)

    def condition(self, flow: ControlFlow) -> ClosedJaxpr | None:
        """A loop's condition as a fault that follows another; None if it has none to find.

        A condition can return nothing but its answer, so it is evaluated once more for its fault.
        """
        test = flow.bodies[0]
        if not flow.is_condition(0) or uses_streams(test.jaxpr):
            return None  # once more would take another element

        def watched(*operands: Any) -> list[Any]:
            *variables, fault = operands
            return [_first(fault, self.run(test, variables)[1])]

        before = len(self.faults)
        tested = trace_flat(watched, [*test.in_avals, jax.typeof(jnp.int32(0))], self.axis)
        return tested if len(self.faults) > before else None


def _first(*faults: Any) -> Any:
    """The first fault that happened, of those in order."""
    return functools.reduce(lambda first, then: jnp.where(first == 0, then, first), faults)


def _pole(watch: Watch, name: str, inputs: Values, out: Any, inf: Bits, shard: int | None) -> Bits:
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


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact)
