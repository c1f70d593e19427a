"""Which of a kernel's operations replicas take part in together, and what their links cost."""

from __future__ import annotations

import math
from collections.abc import Callable

from lowering.machine.cost import Operation
from lowering.machine.target import Target
from lowering.machine.transfers.collectives import (
    all_gather_cycles,
    all_reduce_cycles,
    all_to_all_cycles,
)

_Cycles = Callable[[Target, float, int, int], int]


def _gathered(target: Target, own_bytes: float, replicas: int, ipus: int) -> int:
    return all_gather_cycles(target, own_bytes * replicas, replicas, ipus)


_CYCLES: dict[str, _Cycles] = {
    **dict.fromkeys(("psum", "psum_invariant", "pmax", "pmin"), all_reduce_cycles),
    **dict.fromkeys(("all_gather", "all_gather_invariant", "all_gather_reduced"), _gathered),
    "all_to_all": all_to_all_cycles,
}


def collective_cycles(
    target: Target,
    operation: Operation,
    *,
    replicas: int,
    ipus_per_replica: int,
    merged_bytes: int = 0,
) -> int:
    """Cycles on the links of one operation; 0 if it is none between replicas.

    The original merged all-reduces that wait for no others until they had so many bytes
    (`optimizations.maximum_cross_replica_sum_buffer_size`); a small one then takes its share of the
    time of one that large.

    Args:
      target: the chip.
      operation: any operation of a kernel, after collectives have become JAX's own.
      replicas: how many there are; groups are selected from the whole.
      ipus_per_replica: how many IPUs each has.
      merged_bytes: up to how many bytes all-reduces are merged.
    """
    cycles = _CYCLES.get(operation.name)
    if cycles is None or replicas == 1:
        return 0
    own_bytes = sum(shape.bytes for shape in operation.operands)
    together = max(own_bytes, merged_bytes if cycles is all_reduce_cycles else 0)
    if not together:
        return 0
    whole = cycles(target, together, replicas, ipus_per_replica)
    return math.ceil(whole * own_bytes / together)
