"""Has all replicas come to the collectives that stand under conditions, or in loops with them."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering import ir
from lowering.control_flow import ControlFlow
from lowering.equations import function_of
from lowering.jaxpr import JaxprEqn
from lowering.ops.collectives import REPLICAS, axis_of
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten


def meet_at_collectives(program: ir.Program) -> ir.Program:
    """Rewrites conditions and loops of kernels whose replicas run on devices of their own.

    Before: kernels of one replica; `cond` and `while` may have collectives inside.
    After:  no replica waits at a collective for one that has gone another way. Where replicas
            disagree, all go all ways, and each keeps what is its own: what `jax.vmap` does, and
            so replicas that share a device. Where they agree, nothing is computed twice.

    Unchanged with one replica.
    """
    speaks = Anywhere(_is_collective)
    where = Anywhere(lambda eqn: eqn.primitive.name in _MEETING and speaks.inside(eqn))
    axis = axis_of(program.replicas)

    def meet(rewriter: Rewriter, eqn: JaxprEqn) -> None:
        flow = ControlFlow.of(eqn)
        rewriter.trace(eqn, _MEETING[flow.kind](flow), axis)

    def change(node: ir.Node) -> ir.Node:
        if not isinstance(node, ir.Execute) or not where(node.kernel.jaxpr.jaxpr):
            return node
        closed = rewritten(node.kernel.jaxpr, where, meet)
        return dc.replace(node, kernel=dc.replace(node.kernel, jaxpr=closed))

    return dc.replace(program, body=ir.with_nodes(program.body, change))


def _is_collective(eqn: JaxprEqn) -> bool:
    axes = eqn.params.get("axes", eqn.params.get("axis_name"))
    over = axes if isinstance(axes, (tuple, list)) else (axes,)
    return REPLICAS in over and eqn.primitive.name != "axis_index"


def _condition(flow: ControlFlow) -> Any:
    branches = [function_of(body) for body in flow.bodies]

    def one_way(chosen: Any, *operands: Any) -> Sequence[Any]:
        return list(lax.switch(chosen, branches, *operands))

    def all_ways(chosen: Any, *operands: Any) -> Sequence[Any]:
        ways = zip(*(branch(*operands) for branch in branches), strict=True)
        return [lax.select_n(chosen, *results) for results in ways]

    def run(index: Any, *operands: Any) -> Sequence[Any]:
        chosen = lax.clamp(0, index.astype(jnp.int32), len(branches) - 1)
        first, last = lax.pmax(jnp.stack([-chosen, chosen]), REPLICAS)
        return lax.cond(-first == last, one_way, all_ways, chosen, *operands)

    return run


def _loop(flow: ControlFlow) -> Any:
    holds, body = (function_of(closed) for closed in flow.bodies)

    def run(*operands: Any) -> Sequence[Any]:
        of_condition, of_body = (operands[part] for part in flow.constants)

        def with_goal(carry: Sequence[Any]) -> tuple[Any, Any, Sequence[Any]]:
            (mine,) = holds(*of_condition, *carry)
            return mine, lax.pmax(mine.astype(jnp.int32), REPLICAS) > 0, carry

        def step(state: tuple[Any, Any, Sequence[Any]]) -> tuple[Any, Any, Sequence[Any]]:
            mine, _, before = state
            after = body(*of_body, *before)
            return with_goal(
                [lax.select(mine, new, old) for new, old in zip(after, before, strict=True)]
            )

        *_, carry = lax.while_loop(
            lambda state: state[1], step, with_goal([*operands[flow.carried]])
        )
        return carry

    return run


_MEETING = {"cond": _condition, "while": _loop}
