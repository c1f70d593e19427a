"""The vertices that can compute a product, and the cycles of a tile's part with each."""

from __future__ import annotations

import dataclasses as dc
import math
from typing import Literal, TypeAlias

import numpy as np

from lowering.machine.planner.amp import Units, amp_cycles_of_share, weights_per_unit
from lowering.machine.planner.mac import hmac_cycles, outer_product_cycles, slic_cycles, vmac_cycles
from lowering.machine.planner.planner_constants import WINDOW
from lowering.machine.planner.product import Product
from lowering.machine.planner.tiles import Array, Grains, LargestPart, ceil_div
from lowering.machine.target import Number, Target

Kind: TypeAlias = Literal["amp", "slic", "hmac", "vmac", "outer_product"]


@dc.dataclass(frozen=True, slots=True)
class Vertex:
    """A vertex that can compute a product.

    Attributes:
      kind: the kind of vertex.
      grains: the grains that it handles at a time.
    """

    kind: Kind
    grains: Grains

    def sums_of(self, product: Product) -> Number:
        """Returns the type of the sums; an outer product adds nothing and keeps its operands'.

        Source: poplibs: ConvVertexType.cpp, getConvVertexOuterProductCandidates.
        """
        return product.dtype if self.kind == "outer_product" else product.partials

    def can_compute(self, part: LargestPart) -> Array:
        """Returns bool [candidates]: whether the vertex can compute the tile's part."""
        if self.kind == "slic":  # one grain of input and of output channels
            return (part.in_grains == 1) & (part.out_grains == 1)
        return part.in_grains > 0

    def cycles_of_part(self, product: Product, part: LargestPart, target: Target) -> Array:
        """Returns the tile cycles of the largest tile's part, for every candidate."""
        dtype, partials = product.dtype, product.partials
        if self.kind == "amp":
            return amp_cycles_of_share(part, self.grains, Units(dtype, partials, target))
        if self.kind == "slic":
            return slic_cycles(part, self.grains, partials, product.stride[-1], target)
        if self.kind == "vmac":
            return vmac_cycles(part, self.grains, partials, target.workers)
        if self.kind == "outer_product":
            return outer_product_cycles(part, self.grains, dtype, target.workers)
        return hmac_cycles(part, self.grains, dtype, partials, target.workers)

    def count_padding_elements(self, product: Product, part: LargestPart) -> Array:
        """Returns the elements that the largest tile pads, as a vertex takes whole windows only.

        Those are the kernel's width for SLIC, its rows for AMP with few input channels, and the
        input that such a kernel reads. SLIC also takes the padding of the input itself (poplibs:
        ConvModel.cpp addTileLevelTransformEstimates).
        """
        padded_dimension, multiple = 0, 1  # the padded dimension of the kernel, and its multiple
        if self.kind == "slic":
            padded_dimension, multiple = len(product.kernel) - 1, WINDOW
        elif self.kind == "amp":
            multiple = weights_per_unit(product.dtype) // self.grains.in_channels
        if multiple == 1:
            return np.zeros(len(part.inputs))
        taps = part.kernel[padded_dimension]
        padding = -taps % multiple
        inputs = (
            part.inputs / part.read[padded_dimension] * padding * product.dilation[padded_dimension]
        )
        if self.kind == "slic":
            for d, extent_on_tile in enumerate(part.read):
                window = (part.kernel[d] - 1) * product.dilation[d] + 1
                needed = (part.field[d] - 1) * product.stride[d] + window
                inputs = inputs + part.inputs / extent_on_tile * np.maximum(
                    needed - extent_on_tile, 0
                )
        return inputs + part.weights / taps * padding


def find_vertices(
    product: Product, target: Target, is_reshaped: bool = False
) -> tuple[Vertex, ...]:
    """Returns the vertices worth trying (poplibs: ConvVertexType.cpp).

    Args:
      product: the product that they compute.
      target: the chip.
      is_reshaped: whether the product has its shape for the sake of AMP.
    """
    hmac = _hmac_vertex(product)
    if product.scalar:
        return (hmac,)
    vertices = _amp_vertices(product, target)
    if is_reshaped:
        return tuple(vertices)
    vertices += [*_slic_vertices(product), *_vmac_vertices(product)]
    is_outer = product.in_channels == 1 and math.prod(product.kernel) == 1 and product.batch == 1
    if is_outer and set(product.stride) == {1}:
        grain = 2 if product.dtype == "float32" else 4
        channels = ceil_div(product.out_channels, grain) * grain
        vertices.append(Vertex("outer_product", Grains(out_channels=min(16, channels))))
    return (*vertices, hmac)


def _amp_vertices(product: Product, target: Target) -> list[Vertex]:
    """Returns AMP vertices with whole units, or with kernel rows for missing input channels."""
    units = Units(product.dtype, product.partials, target).units_per_tile
    channels_per_unit = weights_per_unit(product.dtype)
    choices = {channels_per_unit}
    if product.kernel[0] > 1:
        choices.add(max(4, min(channels_per_unit, 1 << (product.in_channels - 1).bit_length())))
    return [
        Vertex("amp", Grains(in_channels=channels, out_channels=units))
        for channels in sorted(choices, reverse=True)
    ]


def _slic_vertices(product: Product) -> list[Vertex]:
    channels = max(product.in_channels, product.out_channels)
    fits = product.dtype == "float16" and product.stride[-1] <= 2 and channels <= 4
    if not fits or len(product.field) < 2 or set(product.dilation) != {1}:
        return []
    channels = 1 << (channels - 1).bit_length()
    if channels < 4 and product.groups < 4 // channels:
        return []
    grains = Grains(groups=4 // channels, in_channels=channels, out_channels=channels)
    return [Vertex("slic", grains)]


def _vmac_vertices(product: Product) -> list[Vertex]:
    if product.dtype == "float32" or product.out_channels > 1 or product.groups < 4:
        return []
    sizes = (4, 8, 16) if product.partials == "float16" else (4,)
    return [Vertex("vmac", Grains(groups=size)) for size in sizes if size <= product.groups]


def _hmac_vertex(product: Product) -> Vertex:
    grain = 1 if product.dtype == "float32" else 2
    channels = ceil_div(product.in_channels, grain) * grain
    outs = 2 if product.partials == "float16" else 1
    return Vertex("hmac", Grains(in_channels=min(channels, 16), out_channels=outs))
