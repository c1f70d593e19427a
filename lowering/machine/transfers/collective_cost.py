"""The cost of collectives between replicas, in tile cycles.

Replica r has the IPUs from r * ipus_per_replica on, and each IPU works with the IPUs of the same
place in the other replicas, in a ring of n. On the ladder, single IPUs are a ring that goes up one
side and down the other, over whole pairs; rings of larger replicas lie side by side, and what goes
from the last to the first takes the links that lead back or, if replicas fill a rack, those that
join its ends. Either way the rings of all IPUs of a replica share the links from a pair to the
next.

Every step is an exchange between all IPUs, with its syncs and fixed cost. Additions of the data are
compute, which is not counted here. For groups of replicas at a distance of s, whose rings lie
between each other, give s * ipus_per_replica.

Replicas of several groups, which are instances or racks, first do so in each group, as far as they
can, and then each with those of its place in the other groups, in a ring over the gateways of their
machines.

All functions take the bytes on the IPU of a replica that has the most, the number of replicas, of
IPUs of each, and of groups, and the way of the data around the ring of each group.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from lowering.machine.target import Target
from lowering.machine.transfers import links

Method: TypeAlias = Literal[
    "auto",
    "clockwise_ring",
    "anticlockwise_ring",
    "bidirectional_ring_pair",
    "meet_in_middle_ring",
]
"""The way around a ring, named as in Poplar's libraries; "auto" is the faster of the last two."""


def ring_bytes_per_cycle(target: Target, replicas: int, ipus_per_replica: int) -> float:
    """Returns the bytes per cycle that one IPU sends around its ring, while all others do too."""
    if replicas == 2 and ipus_per_replica == 1:
        return links.link_bytes_per_cycle(target, "neighbour")  # both ways are the same links
    fills_rack = replicas * ipus_per_replica == links.RACK_IPUS
    ways = 4 if fills_rack and ipus_per_replica > 1 and replicas > 2 else 2
    return ways * links.link_bytes_per_cycle(target, "along") / ipus_per_replica


def gateway_bytes_per_cycle(target: Target, ipus: int) -> float:
    """Returns the bytes per cycle that one of a group's IPUs sends to other groups."""
    sharing = min(ipus, target.links.ipus_of_gateway)
    return target.links.gateway_bytes_per_second / sharing / target.clock_hz


def all_reduce_cycles(
    target: Target,
    ipu_bytes: float,
    replicas: int,
    ipus_per_replica: int = 1,
    groups: int = 1,
    method: Method = "auto",
) -> int:
    """Returns the cycles of an all-reduce: a reduce-scatter and an all-gather."""
    local = -(-replicas // groups)
    local_cycles = _ring_cycles(target, ipu_bytes, local, ipus_per_replica, method, times=2)
    ipus = local * ipus_per_replica
    return local_cycles + _gateway_ring_cycles(
        target, ipu_bytes / local, groups, ipus, 2 * (groups - 1)
    )


def all_gather_cycles(
    target: Target,
    ipu_bytes: float,
    replicas: int,
    ipus_per_replica: int = 1,
    groups: int = 1,
    method: Method = "auto",
) -> int:
    """Returns the cycles of n - 1 ring steps that move 1/n each; `ipu_bytes` counts the result.

    Half of the data goes around one way and half the other. Between single IPUs, little data is
    faster in n / 2 steps that move 1/n each way at once, and meet in the middle; of the two the
    faster is taken (poplibs: popops/Collectives.cpp, BIDIRECTIONAL_RING_PAIR and
    MEET_IN_MIDDLE_RING, which it tells apart by measured thresholds).
    """
    local = -(-replicas // groups)
    local_cycles = _ring_cycles(target, ipu_bytes, local, ipus_per_replica, method)
    ipus = local * ipus_per_replica
    return local_cycles + _gateway_ring_cycles(target, ipu_bytes / local, groups, ipus, groups - 1)


def reduce_scatter_cycles(
    target: Target,
    ipu_bytes: float,
    replicas: int,
    ipus_per_replica: int = 1,
    groups: int = 1,
    method: Method = "auto",
) -> int:
    """Returns the cycles of a reduce-scatter; `ipu_bytes` counts its operand."""
    return all_gather_cycles(target, ipu_bytes, replicas, ipus_per_replica, groups, method)


def all_to_all_cycles(
    target: Target, ipu_bytes: float, replicas: int, ipus_per_replica: int = 1, groups: int = 1
) -> int:
    """Returns the cycles of an exchange in which every replica sends 1/n to every other.

    All goes the shorter way around: floor(n / 2) * ceil(n / 2) pieces through the middle.
    """
    local = -(-replicas // groups)
    local_bytes = ipu_bytes / groups  # for replicas of its group
    local_cycles = _cycles_of_ring_steps(
        target, local, ipus_per_replica, 1, _count_middle_pieces(local) * local_bytes / local
    )
    crossing = _count_middle_pieces(groups)
    return local_cycles + _gateway_ring_cycles(
        target, ipu_bytes, groups, local * ipus_per_replica, 1, crossing
    )


def _count_middle_pieces(replicas: int) -> int:
    """Returns the pieces that pass the middle of a ring, where each goes the shorter way."""
    return (replicas // 2) * -(-replicas // 2)


def _gateway_ring_cycles(
    target: Target, ipu_bytes: float, groups: int, ipus: int, steps: int, pieces: int = 0
) -> int:
    """Returns the cycles of steps around the ring of the gateways of groups.

    An IPU sends a piece in each step, or so many in all; there are as many as groups.
    """
    sent = (pieces or steps) * ipu_bytes / groups
    if groups == 1 or not sent:
        return 0
    fixed = links.external_sync_cycles(target, groups * ipus) + links.INTER_IPU_CYCLES
    return steps * fixed + math.ceil(sent / gateway_bytes_per_cycle(target, ipus))


def _ring_cycles(
    target: Target,
    ipu_bytes: float,
    replicas: int,
    ipus_per_replica: int,
    method: Method,
    *,
    times: int = 1,
) -> int:
    """Returns the cycles in which every piece of the data passes all replicas, so many times.

    One way around, half of the links are idle; between two neighbours both ways are the same links.
    """
    pieces, are_neighbours = times * (replicas - 1), replicas == 2 and ipus_per_replica == 1
    idle = method in ("clockwise_ring", "anticlockwise_ring") and not are_neighbours
    sent = pieces * ipu_bytes / replicas * (2 if idle else 1)
    ring = _cycles_of_ring_steps(target, replicas, ipus_per_replica, pieces, sent)
    may_meet = method in ("auto", "meet_in_middle_ring")
    if not may_meet or ipus_per_replica > 1 or replicas <= 2:
        return ring
    steps = times * (replicas // 2)
    middle = _cycles_of_ring_steps(target, replicas, 1, steps, 2 * steps * ipu_bytes / replicas)
    return middle if method == "meet_in_middle_ring" else min(ring, middle)


def _cycles_of_ring_steps(
    target: Target, replicas: int, ipus_per_replica: int, steps: int, sent: float
) -> int:
    """Returns the cycles of steps with their fixed costs, in which each IPU sends so many bytes.

    0 for one replica, or if there is nothing to send.
    """
    if replicas == 1 or not sent:
        return 0
    bandwidth = ring_bytes_per_cycle(target, replicas, ipus_per_replica)
    sync = links.external_sync_cycles(target, replicas * ipus_per_replica)
    return steps * (sync + links.INTER_IPU_CYCLES) + math.ceil(sent / bandwidth)
