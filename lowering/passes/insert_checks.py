"""The checks of every operation for the floating-point faults that options ask about.

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

from lowering import marks
from lowering.ground import Options
from lowering.ir import Fault
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    JaxprEqn,
    bind_equation,
    body_of_call,
    evaluate_equations_with,
    function_of_jaxpr,
    is_tracer,
    name_stack,
    trace_flat,
    typed_jax,
    user_line,
)
from lowering.ops import (
    POLES,
    REPLICAS,
    ControlFlow,
    axis_of_replicas,
    is_control_flow,
    task_p,
    uses_streams,
)
from lowering.passes.nan_and_infinity import NEVER, Bits, FaultWatch
from lowering.passes.thread_state import ResultsAndState, Values, thread_state_through

# The scope around the rounding of a result, with the operation's name; see `float16_rounding`.
NARROWED = re.compile(rf"(?<![^/(]){marks.NARROWED}\[([^\]]*)\]")

# Members of `POLES` that are infinite for other operands as well, whose result is too large.
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
    if not options.fault_kinds_to_report:
        return closed, ()
    watcher = _Watcher(options, axis_of_replicas(replicas))

    def run_with_checks(*operands: Any) -> list[Any]:
        outputs, fault = watcher.evaluate_with_checks(closed, operands)
        if replicas > 1:
            fault = typed_jax.pmax(fault, REPLICAS)
        return [*outputs, fault]

    checked = trace_flat(run_with_checks, closed.in_avals, watcher.axis)
    return (checked, tuple(watcher.faults)) if watcher.faults else (closed, ())


@dc.dataclass(slots=True)
class _Watcher:
    """An evaluator of jaxprs that carries a fault number; used inside a trace."""

    options: Options
    axis: tuple[str, int] | None
    faults: list[Fault] = dc.field(default_factory=list[Fault])
    has_shards: EquationFinder = dc.field(default_factory=lambda: EquationFinder(_has_shard))

    def evaluate_with_checks(
        self, closed: ClosedJaxpr, operands: Values, *, spread: bool = False
    ) -> tuple[list[Any], Any]:
        """Evaluates a body; returns its results, and the first fault's number or 0.

        Args:
          closed: the body to evaluate.
          operands: its operands.
          spread: whether its operations may be on different IPUs even if no mark says so.
        """
        spread = spread or self.has_shards(closed.jaxpr)
        watch = FaultWatch(spread=spread, infinities=self.catches_infinities)
        fault_numbers_of_bodies: list[Any] = []

        def evaluate_checked(eqn: JaxprEqn, inputs: Values) -> Values:
            outputs = self.evaluate_equation_with_checks(
                watch, fault_numbers_of_bodies, eqn, inputs
            )
            watch.reduce_full_words()
            return outputs

        outputs = evaluate_equations_with(closed, operands, evaluate_checked)
        return outputs, watch.number_of_first_fault(fault_numbers_of_bodies)

    def evaluate_equation_with_checks(
        self, watch: FaultWatch, fault_numbers_of_bodies: list[Any], eqn: JaxprEqn, inputs: Values
    ) -> Values:
        if is_control_flow(eqn):
            num_faults_before = len(self.faults)
            outputs, fault = self.evaluate_control_flow_with_checks(eqn, inputs)
            if len(self.faults) > num_faults_before:
                fault_numbers_of_bodies.append(fault)
            return outputs
        body = body_of_call(eqn)
        if body is not None:
            with jax.named_scope(str(eqn.source_info.name_stack) or "call"):
                return evaluate_equations_with(
                    body,
                    inputs,
                    lambda e, x: self.evaluate_equation_with_checks(
                        watch, fault_numbers_of_bodies, e, x
                    ),
                )
        outputs = bind_equation(eqn, inputs)
        watch.record_equation(eqn, inputs, outputs)
        narrowed = NARROWED.search(name_stack(eqn))
        # The rounding of a result to float16 is no operation of the user's.
        if not narrowed or eqn.primitive.name == "reduce_precision":
            self.check_results(watch, eqn, inputs, outputs)
        return outputs

    def check_results(
        self, watch: FaultWatch, eqn: JaxprEqn, inputs: Values, outputs: Values
    ) -> None:
        """Adds the faults that an equation can have, on the shard where the user placed it."""
        name = eqn.primitive.name
        float_results = [x for x in outputs if _is_float(x) and not watch.is_harmless(x)]
        converted = name == "convert_element_type" and not _is_float(outputs[0])
        if name in _MOVES or not (float_results or converted):
            return
        shard = marks.read_marks(name_stack(eqn)).shard
        facts_of_inputs = [watch.facts_of_value(x, shard) for x in inputs]
        nan_before = NEVER.union(*(x.nan for x in facts_of_inputs))
        wrong_before = nan_before.union(*(x.inf for x in facts_of_inputs))
        for out in float_results:
            facts = watch.facts_of_value(out, shard)
            self.add_possible_fault(watch, "invalid", eqn, facts.nan, nan_before)
            if not self.catches_infinities:
                continue
            pole = (
                _bits_of_pole(watch, name, inputs, out, facts.inf, shard)
                if name in POLES
                else NEVER
            )
            # A division by zero can be told from its operands, for each element.
            wrong = NEVER if name == "div" else wrong_before
            self.add_possible_fault(watch, "division by zero", eqn, pole, wrong)
            if name not in POLES or name in _OVERFLOWING_POLES:
                self.add_possible_fault(watch, "overflow", eqn, facts.inf, wrong_before | pole)
        if converted:
            self.add_possible_fault(watch, "invalid", eqn, nan_before, NEVER)

    def add_possible_fault(
        self, watch: FaultWatch, kind: str, eqn: JaxprEqn, happened: Bits, unless: Bits
    ) -> None:
        """Adds a fault, if options ask for it and a bit may be set while none of `unless` is."""
        if kind in self.options.fault_kinds_to_report and not happened <= unless:
            watch.add_fault(self.number_of_new_fault(kind, eqn), happened, unless)

    @property
    def catches_infinities(self) -> bool:
        return self.options.catch_division or self.options.catch_overflow

    def number_of_new_fault(self, kind: str, eqn: JaxprEqn) -> int:
        narrowed = NARROWED.search(name_stack(eqn))
        name = narrowed[1] if narrowed else eqn.primitive.name
        self.faults.append(Fault(kind, name, user_line(eqn)))
        return len(self.faults)

    def evaluate_control_flow_with_checks(
        self, eqn: JaxprEqn, inputs: Values
    ) -> tuple[Values, Any]:
        """Evaluates control flow; returns its results, and the first fault in it."""
        flow = ControlFlow.view_of_equation(eqn)
        condition_fault = self.trace_faults_of_condition(flow)

        def after_condition(variables: Values, state: Values) -> Values:
            if condition_fault is None:
                return state
            return function_of_jaxpr(condition_fault)(
                *inputs[flow.constants[0]], *variables, *state
            )

        def run_checked_body(
            body_index: int, closed: ClosedJaxpr, operands: Values, state: Values
        ) -> ResultsAndState:
            if flow.is_condition(body_index):
                return function_of_jaxpr(closed)(*operands), state
            if condition_fault is not None:
                state = after_condition(operands[-flow.num_loop_variables :], state)
            num_faults_before = len(self.faults)
            outputs, fault = self.evaluate_with_checks(
                closed, operands, spread=flow.kind == task_p.name
            )
            if state and len(self.faults) == num_faults_before:
                return outputs, state
            return outputs, [_first_of_faults(*state, fault)]

        start = [jnp.int32(0)] if flow.is_loop else []
        outputs, state = thread_state_through(eqn, inputs, start, run_checked_body, self.axis)
        state = after_condition(outputs, state)
        return outputs, _first_of_faults(*state) if state else jnp.int32(0)

    def trace_faults_of_condition(self, flow: ControlFlow) -> ClosedJaxpr | None:
        """Returns a loop's condition as a function from fault to fault; None if it has no faults.

        A condition can return nothing but its answer, so it is evaluated once more for its fault.
        """
        test = flow.bodies[0]
        if not flow.is_condition(0) or uses_streams(test.jaxpr):
            return None  # a second evaluation would take another element

        def fault_after_test(*operands: Any) -> list[Any]:
            *variables, fault = operands
            return [_first_of_faults(fault, self.evaluate_with_checks(test, variables)[1])]

        num_faults_before = len(self.faults)
        fault_after_condition = trace_flat(
            fault_after_test, [*test.in_avals, jax.typeof(jnp.int32(0))], self.axis
        )
        return fault_after_condition if len(self.faults) > num_faults_before else None


def _first_of_faults(*faults: Any) -> Any:
    """Returns the first fault that happened, of faults in order."""
    return functools.reduce(lambda first, then: jnp.where(first == 0, then, first), faults)


def _bits_of_pole(
    watch: FaultWatch, name: str, inputs: Values, out: Any, inf: Bits, shard: int | None
) -> Bits:
    """Returns the bits that tell whether an operation was evaluated at its pole."""
    if name not in _OVERFLOWING_POLES:
        return inf
    if name != "div":
        return watch.bits_of_mask(lambda: jnp.isinf(out) & (inputs[0] == 0), out, shard)
    numerator, denominator = inputs
    if not is_tracer(denominator) and bool(np.all(np.asarray(denominator) != 0)):
        return NEVER

    def is_division_by_zero() -> Any:
        return (denominator == 0) & (numerator != 0) & jnp.isfinite(numerator)

    return watch.bits_of_mask(is_division_by_zero, out, shard)


def _has_shard(eqn: JaxprEqn) -> bool:
    return marks.read_marks(name_stack(eqn)).shard is not None


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact)
