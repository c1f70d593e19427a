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
      moves_inputs: whether inputs must be rearranged for it.
      moves_weights: whether weights must be.
      moves_outputs: whether outputs must be rearranged after it.
    """

    name: str
    product: Product
    moves_inputs: bool = False
    moves_weights: bool = False
    moves_outputs: bool = False

    def rearranged(self, grains: Grains) -> tuple[bool, bool, bool]:
        """Whether inputs, weights and outputs are rearranged, padding of channels included."""
        pads_in = self.product.in_channels % grains.in_channels != 0
        pads_out = self.product.out_channels % grains.out_channels != 0
        return (
            self.moves_inputs or pads_in,
            self.moves_weights or pads_in or pads_out,
            self.moves_outputs or pads_out,
        )


def variants_of(product: Product) -> tuple[Variant, ...]:
    """The shapes worth trying, the product's own first."""
    moves = product.kind == "weight_update"
    plain = Variant(name="plain", product=product, moves_inputs=moves, moves_weights=moves)
    found = [plain]
    if product.kind == "matmul" and not product.scalar:
        found.append(_swapped(product))
    if math.prod(product.kernel) > 1 and not product.scalar:
        found.extend(_expanded(plain))
    if product.groups > 1 and not product.scalar:
        found.extend(_combined(plain))
    return tuple(found)


def _swapped(product: Product) -> Variant:
    """The left operand's rows as output channels."""
    rows = math.prod(product.field) * product.batch
    shape = dc.replace(
        product,
        batch=1,
        field=(product.out_channels,),
        kernel=(1,),
        input_field=(product.out_channels,),
        stride=(1,),
        dilation=(1,),
        out_channels=rows,
    )
    return Variant(
        name="swapped",
        product=shape,
        moves_inputs=True,
        moves_weights=True,
        moves_outputs=True,
    )


def _expanded(plain: Variant) -> list[Variant]:
    """Kernel elements as input channels: of all dimensions, or of the first alone."""
    product = plain.product
    rank = len(product.kernel)
    taps = math.prod(product.kernel)
    found = [_with_channels(plain, range(rank))]
    if 1 < product.kernel[0] < taps:
        found.append(_with_channels(plain, range(1)))
    return found


def _with_channels(plain: Variant, dims: range) -> Variant:
    product = plain.product
    rank = len(product.kernel)

    def changed(values: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new[d] if d in dims else values[d] for d in range(rank))

    ones = (1,) * rank
    shape = dc.replace(
        product,
        in_channels=product.in_channels * math.prod(product.kernel[d] for d in dims),
        kernel=changed(product.kernel, ones),
        input_field=changed(product.input_field, product.field),
        stride=changed(product.stride, ones),
        dilation=changed(product.dilation, ones),
    )
    return dc.replace(plain, name="expanded", product=shape, moves_inputs=True, moves_weights=True)


def _combined(plain: Variant) -> list[Variant]:
    """Several groups as one whose kernels are zero across groups."""
    product = plain.product
    most = min(product.groups, max(1, weights_per_unit(product.dtype) // product.in_channels))
    factor = 1 << (most.bit_length() - 1)
    if factor == 1:
        return []
    shape = dc.replace(
        product,
        groups=-(-product.groups // factor),
        in_channels=product.in_channels * factor,
        out_channels=product.out_channels * factor,
    )
    return [
        Variant(
            name="combined",
            product=shape,
            moves_inputs=True,
            moves_weights=True,
            moves_outputs=True,
        )
    ]
