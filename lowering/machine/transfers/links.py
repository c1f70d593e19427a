"""The cost of moving data between tiles, between IPUs, to the host and to streaming memory.

All results are whole tile cycles of the target, rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from lowering.machine.target import Target

INTER_IPU_CYCLES = 2_066
"""The cycles of an exchange between IPUs beside its bytes, hops and syncs, if anything moves.

[D] from lbm-graphcore, exchange-vs-compute.csv, GC2: with rows of 2200 cells between 16 IPUs, each
to the next, 17,600 bytes per border take 3043 cycles, 35,200 take 4017 and 4048. The difference is
17.5 to 18.1 bytes per cycle (two links of target.py: 18.3); what neither bytes nor the IPU that
half of the borders pass (24 cycles) explain is 2055, 2064 and 2095 cycles. No other chip's
phases were measured; whole steps on Mk2 (validation/finite_differences.py) are 3 % too fast with
it, so no more was added. poplibs (popops/Collectives.cpp) found where a ring of n - 1 steps and one
of n / 2 steps with more bytes are equally fast: 608 KiB on 4 IPUs, 2.4 MiB on 8 and 19 MiB on 16,
which makes 4.3, 2.8 and 4.9 thousand cycles per step, its syncs and whatever else it has included.
"""

RACK_IPUS = 64
"""The IPUs of a rack of 16 IPU-Machines, as far as IPU-Links go (datasheet of the IPU-POD64)."""

LinkKind = Literal["neighbour", "across", "along", "gateway"]


class Hop(NamedTuple):
    """A step of a route, from one IPU to the next.

    Attributes:
      source: the IPU where it starts.
      target: the IPU where it ends.
      kind: "neighbour" to the other IPU of the pair, where the route ends there; "across" to it
        on the way to another pair; "along" to the next pair; "gateway" to the IPU of the same
        place in the next rack.
    """

    source: int
    target: int
    kind: LinkKind


def exchange_cycles(target: Target, most_bytes: float) -> int:
    """Returns the cycles of an exchange between tiles, without its sync; 0 if nothing moves.

    Args:
      target: the chip.
      most_bytes: bytes that the busiest tile receives, or sends.
    """
    if not most_bytes:
        return 0
    return target.exchange_cycles + math.ceil(most_bytes / target.exchange_bytes)


def external_sync_cycles(target: Target, num_ipus: int) -> int:
    """Returns the cycles of the syncs of an exchange between IPUs, or of a sync of one IPU.

    The tiles of each IPU meet, then the signal goes to the far end and back once before the
    exchange and once after it, over a hop in the pair and one more for every two pairs (poplibs:
    poplibs_test/Util.cpp setGlobalSyncLatency, which gives one there and back [M]).

    [H] lbm-graphcore, exchange-vs-compute.csv, GC2: an iteration with one exchange between 16 IPUs
    syncs for 501, 642 and 640 cycles, one on a single IPU for 64, 117 and 117. Counted once, the
    signal would give 240 + 100, far too little; twice, as here, 580. The targets themselves
    state 500 (poplibs, GC2) and 600 (ipu-stack, C600) for any number of IPUs.

    Args:
      target: the chip.
      num_ipus: how many sync with each other.
    """
    if num_ipus == 1:
        return target.sync_cycles
    hops = 1 + num_ipus // 4
    there_and_back = math.ceil(target.cycles(target.links.sync_seconds) * hops * 2)
    return target.sync_cycles + 2 * there_and_back


def is_closed_ladder(num_ipus: int) -> bool:
    """Returns whether the rails of a device's ladder are rings, as those of a whole rack are.

    The links of an IPU-POD64 are a torus of two dimensions (its datasheet): two rails of 32, whose
    ends are joined. A device of up to 32 IPUs is a part of a rack, which has ends.
    """
    return num_ipus > RACK_IPUS // 2


def find_route(source: int, target: int, num_ipus: int = 1) -> tuple[Hop, ...]:
    """Returns the hops from one IPU of a device to another.

    As poplibs' addGlobalExchangeConstraints. IPUs 2i and 2i + 1 are a pair, a rung of the ladder.
    Within it the way is direct; otherwise it first crosses to the side of the target, then follows
    that side, the shorter way around where its ends are joined. To another rack the way begins
    with the gateway of the source's own machine [D]; racks are a ring.

    Args:
      source: the place of the first IPU, from 0; each rack has 64 of them.
      target: the place of the last one.
      num_ipus: how many IPUs the device has; up to 32 are a ladder with ends.
    """
    hops: list[Hop] = []
    position = source
    racks = -(-num_ipus // RACK_IPUS)
    for step in _steps_around(source // RACK_IPUS, target // RACK_IPUS, racks):
        rack = (position // RACK_IPUS + step) % racks
        hops.append(Hop(position, rack * RACK_IPUS + position % RACK_IPUS, "gateway"))
        position = hops[-1].target
    if position == target:
        return tuple(hops)
    if position // 2 == target // 2:
        return (*hops, Hop(position, target, "neighbour"))
    if position % 2 != target % 2:
        hops.append(Hop(position, position ^ 1, "across"))
        position ^= 1
    rungs = RACK_IPUS // 2 if is_closed_ladder(num_ipus) else 0
    first = position - position % RACK_IPUS
    for step in _steps_around(position // 2, target // 2, rungs):
        place = (position - first + 2 * step) % RACK_IPUS if rungs else position + 2 * step
        hops.append(Hop(position, first + place if rungs else place, "along"))
        position = hops[-1].target
    return tuple(hops)


def _steps_around(source: int, target: int, places: int) -> list[int]:
    """Returns the steps of 1 or -1 to a place: the shorter way on a ring, or 0 places on a line."""
    distance = target - source
    if places and abs(distance) > places / 2:
        distance -= places if distance > 0 else -places
    return [1 if distance > 0 else -1] * abs(distance)


def bytes_by_hop(flows: Sequence[tuple[int, int, float]], num_ipus: int = 1) -> dict[Hop, float]:
    """Returns the bytes that each hop carries, of all flows (source, target, bytes)."""
    loads: dict[Hop, float] = {}
    for source, target, count in flows:
        for hop in find_route(source, target, num_ipus):
            loads[hop] = loads.get(hop, 0) + count
    return loads


def link_bytes_per_cycle(target: Target, kind: LinkKind, num_ipus: int = 1) -> float:
    """Returns the bytes that all links of a hop carry together, in one direction.

    A machine's gateway has two ports: both lead to the other one of two racks, and one to each of
    the next racks in a ring of more [D].
    """
    links = target.links
    if kind == "gateway":
        shared = 2 if num_ipus > 2 * RACK_IPUS else 1
        return links.gateway_bytes_per_second / shared / target.clock_hz
    count = {"neighbour": links.to_neighbour, "across": links.across, "along": links.along}[kind]
    return count * links.bytes_per_second / target.clock_hz


def busiest_link_cycles(
    target: Target, flows: Sequence[tuple[int, int, float]], num_ipus: int = 1
) -> int:
    """Returns the cycles of the busiest link for flows (source, target, bytes) at the same time.

    The IPUs of a machine share its gateway.
    """
    loads: dict[Hop, float] = {}
    for hop, load in bytes_by_hop(flows, num_ipus).items():
        link = hop
        if hop.kind == "gateway":
            inside = hop.source % target.links.ipus_of_gateway
            link = Hop(hop.source - inside, hop.target - inside, "gateway")
        loads[link] = loads.get(link, 0) + load
    return math.ceil(
        max(
            (
                load / link_bytes_per_cycle(target, link.kind, num_ipus)
                for link, load in loads.items()
            ),
            default=0,
        )
    )


def inter_ipu_cycles(
    target: Target, flows: Sequence[tuple[int, int, float]], num_ipus: int = 1
) -> int:
    """Returns the cycles of an exchange between IPUs, its syncs not counted.

    Beside the fixed cost and the busiest link, the longest route counts: each IPU that data passes
    delays it as a hop delays the signal of a sync [D].

    Args:
      target: the chip.
      flows: (source, target, bytes) by places on the ladder, all at the same time; 0 if none goes
        anywhere.
      num_ipus: how many IPUs the device has, see `find_route`.
    """
    moving = [flow for flow in flows if flow[2] and flow[0] != flow[1]]
    if not moving:
        return 0
    passed_ipus = max(len(find_route(source, end, num_ipus)) for source, end, _ in moving) - 1
    delay = passed_ipus * math.ceil(target.cycles(target.links.sync_seconds))
    return INTER_IPU_CYCLES + busiest_link_cycles(target, moving, num_ipus) + delay


def host_link_cycles(target: Target, bytes_: float) -> int:
    """Returns the cycles from the host to one IPU, or back; every IPU has its own connection."""
    return math.ceil(target.cycles(bytes_ / target.host_bytes_per_second))


def remote_memory_cycles(target: Target, bytes_: float) -> int:
    """Returns the cycles from streaming memory to one IPU, or back; without any, the host's."""
    if not target.remote_bytes_per_second:
        return host_link_cycles(target, bytes_)
    return math.ceil(target.cycles(bytes_ / target.remote_bytes_per_second))
