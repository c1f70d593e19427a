"""Compute sets and exchanges as lists, and the cost of supersteps that the user has laid out."""

from __future__ import annotations

import dataclasses as dc

import numpy as np
import pytest

from lowering.ground import BetweenIpus, Superstep, TileNumbers
from lowering.machine import IPU2, Operation, Shape
from lowering.machine.compute_sets import TileWork, list_compute_sets, list_exchanges
from lowering.machine.primitives.supersteps import superstep_cost
from lowering.machine.trace import assign_to_ipu, build_block, group_traces, repeat_trace

SMALL = dc.replace(IPU2, tiles_per_ipu=4)
X = Shape((8,), "float32")


def numbers(*values: int) -> TileNumbers:
    return TileNumbers.from_array(np.array(values))


STEP = Superstep(
    name="mul",
    kind="Dot",
    vertices=numbers(1, 2),
    tile_cycles=numbers(30, 60),
    received=numbers(0, 8),
    sent=numbers(16),
    results_sent=numbers(0, 4),
    results_received=numbers(4),
    flops=5,
)


def cost_of(step: Superstep | None):
    return superstep_cost(Operation("ipu_superstep", (X,), (X,), (("step", step),)), SMALL)


def test_a_superstep_costs_what_it_carries() -> None:
    cost = cost_of(STEP)
    assert [(p.name, p.compute, p.exchange_bytes) for p in cost.phases] == [
        ("mul", 60 + 11, 16),
        ("mul/results", 0, 4),
    ]
    assert cost.flops == 5
    assert cost.source == "formula"
    assert cost_of(dc.replace(STEP, is_estimated=True)).source == "default"


@pytest.mark.parametrize("step", [None, Superstep(name="nothing")])
def test_what_does_nothing_is_free(step: Superstep | None) -> None:
    assert not cost_of(step).phases


def test_numbers_of_tiles_are_equal_by_value() -> None:
    assert numbers(1, 2) == numbers(1, 2)
    assert hash(STEP) == hash(dc.replace(STEP))
    assert STEP != dc.replace(STEP, vertices=numbers(2, 2))
    assert numbers(1, 2).on_tiles(4).tolist() == [1, 2, 0, 0]
    assert repr(numbers(1, 0, 3)) == "<at most 3 on 2 tiles>"


def test_equal_steps_are_counted_through_loops_on_each_ipu() -> None:
    rows = [
        (0, "sync", "s/mul", "", 0, 100, 7),
        (0, "exchange", "s/mul", "", 100, 54, 7),
        (0, "compute", "s/mul", "", 154, 71, 7),
        (0, "exchange", "s/mul/results", "", 225, 51, 7),
        (0, "compute", "add/Add", "", 276, 40, 8),
    ]
    body = build_block(rows)
    trace = group_traces(
        [(0, assign_to_ipu(repeat_trace(body, 3, 400), 0)), (0, assign_to_ipu(body, 1))]
    )
    work = {7: TileWork(2, 2, 0, STEP), 8: TileWork(1, 2, 3)}
    sets = [*list_compute_sets(trace, work, SMALL)]
    assert [(s.name, s.ipu, s.runs, s.cycles) for s in sets] == [
        ("mul", 0, 3, 71 + SMALL.sync_cycles),
        ("add/Add", 0, 3, 40 + SMALL.sync_cycles),
        ("mul", 1, 1, 71 + SMALL.sync_cycles),
        ("add/Add", 1, 1, 40 + SMALL.sync_cycles),
    ]
    assert sets[0].tile_cycles.tolist() == [30, 60, 0, 0]
    assert sets[0].vertices.tolist() == [1, 2, 0, 0]
    # Tiles 3 and, around the end, 0.
    assert sets[1].tile_cycles.tolist() == [40, 0, 0, 40]
    before, after, *_ = list_exchanges(trace, work, SMALL)
    assert (before.runs, before.cycles) == (3, 54)
    assert before.received_bytes.tolist() == [0, 8, 0, 0]
    assert after.received_bytes.tolist() == [4, 0, 0, 0]
    assert after.sent_bytes.tolist() == [0, 4, 0, 0]


def test_a_superstep_of_two_ipus_is_listed_for_each_that_takes_part() -> None:
    """Eight tiles of two IPUs: tile 1 of the second takes 4 bytes of tile 2 of the first."""
    moved = BetweenIpus(
        ipus=2,
        flows=((0, 1, 4),),
        received=numbers(0, 0, 0, 0, 0, 4),
        sent=numbers(0, 0, 4, 0, 0, 0, 0, 0),
        copies=numbers(0, 0, 0, 0, 0, 4),
    )
    step = Superstep(
        name="far",
        kind="V",
        vertices=numbers(0, 0, 0, 0, 0, 1),
        tile_cycles=numbers(0, 0, 0, 0, 0, 9),
        between_ipus=moved,
    )
    assert step.temporaries(8).tolist() == [0, 0, 0, 0, 0, 4, 0, 0]
    assert cost_of(step).step == step
    rows = [(0, "compute", "s/far", "", 0, 20, 7), (0, "inter_ipu", "s/far", "", 20, 30, 7)]
    inner = assign_to_ipu(build_block(rows), 0)
    trace = group_traces([(0, assign_to_ipu(inner, ipu)) for ipu in range(2)])
    work = {7: TileWork(1, 1, 0, step)}
    (only,) = list_compute_sets(trace, work, SMALL)
    assert (only.ipu, only.tile_cycles.tolist()) == (1, [0, 9, 0, 0])
    found = [
        (e.ipu, e.cycles, e.received_bytes.tolist(), e.sent_bytes.tolist())
        for e in list_exchanges(trace, work, SMALL)
    ]
    assert found == [(0, 30, [0] * 4, [0, 0, 4, 0]), (1, 30, [0, 4, 0, 0], [0] * 4)]
