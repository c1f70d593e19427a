"""Writes marks of stages into a function, and cuts scans that belong to several stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering import marks
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationRewriter,
    JaxprEqn,
    add_innermost_scope,
    bind_equation,
    count_scan_constants_and_variables,
)


def write_stage_marks(
    closed: ClosedJaxpr, stages_of_equation: Mapping[int, Sequence[int]]
) -> ClosedJaxpr:
    """Returns a function with equations in the scopes of stages.

    Args:
      closed: the function.
      stages_of_equation: the stage of each equation, by its `id`; several ones are those of the
        iterations of a scan, which becomes one scan per stage.
    """
    rewriter = EquationRewriter(closed.jaxpr)
    for eqn in closed.jaxpr.eqns:
        stages = stages_of_equation.get(id(eqn), ())
        if len(set(stages)) > 1:
            rewriter.replace_by_function(eqn, _cut_scan(eqn, list(_runs_of_stages(stages))))
        elif stages:
            rewriter.keep_equation(add_innermost_scope(eqn, _stage_scope(stages[0])))
        else:
            rewriter.keep_equation(eqn)
    return rewriter.build_rewritten_jaxpr(closed.consts)


def _stage_scope(stage: int) -> str:
    return marks.write_mark(marks.STAGE, str(stage))


def _runs_of_stages(stages: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yields each stage with the first iteration that it has, and the first that it has not."""
    for stage in sorted(set(stages)):
        start = stages.index(stage)
        yield stage, start, start + stages.count(stage)


def _cut_scan(scan: JaxprEqn, runs: Sequence[tuple[int, int, int]]) -> Callable[..., Any]:
    """Returns a scan as several, one after the other, each in the scope of its stage."""
    num_consts, num_carry = count_scan_constants_and_variables(scan)
    length, is_reversed = scan.params["length"], scan.params["reverse"]

    def run_scans(*operands: jax.Array) -> list[jax.Array]:
        consts, rest = operands[:num_consts], operands[num_consts:]
        carry, stacks = rest[:num_carry], rest[num_carry:]
        rows: list[Sequence[jax.Array]] = []
        for stage, first, end in runs:
            start, stop = (length - end, length - first) if is_reversed else (first, end)
            slices = [lax.slice_in_dim(x, start, stop) for x in stacks]
            with jax.named_scope(_stage_scope(stage)):
                part = _scan_of_length(scan, stop - start)
                results = bind_equation(part, [*consts, *carry, *slices])
            carry = results[:num_carry]
            rows.append(results[num_carry:])
        ordered = rows[::-1] if is_reversed else rows
        return [*carry, *(jnp.concatenate(parts) for parts in zip(*ordered, strict=True))]

    return run_scans


def _scan_of_length(scan: JaxprEqn, length: int) -> JaxprEqn:
    """Returns a scan with fewer iterations."""
    unroll = min(scan.params["unroll"], length)
    return scan.replace(params={**scan.params, "length": length, "unroll": unroll})
