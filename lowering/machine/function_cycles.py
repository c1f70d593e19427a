"""The modelled cycles of a function that runs on one IPU by itself."""

from __future__ import annotations

import dataclasses as dc

from lowering.jaxprs import ClosedJaxpr
from lowering.machine.kernels import (
    fuse_elementwise_chains,
    list_operations,
    model_kernel,
)
from lowering.machine.kernels.listing import PlanOptions
from lowering.machine.kernels.totals import KernelCost
from lowering.machine.primitives import ELEMENTWISE
from lowering.machine.target import IPU2, Target
from lowering.machine.transfers.between_replicas import Collectives


def estimate_function_cycles(closed: ClosedJaxpr, target: Target = IPU2) -> int:
    """Returns the modelled cycles of a function on one IPU, its operands being laid out already.

    Args:
      closed: the function.
      target: the chip.
    """
    return _model_function(closed, target).cycles


def estimate_tile_cycles(closed: ClosedJaxpr, target: Target = IPU2) -> float:
    """Returns the cycles in which one tile computes a function by itself, without syncs.

    Args:
      closed: the function.
      target: the chip.
    """
    totals = _model_function(closed, dc.replace(target, tiles_per_ipu=1)).totals
    return sum(total.compute_cycles for total in totals.values())


def _model_function(closed: ClosedJaxpr, target: Target) -> KernelCost:
    listing = list_operations(closed, PlanOptions())
    listing = fuse_elementwise_chains(listing, ELEMENTWISE.__contains__)
    layouts = [None] * len(closed.jaxpr.invars)
    return model_kernel(listing, layouts, target, Collectives(target=target))
