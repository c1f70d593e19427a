"""Transfers against closed forms, and against what was measured."""

from __future__ import annotations

import dataclasses as dc
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.machine import (
    INTER_IPU_CYCLES,
    IPU1,
    IPU2,
    IPU21,
    TARGETS,
    Operation,
    Shape,
    Target,
)
from lowering.machine.transfers import (
    Collectives,
    Hop,
    Sum,
    busiest_link_cycles,
    bytes_by_hop,
    bytes_of_replica_sums,
    collective_cost,
    exchange_cycles,
    external_sync_cycles,
    find_route,
    host_link_cycles,
    inter_ipu_cycles,
    link_bytes_per_cycle,
    remote_memory_cycles,
)

targets = st.sampled_from(list(TARGETS.values()))


def test_exchange_within_an_ipu() -> None:
    assert exchange_cycles(IPU2, 0) == 0
    assert exchange_cycles(IPU2, 4096) == 100 + 1024
    assert exchange_cycles(IPU2, 4097) == 100 + 1025
    assert exchange_cycles(dc.replace(IPU2, exchange_bytes=8, exchange_cycles=7), 64) == 15


@pytest.mark.parametrize(
    ("target", "num_ipus", "cycles"),
    [
        (IPU1, 1, 100),
        (IPU1, 2, 100 + 2 * 48),
        (IPU1, 4, 100 + 2 * 96),
        (IPU1, 16, 100 + 2 * 240),
        (IPU2, 4, 100 + 2 * 80),
        (IPU21, 16, 100 + 2 * 278),
        (IPU21, 64, 100 + 2 * 944),
    ],
)
def test_sync_between_ipus(target: Target, num_ipus: int, cycles: int) -> None:
    assert external_sync_cycles(target, num_ipus) == cycles


def test_sync_as_measured() -> None:
    """[H] lbm-graphcore, exchange-vs-compute.csv: half4, float2 and float on GC2."""
    for num_ipus, measured in ((16, (501, 642, 640)), (1, (64, 117, 117))):
        assert min(measured) <= external_sync_cycles(IPU1, num_ipus) <= max(measured)


def test_exchange_between_ipus_as_measured() -> None:
    """[H] the same: rows of 2200 cells to both neighbours, 8 and 16 bytes each."""
    for cell, measured in ((8, 3043), (16, 4017), (16, 4048)):
        borders = [(i, i + 1) for i in range(15)]
        flows = [(a, b, 2200 * cell) for i, j in borders for a, b in ((i, j), (j, i))]
        assert inter_ipu_cycles(IPU1, flows) == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(
    ("source", "target", "hops"),
    [
        (3, 3, []),
        (6, 7, [(6, 7, "neighbour")]),
        (7, 6, [(7, 6, "neighbour")]),
        (0, 4, [(0, 2, "along"), (2, 4, "along")]),
        (5, 1, [(5, 3, "along"), (3, 1, "along")]),
        (1, 2, [(1, 0, "across"), (0, 2, "along")]),
        (2, 1, [(2, 3, "across"), (3, 1, "along")]),
        (
            8,
            15,
            [(8, 9, "across"), (9, 11, "along"), (11, 13, "along"), (13, 15, "along")],
        ),
    ],
)
def test_routes_by_hand(source: int, target: int, hops: list[tuple[int, int, str]]) -> None:
    assert list(find_route(source, target)) == hops


