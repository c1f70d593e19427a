"""Convolutions in the one form that XLA runs fast on CPUs wherever it stands."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

from jax import lax

from lowering import ir
from lowering.jaxpr import JaxprEqn
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten


def channels_last(program: ir.Program) -> ir.Program:
    """Has every convolution take images as NHWC and filters as HWIO, and give NHWC.

    After: the same numbers: outside loops XLA does the same itself. Inside, where it does not,
           the gradients of convolutions, which permute their dimensions, would take 10 to 50
           times as long (jax-ml/jax#12868).
    """
    where = Anywhere(_is_other)

    def change(node: ir.Node) -> ir.Node:
        if not isinstance(node, ir.Execute) or not where(node.kernel.jaxpr.jaxpr):
            return node
        closed = rewritten(node.kernel.jaxpr, where, _transpose)
        return dc.replace(node, kernel=dc.replace(node.kernel, jaxpr=closed))

    return dc.replace(program, body=ir.with_nodes(program.body, change))


def _is_other(eqn: JaxprEqn) -> bool:
    """Whether an equation is a convolution of another form."""
    if eqn.primitive is not lax.conv_general_dilated_p:
        return False
    numbers = eqn.params["dimension_numbers"]
    return numbers != _numbers(len(numbers.lhs_spec))


def _numbers(rank: int) -> lax.ConvDimensionNumbers:
    image = (0, rank - 1, *range(1, rank - 1))  # batch, features, space
    filters = (rank - 1, rank - 2, *range(rank - 2))  # features out and in, space
    return lax.ConvDimensionNumbers(image, filters, image)


def _transpose(rewriter: Rewriter, eqn: JaxprEqn) -> None:
    given: lax.ConvDimensionNumbers = eqn.params["dimension_numbers"]
    wanted = _numbers(len(given.lhs_spec))
    params = {**eqn.params, "dimension_numbers": wanted}

    def convolution(lhs: Any, rhs: Any) -> Any:
        lhs = lax.transpose(lhs, _order(given.lhs_spec, wanted.lhs_spec))
        rhs = lax.transpose(rhs, _order(given.rhs_spec, wanted.rhs_spec))
        result = lax.conv_general_dilated_p.bind(lhs, rhs, **params)
        return lax.transpose(result, _order(wanted.out_spec, given.out_spec))

    rewriter.trace(eqn, convolution)


def _order(given: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Where each dimension of the wanted form is in the given one."""
    places = dict(zip(wanted, given, strict=True))
    return [places[axis] for axis in range(len(wanted))]
