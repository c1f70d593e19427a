"""The derivative of a stage, cut into what runs forward and what runs backward.

Both halves come from one trace of the stage and its vector-Jacobian product. What the stage itself
has traced belongs to the forward half, and what its pullback has traced to the backward half: so
the backward function of a `custom_vjp` computes there what it computes, of the residuals that its
user has chosen. The forward half keeps as little as it can: no parameters and nothing made of them
alone, and otherwise the fewest bytes of which elementwise operations give the rest again.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Collection, Sequence
from typing import Any

import jax

from lowering.equations import function_of, part_of, renamed, variables
from lowering.jaxpr import (
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    Var,
    is_dropped,
    trace_flat,
    with_eqns,
)
from lowering.keeping.choice import just_in_time, run_again
from lowering.keeping.scans import scans_keeping_less
from lowering.ops.draws import is_draw
from lowering.ops.tasks import checkpoint_p
from lowering.passes.rewrite import Anywhere, jits_opened
from lowering.pipelines.slices import dependent, needed_for, read_from_outside, with_actions


@dc.dataclass(frozen=True, slots=True)
class Halves:
    """A stage's forward and backward functions, both flat.

    Attributes:
      forward: operands -> results and residuals.
      backward: the kept operands, the residuals, the cotangents -> the gradients asked for.
      kept: which operands the backward half reads.
      residuals: how many there are.
    """

    forward: ClosedJaxpr
    backward: ClosedJaxpr
    kept: tuple[int, ...]
    residuals: int


def differentiate(
    stage: ClosedJaxpr,
    *,
    gradients: Sequence[int],
    cotangents: Sequence[int],
    constant: Collection[int],
) -> Halves:
    """Differentiates a stage.

    Args:
      stage: a flat function.
      gradients: the operands whose gradients are wanted.
      cotangents: the results whose cotangents will be given; the others' are zero.
      constant: the operands that are the same for all micro-batches, as parameters are.
    """
    joint = _reading_checkpoints(jits_opened(_joint(stage, gradients, cotangents)))
    jaxpr = joint.jaxpr
    count = len(stage.in_avals)
    operands, given = jaxpr.invars[:count], jaxpr.invars[count:]
    results = jaxpr.outvars[: len(stage.out_avals)]
    wanted = jaxpr.outvars[len(stage.out_avals) :]

    ahead, seeds, behind = _halved(jaxpr.eqns, given)
    behind = with_actions(behind, needed_for(behind, wanted))
    always = {operands[i] for i in constant} | set(jaxpr.constvars)
    ahead, behind = scans_keeping_less(ahead, behind, always)
    again = _again(ahead, behind, wanted, always, operands)

    backward = just_in_time(again, behind)
    reads = [v for v in read_from_outside(backward, wanted) if v not in seeds]
    reads = [v for v in reads if v not in jaxpr.constvars]
    kept = [i for i, var in enumerate(operands) if var in reads]
    residuals = [v for v in reads if v not in operands]
    forward = with_actions(ahead, needed_for(ahead, [*results, *residuals]))
    return Halves(
        forward=part_of(joint, operands, [*results, *residuals], forward),
        backward=part_of(
            joint, [*(operands[i] for i in kept), *residuals, *seeds], wanted, backward
        ),
        kept=tuple(kept),
        residuals=len(residuals),
    )


def _reading_checkpoints(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Lets everything read checkpoints, not what they are copies of, to keep only one of both."""
    jaxpr = closed.jaxpr
    known = {*jaxpr.invars, *jaxpr.constvars}  # nothing is gained by copies of these
    names: dict[Var, Any] = {}
    copies: dict[Var, JaxprEqn] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive is checkpoint_p:
            (copy,), (source,) = eqn.outvars, renamed(eqn.invars, names)
            if isinstance(source, Literal) or source in known:
                names[copy] = source
            else:
                copies[source], names[source] = eqn, copy
                known.add(copy)
    eqns: list[JaxprEqn] = []
    for eqn in jaxpr.eqns:
        if eqn.primitive is not checkpoint_p:
            eqns.append(eqn.replace(invars=renamed(eqn.invars, names)))
            eqns += [copies[var] for var in eqn.outvars if var in copies]
    outvars = renamed(jaxpr.outvars, names)
    return ClosedJaxpr(with_eqns(jaxpr, eqns, outvars), closed.consts)


def _joint(stage: ClosedJaxpr, gradients: Sequence[int], cotangents: Sequence[int]) -> ClosedJaxpr:
    """Operands and cotangents -> results and gradients; see `_halved` for what is in between."""
    avals = stage.in_avals

    def whole(*flat: Any) -> list[Any]:
        operands, seeds = list(flat[: len(avals)]), list(flat[len(avals) :])

        def function(*chosen: Any) -> Any:
            varied = dict(zip(gradients, chosen, strict=True))
            results = function_of(stage)(*(varied.get(i, x) for i, x in enumerate(operands)))
            return [results[i] for i in cotangents], results

        chosen = [operands[i] for i in gradients]
        _, pullback, results = jax.vjp(function, *chosen, has_aux=True)
        return [*results, *pullback(jax.lax.optimization_barrier(seeds))]

    return trace_flat(whole, [*avals, *(stage.out_avals[i] for i in cotangents)])


def _halved(
    eqns: Sequence[JaxprEqn], given: Sequence[Var]
) -> tuple[Sequence[JaxprEqn], Sequence[Var], Sequence[JaxprEqn]]:
    """The equations before and behind the barrier of the cotangents, and these behind it."""
    for place, eqn in enumerate(eqns):
        if not set(given).isdisjoint(variables(eqn.invars)):
            pairs = zip(given, eqn.outvars, strict=True)
            seeds = [before if is_dropped(after) else after for before, after in pairs]
            return eqns[:place], seeds, eqns[place + 1 :]
    return eqns, given, ()


def _again(
    ahead: Sequence[JaxprEqn],
    behind: Sequence[JaxprEqn],
    wanted: Sequence[Any],
    always: Collection[Var],
    operands: Sequence[Var],
) -> list[JaxprEqn]:
    """The forward equations that the backward half runs again instead of keeping their results."""
    required = set(read_from_outside(behind, wanted))
    draws = Anywhere(is_draw)
    drawn = [v for e in ahead if is_draw(e) or draws.inside(e) for v in variables(e.outvars)]
    of_inputs = dependent(ahead, [*(v for v in operands if v not in always), *drawn]) | {*drawn}
    # What is made of parameters and literals alone is the same for every micro-batch.
    fixed: list[JaxprEqn] = []
    every_time: list[JaxprEqn] = []
    for eqn in ahead:
        is_fixed = not eqn.effects and of_inputs.isdisjoint(variables([*eqn.invars, *eqn.outvars]))
        (fixed if is_fixed else every_time).append(eqn)
    made_once = {var for eqn in fixed for var in eqn.outvars}
    available = {*always, *made_once, *(v for v in operands if v in required)}
    again = run_again(every_time, required - available, available)
    read = {*required, *(v for e in again for v in variables(e.invars))} & made_once
    made_again = {id(e) for e in (*needed_for(fixed, read), *again)}
    return [eqn for eqn in ahead if id(eqn) in made_again]
