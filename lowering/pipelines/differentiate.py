"""The derivative of a stage, cut into a forward and a backward function.

Both halves come from one trace of the stage and its vector-Jacobian product. Equations traced by
the stage belong to the forward half, and those traced by its pullback to the backward half: so the
backward function of a `custom_vjp` runs there, on the residuals that its user has chosen. The
forward half keeps as little as it can: no parameters and nothing computed from them alone, and
otherwise the fewest bytes from which elementwise operations recompute the rest.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Collection, Sequence
from typing import Any

from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    JaxprEqn,
    Literal,
    Var,
    inline_jitted_calls,
    is_dropped,
    jaxpr_of_equations_with_constants,
    rename_atoms,
    replace_equations,
    unique_variables,
)
from lowering.keeping import (
    insert_recomputation_before_readers,
    is_cheap_to_recompute,
    reduce_stacks_of_scans,
    select_equations_to_recompute,
)
from lowering.ops import checkpoint_p, is_draw
from lowering.pipelines.backward_slices import (
    add_equations_with_actions,
    select_equations_for,
    variables_depending_on,
    variables_read_from_outside,
)
from lowering.pipelines.pullbacks import PullbackTracer


@dc.dataclass(frozen=True, slots=True)
class StageDerivative:
    """The forward and the backward function of a stage, both flat.

    Attributes:
      forward: operands -> results and residuals.
      backward: the kept operands, the residuals, the cotangents -> the gradients asked for.
      kept: the numbers of the operands that the backward half reads.
      residuals: the number of residuals.
    """

    forward: ClosedJaxpr
    backward: ClosedJaxpr
    kept: tuple[int, ...]
    residuals: int


def differentiate_stage(
    stage: ClosedJaxpr,
    *,
    gradients: Sequence[int],
    cotangents: Sequence[int],
    constant_operands: Collection[int],
    tracer: PullbackTracer | None = None,
) -> StageDerivative:
    """Differentiates a stage, and cuts the result into a forward and a backward function.

    Args:
      stage: a flat function.
      gradients: the operands whose gradients are wanted.
      cotangents: the results whose cotangents will be given; the others' are zero.
      constant_operands: the operands that are the same for all micro-batches, as parameters are.
      tracer: of the stages that may share a trace with this one; None for one of its own.
    """
    traced = (tracer or PullbackTracer()).trace(stage, gradients, cotangents)
    joint = _read_checkpoints_instead_of_originals(inline_jitted_calls(traced))
    jaxpr = joint.jaxpr
    num_operands = len(stage.in_avals)
    operands, cotangent_vars = jaxpr.invars[:num_operands], jaxpr.invars[num_operands:]
    results = jaxpr.outvars[: len(stage.out_avals)]
    gradient_vars = jaxpr.outvars[len(stage.out_avals) :]

    forward_eqns, seeds, backward_eqns = _split_at_cotangent_barrier(jaxpr.eqns, cotangent_vars)
    backward_eqns = add_equations_with_actions(
        backward_eqns, select_equations_for(backward_eqns, gradient_vars)
    )
    constants = {operands[i] for i in constant_operands} | set(jaxpr.constvars)
    forward_eqns, backward_eqns = reduce_stacks_of_scans(
        forward_eqns, backward_eqns, constants, lambda eqns: is_cheap_to_recompute
    )
    recomputed = _select_recomputed_equations(
        forward_eqns, backward_eqns, gradient_vars, constants, operands
    )

    backward = insert_recomputation_before_readers(recomputed, backward_eqns)
    reads = [v for v in variables_read_from_outside(backward, gradient_vars) if v not in seeds]
    reads = [v for v in reads if v not in jaxpr.constvars]
    kept_operands = [i for i, var in enumerate(operands) if var in reads]
    residuals = [v for v in reads if v not in operands]
    forward = add_equations_with_actions(
        forward_eqns, select_equations_for(forward_eqns, [*results, *residuals])
    )
    return StageDerivative(
        forward=jaxpr_of_equations_with_constants(joint, operands, [*results, *residuals], forward),
        backward=jaxpr_of_equations_with_constants(
            joint,
            [*(operands[i] for i in kept_operands), *residuals, *seeds],
            gradient_vars,
            backward,
        ),
        kept=tuple(kept_operands),
        residuals=len(residuals),
    )


def _read_checkpoints_instead_of_originals(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Makes everything read checkpoints, not the originals, so that only one is kept."""
    jaxpr = closed.jaxpr
    if all(eqn.primitive is not checkpoint_p for eqn in jaxpr.eqns):
        return closed
    inputs_and_copies = {*jaxpr.invars, *jaxpr.constvars}  # nothing is gained by copies of these
    new_name_of_variable: dict[Var, Any] = {}
    copies: dict[Var, JaxprEqn] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive is checkpoint_p:
            (copy,), (source,) = eqn.outvars, rename_atoms(eqn.invars, new_name_of_variable)
            if isinstance(source, Literal) or source in inputs_and_copies:
                new_name_of_variable[copy] = source
            else:
                copies[source], new_name_of_variable[source] = eqn, copy
                inputs_and_copies.add(copy)
    eqns: list[JaxprEqn] = []
    for eqn in jaxpr.eqns:
        if eqn.primitive is not checkpoint_p:
            eqns.append(eqn.replace(invars=rename_atoms(eqn.invars, new_name_of_variable)))
            eqns += [copies[var] for var in eqn.outvars if var in copies]
    outvars = rename_atoms(jaxpr.outvars, new_name_of_variable)
    return ClosedJaxpr(replace_equations(jaxpr, eqns, outvars), closed.consts)


