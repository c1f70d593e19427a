"""Convolutions that a CPU computes faster as one product of matrices."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import numpy as np
from jax import lax

from lowering import ir, marks
from lowering.equations import walk
from lowering.jaxpr import ClosedJaxpr, JaxprEqn, Var, name_stack
from lowering.passes.convolution_forms import Convolution
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten


def as_products(program: ir.Program) -> ir.Program:
    """Rewrites float32 convolutions without groups where a scope lets them be products.

    Before: all convolutions are equations `conv_general_dilated`, as the machine model reads them.
    After:  those marked `marks.CONVOLUTIONS` are products of matrices, if a matrix of patches takes
            no more room than operands and result; if it takes more, and images are smaller than
            filters, images come padded. Numbers differ by rounding: sums have another order.

    XLA's convolutions on CPUs have two weak points. If an image, before its padding, is smaller
    than the filter, they are plain loops, which take some 100 times as long. And filters of many
    features are transposed first, which takes longer than the convolution of few, small images.

    The scope stands right around a convolution: bodies of loops are traced for themselves.
    """
    where = Anywhere(_is_slow)

    def change(node: ir.Node) -> ir.Node:
        if not isinstance(node, ir.Execute) or not where(node.kernel.jaxpr.jaxpr):
            return node
        closed = _changed(node.kernel.jaxpr, where)
        return dc.replace(node, kernel=dc.replace(node.kernel, jaxpr=closed))

    return dc.replace(program, body=ir.with_nodes(program.body, change))


def _is_slow(eqn: JaxprEqn) -> bool:
    """Whether an equation is a convolution that may take another form, and is faster so."""
    if eqn.primitive is not lax.conv_general_dilated_p:
        return False
    if marks.read(name_stack(eqn)).convolutions != marks.PRODUCTS:
        return False
    if eqn.params["feature_group_count"] != 1 or eqn.params["batch_group_count"] != 1:
        return False
    avals: list[Any] = [var.aval for var in (*eqn.invars, *eqn.outvars)]
    if any(aval.dtype != np.float32 or not aval.size for aval in avals):
        return False
    return Convolution.of(eqn).faster() is not None


def _changed(closed: ClosedJaxpr, where: Anywhere) -> ClosedJaxpr:
    flips = {eqn.outvars[0]: eqn for eqn in walk(closed) if eqn.primitive is lax.rev_p}

    def change(rewriter: Rewriter, eqn: JaxprEqn) -> None:
        convolution = Convolution.of(eqn)
        images, filters = eqn.invars
        flip = flips.get(filters) if isinstance(filters, Var) else None
        if flip is not None and set(flip.params["dimensions"]) <= {*convolution.space}:
            # So are the filters of gradients. Products can read them backwards, and need no copy.
            flipped = dc.replace(convolution, flipped=tuple(flip.params["dimensions"]))
            if (product := flipped.product()) is not None:
                rewriter.trace(eqn.replace(invars=[images, flip.invars[0]]), product)
                return
        if (faster := convolution.faster()) is not None:
            rewriter.trace(eqn, faster)

    return rewritten(closed, where, change)
