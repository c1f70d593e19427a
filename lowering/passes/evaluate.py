"""Evaluates jaxprs with another function in the place of their equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lowering.jaxpr import ClosedJaxpr, JaxprEqn, Literal, in_context_of


def evaluate_with(
    closed: ClosedJaxpr,
    operands: Sequence[Any],
    run: Callable[[JaxprEqn, list[Any]], Sequence[Any]],
) -> list[Any]:
    """Evaluates a jaxpr whose equations `run` evaluates, each in its context."""
    jaxpr = closed.jaxpr
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(jaxpr.invars, operands, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for eqn in jaxpr.eqns:
        with in_context_of(eqn):
            results = run(eqn, [read(atom) for atom in eqn.invars])
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]
