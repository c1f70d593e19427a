"""The one form of convolutions that XLA runs fast on CPUs wherever it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax

from lowering import ir
from lowering.jaxprs import EquationFinder, EquationRewriter, JaxprEqn, typed_jax
from lowering.passes.rewrite_kernels import rewrite_equations_of_kernels


def move_channels_last(program: ir.Program) -> ir.Program:
    """Makes every convolution take images as NHWC and filters as HWIO, and return NHWC.

    After: the numbers are the same. Outside loops XLA changes the layout itself; inside, where it
           does not, the gradients of convolutions, which permute their dimensions, would take 10 to
           50 times as long (jax-ml/jax#12868).
    """
    return rewrite_equations_of_kernels(
        program, EquationFinder(_has_other_layout), _transpose_convolution
    )


def _has_other_layout(eqn: JaxprEqn) -> bool:
    """Returns whether an equation is a convolution of another layout."""
    if eqn.primitive is not lax.conv_general_dilated_p:
        return False
    numbers = eqn.params["dimension_numbers"]
    return numbers != _channels_last_dimensions(len(numbers.lhs_spec))


def _channels_last_dimensions(rank: int) -> lax.ConvDimensionNumbers:
    image = (0, rank - 1, *range(1, rank - 1))  # batch, features, space
    filters = (rank - 1, rank - 2, *range(rank - 2))  # features out and in, space
    return lax.ConvDimensionNumbers(image, filters, image)


def _transpose_convolution(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
    old_numbers: lax.ConvDimensionNumbers = eqn.params["dimension_numbers"]
    new_numbers = _channels_last_dimensions(len(old_numbers.lhs_spec))
    params = {**eqn.params, "dimension_numbers": new_numbers}

    def convolve_channels_last(lhs: Any, rhs: Any) -> Any:
        lhs = lax.transpose(
            lhs, _permutation_between_layouts(old_numbers.lhs_spec, new_numbers.lhs_spec)
        )
        rhs = lax.transpose(
            rhs, _permutation_between_layouts(old_numbers.rhs_spec, new_numbers.rhs_spec)
        )
        result = typed_jax.conv_general_dilated_p.bind(lhs, rhs, **params)
        return lax.transpose(
            result, _permutation_between_layouts(new_numbers.out_spec, old_numbers.out_spec)
        )

    rewriter.replace_by_function(eqn, convolve_channels_last)


def _permutation_between_layouts(old_layout: Sequence[int], new_layout: Sequence[int]) -> list[int]:
    """Returns where each dimension of the new layout is in the old one."""
    position_of_dimension = dict(zip(new_layout, old_layout, strict=True))
    return [position_of_dimension[axis] for axis in range(len(new_layout))]
