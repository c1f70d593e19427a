"""Makes all replicas reach the collectives that stand in conditions and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from lowering import ir
from lowering.jaxprs import (
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    function_of_jaxpr,
    typed_jax,
)
from lowering.ops import REPLICAS, ControlFlow, axis_of_replicas
from lowering.passes.rewrite_kernels import rewrite_equations_of_kernels

Values = Sequence[Array]
_LoopState = tuple[Array, Array, Values]
"""Whether one's own condition holds, whether one of all replicas does, and the loop variables."""


def align_replicas_at_collectives(program: ir.Program) -> ir.Program:
    """Rewrites conditions and loops of kernels whose replicas run on separate devices.

    Before: kernels of one replica; `cond` and `while` may have collectives inside.
    After:  no replica waits at a collective for one that has gone another way. Where replicas
            disagree, all go all ways, and each keeps what is its own: what `jax.vmap` does, and
            so replicas that share a device. Where they agree, nothing is computed twice.

    Unchanged with one replica.
    """
    is_collective = EquationFinder(_is_collective)
    has_collective_inside = EquationFinder(
        lambda eqn: eqn.primitive.name in _MEETING and is_collective.occurs_inside(eqn)
    )
    axis = axis_of_replicas(program.replicas)

    def rewrite_control_flow(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
        flow = ControlFlow.view_of_equation(eqn)
        rewriter.replace_by_function(eqn, _MEETING[flow.kind](flow), axis)

    return rewrite_equations_of_kernels(program, has_collective_inside, rewrite_control_flow)


def _is_collective(eqn: JaxprEqn) -> bool:
    axes: Any = eqn.params.get("axes", eqn.params.get("axis_name"))
    is_over_replicas = REPLICAS in axes if isinstance(axes, (tuple, list)) else axes == REPLICAS
    return is_over_replicas and eqn.primitive.name != "axis_index"


def _branch_function_for_all_replicas(flow: ControlFlow) -> Callable[..., Values]:
    branches = [function_of_jaxpr(body) for body in flow.bodies]

    def one_way(chosen: Array, *operands: Array) -> Values:
        return list(typed_jax.switch(chosen, branches, *operands))

    def all_ways(chosen: Array, *operands: Array) -> Values:
        ways = zip(*(branch(*operands) for branch in branches), strict=True)
        return [lax.select_n(chosen, *results) for results in ways]

    def run_switch_together(index: Array, *operands: Array) -> Values:
        chosen = lax.clamp(0, index.astype(jnp.int32), len(branches) - 1)
        first, last = typed_jax.pmax(jnp.stack([-chosen, chosen]), REPLICAS)
        return typed_jax.cond(-first == last, one_way, all_ways, chosen, *operands)

    return run_switch_together


def _loop_function_for_all_replicas(flow: ControlFlow) -> Callable[..., Values]:
    holds, body = (function_of_jaxpr(closed) for closed in flow.bodies)

    def run_loop_together(*operands: Array) -> Values:
        of_condition, of_body = (operands[part] for part in flow.constants)

        def add_conditions(carry: Values) -> _LoopState:
            (mine,) = holds(*of_condition, *carry)
            return mine, typed_jax.pmax(mine.astype(jnp.int32), REPLICAS) > 0, carry

        def run_iteration_if_mine(state: _LoopState) -> _LoopState:
            mine, _, old_carry = state
            new_carry = body(*of_body, *old_carry)
            return add_conditions(
                [lax.select(mine, new, old) for new, old in zip(new_carry, old_carry, strict=True)]
            )

        *_, carry = lax.while_loop(
            lambda state: state[1], run_iteration_if_mine, add_conditions([*operands[flow.carried]])
        )
        return carry

    return run_loop_together


_MEETING = {"cond": _branch_function_for_all_replicas, "while": _loop_function_for_all_replicas}