def _split_at_cotangent_barrier(
    eqns: Sequence[JaxprEqn], cotangent_vars: Sequence[Var]
) -> tuple[Sequence[JaxprEqn], Sequence[Var], Sequence[JaxprEqn]]:
    """Splits equations at the barrier of the cotangents, and returns its results too."""
    for index, eqn in enumerate(eqns):
        if not set(cotangent_vars).isdisjoint(unique_variables(eqn.invars)):
            pairs = zip(cotangent_vars, eqn.outvars, strict=True)
            seeds = [cotangent if is_dropped(result) else result for cotangent, result in pairs]
            return eqns[:index], seeds, eqns[index + 1 :]
    return eqns, cotangent_vars, ()


def _select_recomputed_equations(
    forward_eqns: Sequence[JaxprEqn],
    backward_eqns: Sequence[JaxprEqn],
    gradient_vars: Sequence[Any],
    constants: Collection[Var],
    operands: Sequence[Var],
) -> list[JaxprEqn]:
    """Returns the forward equations that the backward half runs again, to keep fewer bytes."""
    required = set(variables_read_from_outside(backward_eqns, gradient_vars))
    draws = EquationFinder(is_draw)
    drawn = [
        v
        for e in forward_eqns
        if is_draw(e) or draws.occurs_inside(e)
        for v in unique_variables(e.outvars)
    ]
    of_inputs = variables_depending_on(
        forward_eqns, [*(v for v in operands if v not in constants), *drawn]
    ) | {*drawn}
    # Values computed from parameters and literals alone are the same for every micro-batch.
    fixed: list[JaxprEqn] = []
    every_time: list[JaxprEqn] = []
    for eqn in forward_eqns:
        is_fixed = not eqn.effects and of_inputs.isdisjoint(
            unique_variables([*eqn.invars, *eqn.outvars])
        )
        (fixed if is_fixed else every_time).append(eqn)
    made_once = {var for eqn in fixed for var in eqn.outvars}
    available = {*constants, *made_once, *(v for v in operands if v in required)}
    recomputed = select_equations_to_recompute(every_time, required - available, available)
    read = {*required, *(v for e in recomputed for v in unique_variables(e.invars))} & made_once
    made_again = {id(e) for e in (*select_equations_for(fixed, read), *recomputed)}
    return [eqn for eqn in forward_eqns if id(eqn) in made_again]
