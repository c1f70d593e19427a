"""Turns conditions over the state of several IPUs into selections.

An optimizer may update its state under a condition (`optax.MultiSteps`, `optax.apply_if_finite`).
A condition runs on one IPU, to which all that its branches read and give would be brought; and the
host would read its predicate. Selections run where each value is.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from lowering import marks
from lowering.ground import Options
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    body_of_call,
    function_of_jaxpr,
    name_stack,
    rewrite_equations,
    sub_jaxprs,
)
from lowering.keeping import is_cheap_to_recompute
from lowering.ops import is_task
from lowering.passes.place import find_used_shards

_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_prod")


def select_cheap_branches(closed: ClosedJaxpr, options: Options) -> ClosedJaxpr:
    """Replaces conditions whose branches are cheap by selections among the branches' results.

    Branches that are not taken run too, so that nothing is replaced if faults are to be reported.

    Before: any jaxpr.
    After:  in a program of several IPUs, a condition outside of tasks has a branch that loops,
            multiplies matrices, has effects or is marked with an IPU.
    """
    finder = EquationFinder(_has_cheap_branches, is_task)
    if options.fault_kinds_to_report or not finder(closed.jaxpr):
        return closed
    if len(find_used_shards(closed)) < 2:
        return closed
    return rewrite_equations(closed, finder, _select)


def _has_cheap_branches(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name != "cond" or eqn.effects:
        return False
    return all(_is_cheap(inner) for body in sub_jaxprs(eqn) for inner in body.eqns)


def _is_cheap(eqn: JaxprEqn) -> bool:
    """Returns whether an equation may run although its branch is not taken."""
    if marks.read_marks(name_stack(eqn)).shard is not None:
        return False
    body = body_of_call(eqn)
    if body is not None:
        return all(map(_is_cheap, body.jaxpr.eqns))
    return is_cheap_to_recompute(eqn) or eqn.primitive.name in _REDUCTIONS


def _select(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
    branches = [function_of_jaxpr(branch) for branch in eqn.params["branches"]]

    def run_branches_and_select(index: jax.Array, *operands: jax.Array) -> list[jax.Array]:
        results = zip(*(branch(*operands) for branch in branches), strict=True)
        chosen = jnp.clip(index, 0, len(branches) - 1)
        if len(branches) == 2:
            chosen = chosen == 1
        return [lax.select_n(chosen, *cases) for cases in results]

    rewriter.replace_by_function(eqn, run_branches_and_select)
