"""The rewriting of convolutions that a CPU computes faster as one product of matrices."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import numpy as np
from jax import lax

from lowering import ir, marks
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    Var,
    name_stack,
    rewrite_equations,
    walk_equations,
)
from lowering.passes.convolution_forms import Convolution
from lowering.passes.rewrite_kernels import rewrite_kernels


def rewrite_convolutions_as_products(program: ir.Program) -> ir.Program:
    """Rewrites float32 convolutions without groups as products, where a scope allows it.

    Before: all convolutions are equations `conv_general_dilated`, as the machine model reads them.
    After:  those marked `marks.CONVOLUTIONS` are products of matrices, if a matrix of patches takes
            no more room than operands and result; if it takes more, and images are smaller than
            filters, images come padded. Numbers differ by rounding: sums have another order.

    XLA's convolutions on CPUs have two weak points. If an image, before its padding, is smaller
    than the filter, they are plain loops, which take some 100 times as long. And filters of many
    features are transposed first, which takes longer than the convolution of few, small images.

    The scope must stand right around the convolution: bodies of loops have their own name stacks.
    """
    is_slow_convolution = EquationFinder(_is_slow_convolution)
    return rewrite_kernels(
        program,
        is_slow_convolution,
        lambda closed: _rewrite_slow_convolutions(closed, is_slow_convolution),
    )


def _is_slow_convolution(eqn: JaxprEqn) -> bool:
    """Returns whether an equation is a convolution that is faster in another form."""
    if eqn.primitive is not lax.conv_general_dilated_p:
        return False
    if marks.read_marks(name_stack(eqn)).convolutions != marks.PRODUCTS:
        return False
    if eqn.params["feature_group_count"] != 1 or eqn.params["batch_group_count"] != 1:
        return False
    avals: list[Any] = [var.aval for var in (*eqn.invars, *eqn.outvars)]
    if any(aval.dtype != np.float32 or not aval.size for aval in avals):
        return False
    return Convolution.from_equation(eqn).find_faster_form() is not None


def _rewrite_slow_convolutions(
    closed: ClosedJaxpr, is_slow_convolution: EquationFinder
) -> ClosedJaxpr:
    flips = {eqn.outvars[0]: eqn for eqn in walk_equations(closed) if eqn.primitive is lax.rev_p}

    def rewrite_convolution(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
        convolution = Convolution.from_equation(eqn)
        images, filters = eqn.invars
        flip = flips.get(filters) if isinstance(filters, Var) else None
        if flip is not None and set(flip.params["dimensions"]) <= {
            *convolution.space_axes_of_filters
        }:
            # Filters of gradients are reversed. Products can read them backwards, without a copy.
            flipped = dc.replace(convolution, flipped=tuple(flip.params["dimensions"]))
            if (product := flipped.find_product_form()) is not None:
                rewriter.replace_by_function(eqn.replace(invars=[images, flip.invars[0]]), product)
                return
        if (faster := convolution.find_faster_form()) is not None:
            rewriter.replace_by_function(eqn, faster)

    return rewrite_equations(closed, is_slow_convolution, rewrite_convolution)
