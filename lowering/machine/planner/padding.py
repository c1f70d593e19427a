"""Zeros that a tile puts around its operands, because a vertex takes whole windows only.

Source: poplibs: ConvModel.cpp addTileLevelTransformEstimates.
"""

from __future__ import annotations

import numpy as np

from lowering.machine.planner.amp import weights_per_unit
from lowering.machine.planner.constants import WINDOW
from lowering.machine.planner.product import Product
from lowering.machine.planner.tiles import Array, Share
from lowering.machine.planner.vertices import Vertex


def zeros(product: Product, vertex: Vertex, part: Share) -> Array:
    """How many elements are zero on the largest tile, for every candidate.

    The kernel's width is filled up for SLIC, its rows for AMP with few input channels; so is what
    such a kernel reads of the input. SLIC also takes the padding of the input itself.

    Args:
      product: what is computed.
      vertex: what computes.
      part: what the tile has.
    """
    dim, multiple = _filled(product, vertex)
    if multiple == 1:
        return np.zeros(len(part.inputs))
    taps = part.kernel[dim]
    more = -taps % multiple
    inputs = part.inputs / part.read[dim] * more * product.dilation[dim]
    if vertex.kind == "slic":
        for d, held in enumerate(part.read):
            window = (part.kernel[d] - 1) * product.dilation[d] + 1
            needed = (part.field[d] - 1) * product.stride[d] + window
            inputs = inputs + part.inputs / held * np.maximum(needed - held, 0)
    return inputs + part.weights / taps * more


def _filled(product: Product, vertex: Vertex) -> tuple[int, int]:
    """The kernel dimension that is filled up, and to a multiple of what."""
    if vertex.kind == "slic":
        return len(product.kernel) - 1, WINDOW
    if vertex.kind == "amp":
        return 0, weights_per_unit(product.dtype) // vertex.grains.in_channels
    return 0, 1
