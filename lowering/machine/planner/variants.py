"""Products that compute the same in another shape, and what must be rearranged to use them.

Source: poplibs: ConvPlan.cpp (swapOperands, expandDims, combineConvGroups) and ConvModel.cpp
addTransformCycleEstimate.
"""

from __future__ import annotations

import dataclasses as dc
import math

from lowering.machine.planner.amp import weights_per_unit
from lowering.machine.planner.product import Product
from lowering.machine.planner.tiles import Grains


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

    def rearranged(self, grains: Grains) -> list[bool]:
        """Whether inputs, weights and outputs are rearranged, padding of channels included."""
        pads_in = self.product.in_channels % grains.in_channels != 0
        pads_out = self.product.out_channels % grains.out_channels != 0
        pads = (pads_in, pads_in or pads_out, pads_out)
        return [moved or padded for moved, padded in zip(self.moves, pads, strict=True)]


def variants_of(product: Product) -> tuple[Variant, ...]:
    """The shapes worth trying, the product's own first."""
    moves = product.kind == "weight_update"
    plain = Variant(name="plain", product=product, moves=(moves, moves, False))
    if product.scalar:
        return (plain,)
    variants = [plain]
    if product.kind == "matmul":
        variants.append(_swapped(product))
    taps = math.prod(product.kernel)
    if taps > 1:
        variants.append(_expanded(product, len(product.kernel)))
        if 1 < product.kernel[0] < taps:
            variants.append(_expanded(product, 1))
    # Of several groups, as many as the units take input channels; a power of two.
    most = min(product.groups, max(1, weights_per_unit(product.dtype) // product.in_channels))
    if most > 1:
        variants.append(_combined(product, 1 << (most.bit_length() - 1)))
    return tuple(variants)


def _swapped(product: Product) -> Variant:
    """The left operand's rows as output channels."""
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


def _expanded(product: Product, dims: int) -> Variant:
    """Kernel elements as input channels: those of the first dimensions."""
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


def _combined(product: Product, factor: int) -> Variant:
    """Several groups as one whose kernels are zero across groups."""
    shape = dc.replace(
        product,
        groups=-(-product.groups // factor),
        in_channels=product.in_channels * factor,
        out_channels=product.out_channels * factor,
    )
    return Variant(name="combined", product=shape)