def test_routes_of_sixteen_ipus() -> None:
    for source, target in itertools.product(range(16), repeat=2):
        hops = find_route(source, target)
        places = [source, *(hop.target for hop in hops)]
        assert places[-1] == target
        assert [hop.source for hop in hops] == places[:-1]
        assert len(set(places)) == len(places)
        assert min(places) >= 0
        assert max(places) < 16
        for hop in hops:
            assert abs(hop.source - hop.target) == (2 if hop.kind == "along" else 1)
            assert hop.source // 2 == hop.target // 2 or hop.kind == "along"
        pairs = abs(source // 2 - target // 2)
        crosses = source % 2 != target % 2
        assert len(hops) == pairs + crosses
        assert [hop.kind for hop in hops if hop.kind != "along"] == (
            [] if not crosses else ["across"] if pairs else ["neighbour"]
        )


@pytest.mark.parametrize(
    ("source", "target", "num_ipus", "hops"),
    [
        (0, 62, 64, [(0, 62, "along")]),  # the ends of a rail are joined
        (62, 0, 64, [(62, 0, "along")]),
        (0, 30, 32, [(i, i + 2, "along") for i in range(0, 30, 2)]),  # part of a rack has ends
        (61, 2, 64, [(61, 60, "across"), (60, 62, "along"), (62, 0, "along"), (0, 2, "along")]),
        (5, 69, 128, [(5, 69, "gateway")]),
        (
            70,
            1,
            128,
            [
                (70, 6, "gateway"),
                *[(6, 7, "across"), (7, 5, "along")],
                *[(5, 3, "along"), (3, 1, "along")],
            ],
        ),
        (64, 126, 128, [(64, 126, "along")]),
        (0, 193, 256, [(0, 192, "gateway"), (192, 193, "neighbour")]),  # racks are a ring
        (0, 128, 256, [(0, 64, "gateway"), (64, 128, "gateway")]),
    ],
)
def test_routes_of_pods_by_hand(
    source: int, target: int, num_ipus: int, hops: list[tuple[int, int, str]]
) -> None:
    assert list(find_route(source, target, num_ipus)) == hops


def neighbours_in_pod(num_ipus: int) -> dict[int, set[int]]:
    """The IPUs that links or gateways join, from the words of the datasheets."""
    racks = num_ipus // 64
    return {
        ipu: {
            ipu ^ 1,
            *(ipu // 64 * 64 + (ipu + step) % 64 for step in (-2, 2)),
            *((ipu + 64 * step) % num_ipus for step in (-1, 1) if racks > 1),
        }
        for ipu in range(num_ipus)
    }


@pytest.mark.parametrize("num_ipus", [64, 128, 256])
def test_routes_of_pods_are_shortest_and_follow_links(num_ipus: int) -> None:
    linked = neighbours_in_pod(num_ipus)
    for source in (0, 1, 37, num_ipus - 1):
        distances = {source: 0}
        for place in (queue := [source]):
            for other in sorted(linked[place] - distances.keys()):
                distances[other] = distances[place] + 1
                queue.append(other)
        for target in range(num_ipus):
            hops = find_route(source, target, num_ipus)
            places = [source, *(hop.target for hop in hops)]
            assert [hop.source for hop in hops] == places[:-1]
            assert places[-1] == target
            assert all(hop.target in linked[hop.source] for hop in hops)
            assert len(hops) == distances[target]


@pytest.mark.parametrize(
    ("flows", "num_ipus", "seconds"),
    [
        ([(0, 64, 1e9)], 128, 1 / 25),
        ([(ipu, ipu + 64, 1e9) for ipu in range(4)], 128, 4 / 25),
        # One of two ports leads to each of the next racks, and other machines have their own.
        ([(ipu, ipu + 64, 1e9) for ipu in range(8)], 256, 4 / 12.5),
    ],
)
def test_the_ipus_of_a_machine_share_its_gateway(
    flows: list[tuple[int, int, float]], num_ipus: int, seconds: float
) -> None:
    cycles = busiest_link_cycles(IPU2, flows, num_ipus)
    assert cycles == pytest.approx(seconds * 1.33e9, abs=1)


def test_links_of_a_card() -> None:
    assert link_bytes_per_cycle(IPU1, "neighbour") == pytest.approx(36.5, abs=0.05)
    assert link_bytes_per_cycle(IPU1, "across") == pytest.approx(18.25, abs=0.05)
    assert link_bytes_per_cycle(IPU1, "along") == pytest.approx(18.25, abs=0.05)
    for kind in ("neighbour", "across", "along"):
        # gc-iputraffictest's manual: both ways together.
        assert 2 * 8 * link_bytes_per_cycle(IPU2, kind) * 1.33e9 == pytest.approx(423.3e9)


def test_flows_share_links() -> None:
    flows = [(0, 4, 1000), (2, 4, 500), (1, 4, 250), (4, 0, 9000), (0, 1, 4000), (3, 3, 10**9)]
    loads = bytes_by_hop(flows)
    assert loads[Hop(2, 4, "along")] == 1750
    assert loads[Hop(0, 2, "along")] == 1250
    assert loads[Hop(1, 0, "across")] == 250
    assert loads[Hop(4, 2, "along")] == loads[Hop(2, 0, "along")] == 9000
    assert loads[Hop(0, 1, "neighbour")] == 4000
    assert len(loads) == 6
    want = math.ceil(9000 / link_bytes_per_cycle(IPU2, "along"))
    assert busiest_link_cycles(IPU2, flows) == want
    passed = 2 * math.ceil(15e-9 * 1.33e9)  # 1 -> 4, over 0 and 2
    assert inter_ipu_cycles(IPU2, flows) == want + INTER_IPU_CYCLES + passed


def test_each_ipu_on_the_way_delays() -> None:
    direct, far = (inter_ipu_cycles(IPU2, [(0, end, 1000)]) for end in (2, 14))
    assert far - direct == 6 * math.ceil(15e-9 * 1.33e9)
    bent = inter_ipu_cycles(IPU2, [(1, 2, 1000)])  # over 0
    assert bent - direct == math.ceil(15e-9 * 1.33e9)


def test_nothing_to_move_costs_nothing() -> None:
    assert inter_ipu_cycles(IPU2, []) == 0
    assert inter_ipu_cycles(IPU2, [(0, 5, 0), (3, 3, 100)]) == 0
    assert (
        host_link_cycles(IPU2, 0) == remote_memory_cycles(IPU2, 0) == exchange_cycles(IPU2, 0) == 0
    )


def test_host_and_streaming_memory() -> None:
    assert host_link_cycles(IPU2, 32e9) == 1_330_000_000
    assert remote_memory_cycles(IPU2, 5e9) == 1_330_000_000
    assert (
        remote_memory_cycles(IPU1, 1e6) == host_link_cycles(IPU1, 1e6) == 50_000
    )  # no memory of its own


# For each collective its steps, and the share of the data that every IPU sends.
COLLECTIVES: dict[str, tuple[Callable[..., int], Callable[[int], int], Callable[[int], float]]] = {
    "all_reduce": (
        collective_cost.all_reduce_cycles,
        lambda n: 2 * (n - 1),
        lambda n: 2 * (n - 1) / n,
    ),
    "all_gather": (collective_cost.all_gather_cycles, lambda n: n - 1, lambda n: (n - 1) / n),
    "reduce_scatter": (
        collective_cost.reduce_scatter_cycles,
        lambda n: n - 1,
        lambda n: (n - 1) / n,
    ),
    "all_to_all": (
        collective_cost.all_to_all_cycles,
        lambda n: 1,
        lambda n: n // 2 * -(-n // 2) / n,
    ),
}


def ring_form(
    target: Target, replicas: int, ipus: int, steps: int, share: float, count: int
) -> float:
    links = target.links
    bandwidth = 2 * links.along * links.bytes_per_second / target.clock_hz / ipus
    if (replicas, ipus) == (2, 1):
        bandwidth = links.to_neighbour * links.bytes_per_second / target.clock_hz
    fixed = external_sync_cycles(target, replicas * ipus) + INTER_IPU_CYCLES
    return steps * fixed + share * count / bandwidth


@given(
    targets,
    st.sampled_from(list(COLLECTIVES)),
    st.integers(2, 64),
    st.sampled_from([2, 4, 8]),
    st.integers(1, 10**9),
)
def test_collectives(target: Target, name: str, replicas: int, ipus: int, count: int) -> None:
    cycles, steps, share = COLLECTIVES[name]
    want = ring_form(target, replicas, ipus, steps(replicas), share(replicas), count)
    assert cycles(target, count, replicas, ipus) == pytest.approx(want, abs=2.01, rel=1e-12)


@given(
    targets,
    st.sampled_from(["all_reduce", "all_gather"]),
    st.integers(2, 32).map(lambda half: 2 * half),
    st.integers(1, 10**9),
)
def test_little_data_meets_in_the_middle(
    target: Target, name: str, replicas: int, count: int
) -> None:
    cycles, steps, share = COLLECTIVES[name]
    ring = ring_form(target, replicas, 1, steps(replicas), share(replicas), count)
    times = 2 if name == "all_reduce" else 1
    meet = ring_form(target, replicas, 1, times * replicas // 2, times, count)
    assert cycles(target, count, replicas) == pytest.approx(min(ring, meet), abs=1.01, rel=1e-12)


@pytest.mark.parametrize(
    ("replicas", "threshold"), [(4, 622_592), (8, 2_490_368), (16, 19_922_944)]
)
def test_where_the_ring_gets_faster(replicas: int, threshold: int) -> None:
    """[H] poplibs, popops/Collectives.cpp pickAllGatherMethod: ours are 0.55 to 0.87 of these."""

    def share_at(count: float) -> float:
        """How much of some more data every IPU sends."""
        more = threshold // 50
        before = collective_cost.all_gather_cycles(IPU1, count, replicas)
        after = collective_cost.all_gather_cycles(IPU1, count + more, replicas)
        return (after - before) * collective_cost.ring_bytes_per_cycle(IPU1, replicas, 1) / more

    assert share_at(threshold / 2) == pytest.approx(1, abs=0.01)
    assert share_at(threshold * 0.9) == pytest.approx((replicas - 1) / replicas, abs=0.01)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_one_replica_needs_no_collective(name: str) -> None:
    assert COLLECTIVES[name][0](IPU2, 10**6, 1, 4) == 0
    assert COLLECTIVES[name][0](IPU2, 0, 4, 4) == 0


def test_a_ring_of_all_reduces_by_hand() -> None:
    # Four replicas of two IPUs: 6 steps of 8 MB / 4 per IPU, of which each sends through half of
    # four links of 13.2 GB/s: 12 MB at 26.46 GB/s are 453.6 us.
    steps = 6 * (100 + 2 * math.ceil(15e-9 * 1.33e9 * 3 * 2) + 2_066)
    assert collective_cost.all_reduce_cycles(IPU2, 8e6, 4, 2) == steps + 603_261


def test_an_all_reduce_of_two_instances_by_hand() -> None:
    # Two replicas of one IPU in each: 4 MB of 8 MB to and from the other one of the instance, then
    # 2 MB of the 4 MB to the other instance and 2 MB back, at half of 25 GB/s: 320 us.
    inside = collective_cost.all_reduce_cycles(IPU2, 8e6, 2)
    steps = 2 * (external_sync_cycles(IPU2, 4) + INTER_IPU_CYCLES)
    cycles = collective_cost.all_reduce_cycles(IPU2, 8e6, 4, 1, 2)
    assert cycles == pytest.approx(inside + steps + 425_600, abs=1)


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("instances", [2, 4, 8])
def test_instances_meet_over_gateways(name: str, instances: int) -> None:
    cycles, steps, share = COLLECTIVES[name]
    slow = dc.replace(IPU2, links=dc.replace(IPU2.links, gateway_bytes_per_second=1e9))
    for ipus in (1, 2, 8):  # a replica for each instance; four IPUs have a gateway
        spread = cycles(slow, 10**8, instances, ipus, instances)
        fixed = external_sync_cycles(slow, instances * ipus) + INTER_IPU_CYCLES
        bandwidth = 1e9 / min(ipus, 4) / slow.clock_hz
        want = steps(instances) * fixed + share(instances) * 10**8 / bandwidth
        assert spread == pytest.approx(want, rel=1e-9)
    # What replicas of one instance say to one another does not pass the gateway.
    assert 0 < cycles(slow, 10**8, 8, 1) < cycles(slow, 10**8, 8 * instances, 1, instances)


@given(st.integers(2, 12), st.sampled_from([1, 2, 4]))
def test_rings_use_the_links_that_routes_take(replicas: int, ipus: int) -> None:
    if ipus == 1:  # up one side, down the other, over whole pairs
        replicas += replicas % 2
        rings = [[*range(0, replicas, 2), *reversed(range(1, replicas, 2))]]
    else:
        rings = [[r * ipus + i for r in range(replicas)] for i in range(ipus)]
    flows: list[tuple[int, int, float]] = []
    for ring in rings:
        for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
            flows += [(a, b, 5e8), (b, a, 5e8)]
    bandwidth = collective_cost.ring_bytes_per_cycle(IPU2, replicas, ipus)
    assert busiest_link_cycles(IPU2, flows) == math.ceil(1e9 / bandwidth)


@pytest.mark.parametrize("ipus", [2, 4, 8, 32])
def test_rings_that_fill_a_rack_close_over_its_ends(ipus: int) -> None:
    replicas = 64 // ipus
    flows: list[tuple[int, int, float]] = []
    for ipu in range(64):
        other = (ipu + ipus) % 64
        flows += [(ipu, other, 5e8), (other, ipu, 5e8)]
    bandwidth = collective_cost.ring_bytes_per_cycle(IPU2, replicas, ipus)
    assert busiest_link_cycles(IPU2, flows, 64) == pytest.approx(1e9 / bandwidth, abs=1)


def test_racks_meet_over_gateways() -> None:
    """128 replicas of one IPU: 64 in each rack, then each with that of its place in the other."""
    collectives = Collectives(target=IPU2, replicas=128)
    assert collectives.groups == 2
    assert dc.replace(collectives, replicas=16, ipus_per_replica=16).groups == 4
    assert dc.replace(collectives, replicas=2, ipus_per_replica=128).groups == 2
    assert dc.replace(collectives, instances=2).groups == 2  # a rack for each
    assert dc.replace(collectives, replicas=64).groups == 1
    rack = collective_cost.all_reduce_cycles(IPU2, 64e6, 64)
    steps = 2 * (external_sync_cycles(IPU2, 128) + INTER_IPU_CYCLES)
    both = collective_cost.all_reduce_cycles(IPU2, 64e6, 128, 1, 2)
    # 1 MB is left for each IPU, half of it there and half back, over a quarter of 25 GB/s.
    assert both == pytest.approx(rack + steps + 1e6 / 6.25e9 * 1.33e9, abs=1)


@given(st.integers(2, 12), st.sampled_from([2, 4]))
def test_all_to_all_uses_the_links_that_routes_take(replicas: int, ipus: int) -> None:
    flows = [
        (a * ipus + i, b * ipus + i, 1e9 / replicas)
        for a, b in itertools.permutations(range(replicas), 2)
        for i in range(ipus)
    ]
    fixed = external_sync_cycles(IPU2, replicas * ipus) + INTER_IPU_CYCLES
    assert collective_cost.all_to_all_cycles(IPU2, 1e9, replicas, ipus) - fixed == pytest.approx(
        busiest_link_cycles(IPU2, flows), abs=1
    )


@pytest.mark.parametrize(("merged_bytes", "together"), [(0, 1), (2000, 2), (1 << 20, 10)])
@pytest.mark.parametrize(
    ("kind", "field", "summed", "rule"),
    [
        ("all-reduce", "merged_bytes", jax.lax.psum, collective_cost.all_reduce_cycles),
        (
            "reduce-scatter",
            "merged_scatter_bytes",
            jax.lax.psum_scatter,
            collective_cost.reduce_scatter_cycles,
        ),
    ],
)
def test_small_sums_go_as_one(
    kind: Sum, field: str, summed: Any, rule: Any, merged_bytes: int, together: int
) -> None:
    """Ten of 1 000 bytes: ten times alone, five times two, or once ten; not with the other kind."""

    def fn(x: jax.Array) -> list[jax.Array]:
        others = [jax.lax.pmax(x, "r")] if kind == "reduce-scatter" else []
        return [*others, *(summed(x + i, "r") for i in range(10))]

    jaxpr = jax.make_jaxpr(fn, axis_env=[("r", 4)])(jnp.zeros((4, 125), jnp.float16)).jaxpr
    assert bytes_of_replica_sums(jaxpr, kind) == 10_000
    name = jaxpr.eqns[-1].primitive.name
    operation = Operation(name, (Shape((4, 125), "float16"),), (Shape((125,), "float16"),))
    whole = Collectives(target=IPU2, replicas=4, **{field: min(merged_bytes, 10_000)})
    expected = rule(IPU2, 1000 * together, 4) * 10 / together
    assert whole.collective_cycles(operation) == pytest.approx(expected / 10, abs=1)
    alone = Collectives(target=IPU2, replicas=4, **{field: min(merged_bytes, 1000)})
    assert alone.collective_cycles(operation) == rule(IPU2, 1000, 4)


def test_ways_around_a_ring_can_be_chosen() -> None:
    def cycles(size: float, method: collective_cost.Method, replicas: int = 8) -> int:
        return collective_cost.all_gather_cycles(IPU2, size, replicas, method=method)

    little, much = 1024.0, 1e8
    for size in (little, much):
        middle, both = cycles(size, "meet_in_middle_ring"), cycles(size, "bidirectional_ring_pair")
        assert cycles(size, "auto") == min(middle, both)
        assert cycles(size, "clockwise_ring") == cycles(size, "anticlockwise_ring") > both
    assert cycles(little, "auto") == cycles(little, "meet_in_middle_ring")
    assert cycles(much, "auto") == cycles(much, "bidirectional_ring_pair")
    assert cycles(much, "clockwise_ring") == pytest.approx(2 * cycles(much, "auto"), rel=0.01)
    assert cycles(much, "clockwise_ring", 2) == cycles(much, "auto", 2)  # the same links
