"""Stages and their pullbacks in one trace, which stages of the same structure share."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lowering.jaxprs import (
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    bind_equation,
    derivative_key,
    evaluate_equations_with,
    has_numbers_in_bodies,
    insert_sources,
    number_equations,
    parameters_key,
    sub_jaxprs,
    trace_flat,
    trace_once,
    typed_jax,
    use_source_of,
)


@dc.dataclass(frozen=True, slots=True)
class _Template:
    """A stage and its pullback, traced with numbers in the place of the stage's name stacks."""

    stage: ClosedJaxpr
    joint: ClosedJaxpr


class _EquationRunner:
    """A runner of equations that are differentiated: those that compute the same only once.

    JAX remembers the derivative of a jitted function. So each kind of equation is one, which is
    opened wherever it is called.
    """

    def __init__(self) -> None:
        self._functions: dict[Any, Callable[..., Any]] = {}

    def __call__(self, eqn: JaxprEqn, values: Sequence[Any]) -> Sequence[Any]:
        """Runs an equation on values, under its name stack and with its line."""
        if eqn.effects or eqn.primitive.multiple_results or sub_jaxprs(eqn):
            return bind_equation(eqn, values)
        literals = {i: x for i, x in enumerate(values) if isinstance(eqn.invars[i], Literal)}
        known = [(i, eqn.invars[i].aval, np.asarray(x).tobytes()) for i, x in literals.items()]
        key = eqn.primitive, parameters_key(eqn), len(values), *known
        if key not in self._functions:
            self._functions[key] = trace_once(_function_of_equation(eqn, literals))
        with use_source_of(eqn):
            return [self._functions[key](*(x for i, x in enumerate(values) if i not in literals))]


def _function_of_equation(eqn: JaxprEqn, literals: Mapping[int, Any]) -> Callable[..., Any]:
    primitive, params, count = eqn.primitive, eqn.params, len(eqn.invars)

    def run(*others: Any) -> Any:
        remaining = iter(others)
        values = [literals[i] if i in literals else next(remaining) for i in range(count)]
        return primitive.bind(*values, **primitive.get_bind_params(params))

    return run


class PullbackTracer:
    """A tracer of stages and their pullbacks.

    Stages that are the same up to the lines and scopes of their own equations are traced once, as
    the layers of a deep model are.
    """

    def __init__(self) -> None:
        self._templates: dict[Any, _Template | None] = {}
        self._run_equation = _EquationRunner()

    def trace(
        self, stage: ClosedJaxpr, gradients: Sequence[int], cotangents: Sequence[int]
    ) -> ClosedJaxpr:
        """Traces a stage and its pullback: operands, cotangents -> results, gradients."""
        key = derivative_key(stage), tuple(gradients), tuple(cotangents)
        if key not in self._templates:
            self._templates[key] = self._trace_template(stage, gradients, cotangents)
        template = self._templates[key]
        if template is None:
            return self._trace_with_pullback(stage, gradients, cotangents)
        return insert_sources(template.joint, template.stage.jaxpr.eqns, stage.jaxpr.eqns)

    def _trace_template(
        self, stage: ClosedJaxpr, gradients: Sequence[int], cotangents: Sequence[int]
    ) -> _Template | None:
        """Traces what stages of one structure share; None if sources of theirs cannot be told."""
        joint = self._trace_with_pullback(number_equations(stage), gradients, cotangents)
        return None if has_numbers_in_bodies(joint) else _Template(stage, joint)

    def _trace_with_pullback(
        self, stage: ClosedJaxpr, gradients: Sequence[int], cotangents: Sequence[int]
    ) -> ClosedJaxpr:
        avals = stage.in_avals

        def run_stage_and_pullback(*flat: Any) -> list[Any]:
            operands, seeds = list(flat[: len(avals)]), list(flat[len(avals) :])

            def run_stage(*differentiated_operands: Any) -> Any:
                value_of_operand = dict(zip(gradients, differentiated_operands, strict=True))
                values = [value_of_operand.get(i, x) for i, x in enumerate(operands)]
                results = evaluate_equations_with(stage, values, self._run_equation)
                return [results[i] for i in cotangents], results

            chosen = [operands[i] for i in gradients]
            _, pullback, results = typed_jax.vjp(run_stage, *chosen, has_aux=True)
            return [*results, *pullback(typed_jax.optimization_barrier(seeds))]

        seed_avals = [stage.out_avals[i] for i in cotangents]
        return trace_flat(run_stage_and_pullback, [*avals, *seed_avals])
