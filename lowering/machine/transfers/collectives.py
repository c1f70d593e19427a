"""What collectives between replicas cost, in tile cycles.

Replica r has the IPUs from r * ipus_per_replica on, and each IPU works with the IPUs of the same
place in the other replicas, in a ring of n. On the ladder, single IPUs are a ring that goes up one
side and down the other, over whole pairs; rings of larger replicas lie side by side, and what goes
from the last to the first takes the links that lead back. Either way the rings of all IPUs of a
replica share the links from a pair to the next.

Every step is an exchange between all IPUs, with its syncs and fixed cost. Adding what arrives is
compute, which is not counted here. For groups of replicas at a distance of s, whose rings lie
between each other, give s * ipus_per_replica.

Replicas of several instances first do so in each instance, as far as they can, and then each with
those of its place in the other instances, in a ring over the gateways of their machines.

All functions take what the IPU of a replica that has the most holds of the data, how many replicas
take part, how many IPUs each has, how many instances the replicas are in, and which way their data
takes around the ring of each instance.
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
"""The way around a ring, as Poplar's libraries call it; "auto" is the faster of the last two."""


def ring_bytes_per_cycle(target: Target, replicas: int, ipus_per_replica: int) -> float:
    """What one IPU can send around its ring, both ways together, while all others do so too."""
    if replicas == 2 and ipus_per_replica == 1:
        return links.link_bytes_per_cycle(target, "neighbour")  # both ways are the same links
    return 2 * links.link_bytes_per_cycle(target, "along") / ipus_per_replica


def gateway_bytes_per_cycle(target: Target, ipus: int) -> float:
    """What one of an instance's IPUs can send to others, both ways around, while all do so."""
    sharing = min(ipus, target.links.ipus_of_gateway)
    return target.links.gateway_bytes_per_second / sharing / target.clock_hz


def all_reduce_cycles(
    target: Target,
    ipu_bytes: float,
    replicas: int,
    ipus_per_replica: int = 1,
    instances: int = 1,
    method: Method = "auto",
) -> int:
    """A reduce-scatter and an all-gather: 2 (n - 1) / n of the data, of much of it."""
    local = replicas // instances
    inside = _around(target, ipu_bytes, local, ipus_per_replica, method, times=2)
    ipus = local * ipus_per_replica
    return inside + _between(target, ipu_bytes / local, instances, ipus, 2 * (instances - 1))


def all_gather_cycles(
    target: Target,
    ipu_bytes: float,
    replicas: int,
    ipus_per_replica: int = 1,
    instances: int = 1,
    method: Method = "auto",
) -> int:
    """Steps around a ring, n - 1 that move 1/n each; `ipu_bytes` is after it is gathered.

    Half of the data goes around one way and half the other. Between single IPUs, little data is
    faster in n / 2 steps that move 1/n each way at once, and meet in the middle; of the two the
    faster is taken (poplibs: popops/Collectives.cpp, BIDIRECTIONAL_RING_PAIR and
    MEET_IN_MIDDLE_RING, which it tells apart by measured thresholds).
    """
    local = replicas // instances
    inside = _around(target, ipu_bytes, local, ipus_per_replica, method)
    ipus = local * ipus_per_replica
    return inside + _between(target, ipu_bytes / local, instances, ipus, instances - 1)


def reduce_scatter_cycles(
    target: Target,
    ipu_bytes: float,
    replicas: int,
    ipus_per_replica: int = 1,
    instances: int = 1,
    method: Method = "auto",
) -> int:
    """An all-gather the other way around; `ipu_bytes` is before it is summed."""
    return all_gather_cycles(target, ipu_bytes, replicas, ipus_per_replica, instances, method)


def all_to_all_cycles(
    target: Target, ipu_bytes: float, replicas: int, ipus_per_replica: int = 1, instances: int = 1
) -> int:
    """One exchange, in which every replica sends 1/n of its data to every other one.

    All goes the shorter way around: floor(n / 2) * ceil(n / 2) pieces through the middle.
    """
    local = replicas // instances
    own = ipu_bytes / instances  # for the replicas of the same instance
    inside = _cycles(target, local, ipus_per_replica, 1, _through_the_middle(local) * own / local)
    crossing = _through_the_middle(instances)
    return inside + _between(target, ipu_bytes, instances, local * ipus_per_replica, 1, crossing)


def _through_the_middle(replicas: int) -> int:
    """Pieces that pass the middle of a ring, where each goes the shorter way around."""
    return (replicas // 2) * -(-replicas // 2)


def _between(
    target: Target, ipu_bytes: float, instances: int, ipus: int, steps: int, pieces: int = 0
) -> int:
    """Steps around the ring of the gateways of instances, which have so many IPUs each.

    An IPU sends a piece in each step, or so many in all; there are as many as instances.
    """
    sent = (pieces or steps) * ipu_bytes / instances
    if instances == 1 or not sent:
        return 0
    fixed = links.external_sync_cycles(target, instances * ipus) + links.INTER_IPU_CYCLES
    return steps * fixed + math.ceil(sent / gateway_bytes_per_cycle(target, ipus))


def _around(
    target: Target,
    ipu_bytes: float,
    replicas: int,
    ipus_per_replica: int,
    method: Method,
    *,
    times: int = 1,
) -> int:
    """Every piece of the data passes all replicas, so many times.

    One way around, half of the links are idle; between two neighbours both ways are the same links.
    """
    pieces, are_neighbours = times * (replicas - 1), replicas == 2 and ipus_per_replica == 1
    idle = method in ("clockwise_ring", "anticlockwise_ring") and not are_neighbours
    sent = pieces * ipu_bytes / replicas * (2 if idle else 1)
    ring = _cycles(target, replicas, ipus_per_replica, pieces, sent)
    meets = method in ("auto", "meet_in_middle_ring")
    if not meets or ipus_per_replica > 1 or replicas <= 2:
        return ring
    steps = times * (replicas // 2)
    middle = _cycles(target, replicas, 1, steps, 2 * steps * ipu_bytes / replicas)
    return middle if method == "meet_in_middle_ring" else min(ring, middle)


def _cycles(target: Target, replicas: int, ipus_per_replica: int, steps: int, sent: float) -> int:
    """Steps with their fixed costs, in which each IPU sends so many bytes in all.

    0 for one replica, or if there is nothing to send.
    """
    if replicas == 1 or not sent:
        return 0
    bandwidth = ring_bytes_per_cycle(target, replicas, ipus_per_replica)
    sync = links.external_sync_cycles(target, replicas * ipus_per_replica)
    return steps * (sync + links.INTER_IPU_CYCLES) + math.ceil(sent / bandwidth)
