"""The rewriting of sums over two processes as an exchange, which takes half the time."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering import ir
from lowering.jaxprs import (
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    typed_jax,
)
from lowering.ops import REPLICAS, axis_of_replicas
from lowering.passes.rewrite_kernels import rewrite_equations_of_kernels

# Smaller sums take as long as the messages' way.
_LEAST_BYTES = 1 << 16


def exchange_sums_of_two_replicas(program: ir.Program) -> ir.Program:
    """Rewrites large sums over two replicas, each in a process of its own, as exchanges.

    Before: a sum over all replicas is one equation `psum`, as the machine model reads it.
    After:  each replica sends the other one its summand, and adds up both. The numbers are the
            same. The all-reduce of gloo sends as many bytes, and copies them three times.
    """
    if program.replicas != 2:
        return program
    return rewrite_equations_of_kernels(
        program, EquationFinder(_is_large_sum), _replace_by_exchange
    )


def _is_large_sum(eqn: JaxprEqn) -> bool:
    """Returns whether an equation is a sum of large arrays of numbers over all replicas."""
    if eqn.primitive is not lax.psum_p or eqn.params["axis_index_groups"] is not None:
        return False
    avals: list[Any] = [var.aval for var in eqn.invars]
    is_large = all(
        jnp.issubdtype(aval.dtype, jnp.inexact)
        and math.prod(aval.shape) * aval.dtype.itemsize >= _LEAST_BYTES
        for aval in avals
    )
    return is_large and tuple(eqn.params["axes"]) == (REPLICAS,)


def _replace_by_exchange(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
    def add_up(*summands: Any) -> list[Any]:
        return [x + typed_jax.ppermute(x, REPLICAS, [(0, 1), (1, 0)]) for x in summands]

    rewriter.replace_by_function(eqn, add_up, axis_of_replicas(2))
