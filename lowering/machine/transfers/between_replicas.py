"""Which of a kernel's operations replicas take part in together, and what their links cost."""

from __future__ import annotations

import dataclasses as dc
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


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """The replicas of a program, as their collectives see them.

    Attributes:
      target: the chip.
      replicas: how many there are; groups are selected from the whole.
      ipus_per_replica: how many IPUs each has.
      merged_bytes: up to how many bytes all-reduces wait for each other, to go as one
        (`optimizations.maximum_cross_replica_sum_buffer_size`).
    """

    target: Target
    replicas: int = 1
    ipus_per_replica: int = 1
    merged_bytes: int = 0

    def may_wait(self, operation: Operation) -> bool:
        """Whether an operation is an all-reduce, which can go together with others."""
        return self.replicas > 1 and _CYCLES.get(operation.name) is all_reduce_cycles

    def cycles(self, operation: Operation, waiting_bytes: int = 0) -> int:
        """Cycles on the links that an operation adds; 0 if it is none between replicas.

        Args:
          operation: any operation of a kernel, after collectives have become JAX's own.
          waiting_bytes: of all-reduces that it goes together with, if it is one.
        """
        rule = _CYCLES.get(operation.name)
        if rule is None or self.replicas == 1:
            return 0
        own_bytes = sum(shape.bytes for shape in operation.operands)
        before = waiting_bytes if rule is all_reduce_cycles else 0
        together, alone = (
            rule(self.target, bytes_, self.replicas, self.ipus_per_replica) if bytes_ else 0
            for bytes_ in (before + own_bytes, before)
        )
        return together - alone
