"""The operations of a kernel in which several replicas take part, and the cost of their links."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable
from typing import Literal, TypeAlias

from lowering.jaxprs import Jaxpr, size_in_bytes, sub_jaxprs
from lowering.machine.cost import Operation
from lowering.machine.target import Target
from lowering.machine.transfers import collective_cost, links

_Cycles = Callable[[Target, float, int, int, int, collective_cost.Method], int]


def _all_gather_cycles_of_own_bytes(
    target: Target,
    own_bytes: float,
    replicas: int,
    ipus: int,
    groups: int,
    method: collective_cost.Method,
) -> int:
    gathered_bytes = own_bytes * replicas
    return collective_cost.all_gather_cycles(target, gathered_bytes, replicas, ipus, groups, method)


_ALL_REDUCES = ("psum", "psum_invariant", "pmax", "pmin")
_CYCLES: dict[str, _Cycles] = {
    **dict.fromkeys(_ALL_REDUCES, collective_cost.all_reduce_cycles),
    **dict.fromkeys(
        ("all_gather", "all_gather_invariant", "all_gather_reduced"),
        _all_gather_cycles_of_own_bytes,
    ),
    "reduce_scatter": collective_cost.reduce_scatter_cycles,
}
COLLECTIVES = frozenset({*_CYCLES, "all_to_all"})
"""The operations in which several replicas take part."""

Sum: TypeAlias = Literal["all-reduce", "reduce-scatter"]
"""The kinds of sums over replicas, which can be merged with others of their kind."""

_KINDS: dict[str, Sum] = {
    **dict.fromkeys(_ALL_REDUCES, "all-reduce"),
    "reduce_scatter": "reduce-scatter",
}


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """The number and placement of a program's replicas, for the cost of their collectives.

    Attributes:
      target: the chip.
      replicas: how many there are; groups are selected from the whole.
      ipus_per_replica: how many IPUs each has.
      instances: how many processes, on machines of their own, they are dealt to.
      merged_bytes: all-reduces wait for each other until they have so many bytes, and go as one.
      merged_scatter_bytes: the same for reduce-scatters.
      method: the way around rings.
    """

    target: Target
    replicas: int = 1
    ipus_per_replica: int = 1
    instances: int = 1
    merged_bytes: int = 0
    merged_scatter_bytes: int = 0
    method: collective_cost.Method = "auto"

    @property
    def groups(self) -> int:
        """The groups of replicas that IPU-Links join: instances, or the racks of each."""
        local_replicas = self.replicas // self.instances
        racks = math.ceil(local_replicas * self.ipus_per_replica / links.RACK_IPUS)
        return self.instances * min(racks, local_replicas)

    def collective_cycles(self, operation: Operation) -> int:
        """Returns the cycles on the links of an operation; 0 if it needs one replica only.

        A small sum takes its share of a merged sum.

        Args:
          operation: any operation of a kernel, after collectives have become JAX's own.
        """
        if self.replicas == 1:
            return 0
        rule = _CYCLES.get(operation.name)
        own_bytes = sum(shape.bytes for shape in operation.operands)
        replica_counts = self.replicas, self.ipus_per_replica, self.groups
        if not own_bytes:
            return 0
        if operation.name == "all_to_all":  # around no ring
            return collective_cost.all_to_all_cycles(self.target, own_bytes, *replica_counts)
        if rule is None:
            return 0
        merged_bytes = max(own_bytes, self._merge_limit(operation.name))
        cycles_of_merged = rule(self.target, merged_bytes, *replica_counts, self.method)
        return math.ceil(cycles_of_merged * own_bytes / merged_bytes)

    def _merge_limit(self, name: str) -> int:
        """Returns up to how many bytes operations of this kind are merged."""
        match _KINDS.get(name):
            case "all-reduce":
                return self.merged_bytes
            case "reduce-scatter":
                return self.merged_scatter_bytes
            case None:
                return 0


def bytes_of_replica_sums(jaxpr: Jaxpr, kind: Sum) -> int:
    """Returns the bytes of the sums of a kind in a jaxpr and its bodies, which may be merged."""
    outside = sum(
        size_in_bytes(atom.aval)
        for eqn in jaxpr.eqns
        if _KINDS.get(eqn.primitive.name) == kind
        for atom in eqn.invars
    )
    return outside + sum(
        bytes_of_replica_sums(body, kind) for eqn in jaxpr.eqns for body in sub_jaxprs(eqn)
    )
