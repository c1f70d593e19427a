"""The derivative of a stage, cut into what runs forward and what runs backward.

Both halves come from one trace of the stage and its vector-Jacobian product. What depends on a
cotangent belongs to the backward half; of the rest, the forward half keeps for it as little as it
can: no parameters and nothing made of them alone, and no value that a few elementwise operations
on kept ones give again.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Collection, Sequence
from typing import Any

import jax

from lowering.equations import function_of, part_of, renamed, variables
from lowering.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var, call_body, trace_flat, with_eqns
from lowering.ops.draws import is_draw
from lowering.ops.tasks import checkpoint_p
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten
from lowering.pipelines.slices import (
    dependent,
    needed_for,
    read_from_outside,
    recomputable,
    with_actions,
)

# Cheap next to reading their result from memory: elementwise and short, or moving data only.
_CHEAP = frozenset({
    "abs", "add", "add_any", "and", "broadcast_in_dim", "convert_element_type", "copy", "eq",
    "expand_dims", "ge", "gt", "integer_pow", "iota", "le", "lt", "max", "min", "mul", "ne", "neg",
    "not", "or", "reshape", "select_n", "sign", "square", "squeeze", "stop_gradient", "sub",
})  # fmt: skip


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
    joint = _joint(_with_checkpoints_on_top(stage), gradients, cotangents)
    joint = _reading_checkpoints(joint)
    jaxpr = joint.jaxpr
    count = len(stage.in_avals)
    operands, seeds = jaxpr.invars[:count], jaxpr.invars[count:]
    results = jaxpr.outvars[: len(stage.out_avals)]
    wanted = jaxpr.outvars[len(stage.out_avals) :]

    after = dependent(jaxpr.eqns, seeds)
    late = {id(e) for e in jaxpr.eqns if not after.isdisjoint(variables(e.invars))}
    ahead = [e for e in jaxpr.eqns if id(e) not in late]
    behind = [e for e in jaxpr.eqns if id(e) in late]
    behind = with_actions(behind, needed_for(behind, wanted))
    always = {operands[i] for i in constant} | set(jaxpr.constvars)
    again = _again(ahead, behind, wanted, always, operands)

    backward = [*again, *behind]
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


def _with_checkpoints_on_top(stage: ClosedJaxpr) -> ClosedJaxpr:
    """Opens the jitted functions that hold checkpoints, so that recomputation sees these."""
    checkpoints = Anywhere(lambda eqn: eqn.primitive is checkpoint_p)
    jitted = Anywhere(lambda eqn: eqn.primitive.name == "jit" and checkpoints.inside(eqn))

    def open_up(rewriter: Rewriter, eqn: JaxprEqn) -> None:
        body = call_body(eqn)
        if body is not None:
            rewriter.open(eqn, body)

    return rewritten(stage, jitted, open_up)


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
    """Operands and cotangents -> results and gradients."""
    avals = stage.in_avals

    def whole(*flat: Any) -> list[Any]:
        operands, seeds = list(flat[: len(avals)]), list(flat[len(avals) :])

        def function(*chosen: Any) -> Any:
            varied = dict(zip(gradients, chosen, strict=True))
            results = function_of(stage)(*(varied.get(i, x) for i, x in enumerate(operands)))
            return [results[i] for i in cotangents], results

        chosen = [operands[i] for i in gradients]
        _, pullback, results = jax.vjp(function, *chosen, has_aux=True)
        return [*results, *pullback(seeds)]

    return trace_flat(whole, [*avals, *(stage.out_avals[i] for i in cotangents)])


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
    again = recomputable(every_time, required - available, available, _is_cheap)
    read = {*required, *(v for e in again for v in variables(e.invars))} & made_once
    made_again = {id(e) for e in (*needed_for(fixed, read), *again)}
    return [eqn for eqn in ahead if id(eqn) in made_again]


def _is_cheap(eqn: JaxprEqn) -> bool:
    if eqn.effects:
        return False
    body = call_body(eqn)
    if body is not None:
        return len(body.jaxpr.eqns) <= 4 and all(map(_is_cheap, body.jaxpr.eqns))
    return eqn.primitive.name in _CHEAP
