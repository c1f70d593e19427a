"""Products that compute the same in another shape, and the rearrangements that these need.

Source: poplibs: ConvPlan.cpp (swapOperands, expandDims, combineConvGroups) and ConvModel.cpp
addTransformCycleEstimate.
"""

from __future__ import annotations

import dataclasses as dc
import math

from lowering.machine.planner.amp import weights_per_unit
from lowering.machine.planner.product import Product
from lowering.machine.planner.tiles import Grains
from lowering.machine.target import Number


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A product in another shape.

    Attributes:
      name: "plain", "swapped", "expanded", "combined" or two of them.
      product: the shape.
      moves: whether inputs and weights must be rearranged for it, and outputs after it.
    """

    name: str
    product: Product
    moves: tuple[bool, bool, bool] = (True, True, True)

    def with_sums_of(self, partials: Number) -> Variant:
        """Returns the variant with sums of a type."""
        if partials == self.product.partials:
            return self
        return dc.replace(self, product=dc.replace(self.product, partials=partials))

    def find_rearranged_tensors(self, grains: Grains) -> list[bool]:
        """Returns whether inputs, weights and outputs are rearranged, channel padding included."""
        pads_in = self.product.in_channels % grains.in_channels != 0
        pads_out = self.product.out_channels % grains.out_channels != 0
        needs_padding = (pads_in, pads_in or pads_out, pads_out)
        return [
            moves or is_padded for moves, is_padded in zip(self.moves, needs_padding, strict=True)
        ]


def find_variants(product: Product) -> tuple[Variant, ...]:
    """Returns the shapes of a product that are worth trying, its own first."""
    must_move = product.kind == "weight_update"
    plain = Variant(name="plain", product=product, moves=(must_move, must_move, False))
    if product.scalar:
        return (plain,)
    variants = [plain]
    if product.kind == "matmul":
        variants.append(_swap_operands(product))
    taps = math.prod(product.kernel)
    if taps > 1:
        variants.append(_expand_kernel(product, len(product.kernel)))
        if 1 < product.kernel[0] < taps:
            variants.append(_expand_kernel(product, 1))
    # Of several groups, as many as the units take input channels; a power of two.
    groups_per_unit = min(
        product.groups, max(1, weights_per_unit(product.dtype) // product.in_channels)
    )
    if groups_per_unit > 1:
        variants.append(_combine_groups(product, 1 << (groups_per_unit.bit_length() - 1)))
    return tuple(variants)


def _swap_operands(product: Product) -> Variant:
    """Takes the left operand's rows as output channels."""
    shape = dc.replace(
        product,
        batch=1,
        field=(product.out_channels,),
        kernel=(1,),
        input_field=(product.out_channels,),
        stride=(1,),
        dilation=(1,),
        out_channels=math.prod(product.field) * product.batch,
    )
    return Variant(name="swapped", product=shape)


def _expand_kernel(product: Product, dims: int) -> Variant:
    """Takes the kernel elements of the first dimensions as input channels."""
    ones = (1,) * dims
    shape = dc.replace(
        product,
        in_channels=product.in_channels * math.prod(product.kernel[:dims]),
        kernel=ones + product.kernel[dims:],
        input_field=product.field[:dims] + product.input_field[dims:],
        stride=ones + product.stride[dims:],
        dilation=ones + product.dilation[dims:],
    )
    return Variant(name="expanded", product=shape, moves=(True, True, False))


def _combine_groups(product: Product, factor: int) -> Variant:
    """Takes several groups as one whose kernels are zero across groups."""
    shape = dc.replace(
        product,
        groups=-(-product.groups // factor),
        in_channels=product.in_channels * factor,
        out_channels=product.out_channels * factor,
    )
    return Variant(name="combined", product=shape)
