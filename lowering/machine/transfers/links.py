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
half of the borders pass (24 cycles) explain is 2055, 2064 and 2095 cycles. No other chip was
measured. poplibs (popops/Collectives.cpp) found where a ring of n - 1 steps and one of n / 2 steps
with more bytes are equally fast: 608 KiB on 4 IPUs, 2.4 MiB on 8 and 19 MiB on 16, which makes 4.3,
2.8 and 4.9 thousand cycles per step, its syncs and whatever else it has included.
"""

LinkKind = Literal["neighbour", "across", "along"]


class Hop(NamedTuple):
    """A step of a route, from one IPU to the next.

    Attributes:
      source: the IPU where it starts.
      target: the IPU where it ends.
      kind: "neighbour" to the other IPU of the pair, where the route ends there; "across" to it
        on the way to another pair; "along" to the next pair.
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


def find_route(source: int, target: int) -> tuple[Hop, ...]:
    """Returns the hops from one IPU to another on the ladder.

    As poplibs' addGlobalExchangeConstraints. IPUs 2i and 2i + 1 are a pair, a rung of the ladder.
    Within it the way is direct; otherwise it first crosses to the side of the target, then follows
    that side.
    """
    if source == target:
        return ()
    if source // 2 == target // 2:
        return (Hop(source, target, "neighbour"),)
    hops: list[Hop] = []
    position = source
    if position % 2 != target % 2:
        hops.append(Hop(position, position ^ 1, "across"))
        position ^= 1
    step = 2 if position < target else -2
    while position != target:
        hops.append(Hop(position, position + step, "along"))
        position += step
    return tuple(hops)


def bytes_by_hop(flows: Sequence[tuple[int, int, float]]) -> dict[Hop, float]:
    """Returns the bytes that each hop carries, of all flows (source, target, bytes)."""
    loads: dict[Hop, float] = {}
    for source, target, count in flows:
        for hop in find_route(source, target):
            loads[hop] = loads.get(hop, 0) + count
    return loads


def link_bytes_per_cycle(target: Target, kind: LinkKind) -> float:
    """Returns the bytes that all links of a hop carry together, in one direction."""
    links = target.links
    count = {"neighbour": links.to_neighbour, "across": links.across, "along": links.along}[kind]
    return count * links.bytes_per_second / target.clock_hz


def busiest_link_cycles(target: Target, flows: Sequence[tuple[int, int, float]]) -> int:
    """Returns the cycles of the busiest link for flows (source, target, bytes) at the same time."""
    loads = bytes_by_hop(flows).items()
    return math.ceil(
        max((load / link_bytes_per_cycle(target, hop.kind) for hop, load in loads), default=0)
    )


def inter_ipu_cycles(target: Target, flows: Sequence[tuple[int, int, float]]) -> int:
    """Returns the cycles of an exchange between IPUs, its syncs not counted.

    Beside the fixed cost and the busiest link, the longest route counts: each IPU that data passes
    delays it as a hop delays the signal of a sync [D].

    Args:
      target: the chip.
      flows: (source, target, bytes) by places on the ladder, all at the same time; 0 if none goes
        anywhere.
    """
    moving = [flow for flow in flows if flow[2] and flow[0] != flow[1]]
    if not moving:
        return 0
    passed_ipus = max(len(find_route(source, end)) for source, end, _ in moving) - 1
    delay = passed_ipus * math.ceil(target.cycles(target.links.sync_seconds))
    return INTER_IPU_CYCLES + busiest_link_cycles(target, moving) + delay


def host_link_cycles(target: Target, bytes_: float) -> int:
    """Returns the cycles from the host to one IPU, or back; every IPU has its own connection."""
    return math.ceil(target.cycles(bytes_ / target.host_bytes_per_second))


def remote_memory_cycles(target: Target, bytes_: float) -> int:
    """Returns the cycles from streaming memory to one IPU, or back; without any, the host's."""
    if not target.remote_bytes_per_second:
        return host_link_cycles(target, bytes_)
    return math.ceil(target.cycles(bytes_ / target.remote_bytes_per_second))
