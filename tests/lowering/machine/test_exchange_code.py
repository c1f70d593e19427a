"""The code of exchanges, from the pieces that tiles move, and what it is compiled for."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import pytest

from lowering.machine import IPU2, map_evenly, map_linearly
from lowering.machine.planner import matmul_product, phases_of_plan, plan_product
from lowering.machine.transfers import (
    Pieces,
    partial_pieces,
    scattered_pieces,
    shared_pieces,
)
from tests.lowering.machine.samples import profile

GOALS = "cycles", "balanced", "memory"


def test_a_receiver_that_poplar_compiled():
    """Four messages, each to an address of its own: ten words, and a return (ipu-stack)."""
    assert Pieces(received=4, regions=4).code_bytes() == 4 * (10 + 1)


def test_the_goal_says_how_often_addresses_are_set():
    pieces = scattered_pieces(1_280.0)  # ten pieces, as linear mappings have 128 bytes at least
    assert pieces == Pieces(10, 10, 10)
    assert [pieces.code_bytes(goal) for goal in GOALS] == [132, 4 * (3 + 10 + 6 + 10), 96]


def test_what_comes_in_the_order_of_addresses_has_one():
    """Each of 20 tiles sends its piece once, and receives 19."""
    pieces = shared_pieces(19 * 200.0, 200.0)
    assert pieces == Pieces(19, 1, 1)
    assert [pieces.code_bytes(goal) for goal in GOALS] == [4 * (3 + 19 + 1 + 1)] * 3
    assert shared_pieces(0.0, 200.0) == Pieces() == partial_pieces(0)


def test_pieces_of_layouts_counted_element_by_element():
    """Runs of a [positions, channels] tensor in the order of a plan and in its own."""
    positions, channels, grain, tiles = 24, 32, 8, 6
    blocked = sorted(
        itertools.product(range(positions), range(channels)),
        key=lambda at: (at[1] // grain, at[0], at[1]),
    )
    plan = map_evenly(768, 2, tiles, tiles, layout="plan", block=(grain, positions))
    rows = map_linearly(768, 2, tiles, minimum_bytes=8)
    part = [row * channels + channel for row, channel in blocked[: plan.most_elements]]
    runs = 1 + sum(b != a + 1 for a, b in itertools.pairwise(part))
    assert plan.most_bytes / plan.bytes_together_in(rows) == runs == 16
    assert plan.bytes_together_in(rows) == rows.bytes_together_in(plan) == 2 * grain
    wider = map_evenly(768, 2, tiles, tiles, layout="wider", block=(2 * grain, positions // 2))
    assert plan.bytes_together_in(wider) == 2 * grain * positions // 2
    assert plan.bytes_together_in(plan) == plan.most_bytes


def test_pieces_of_a_plan():
    """A dense layer of 16 rows, 4096 inputs and 1024 outputs in single precision.

    Poplar 3.0 took 360 KiB for its exchanges on 1472 tiles, one for the bias among them (keras:
    auto_pipeline, profiler_test.py).
    """
    plan = plan_product(matmul_product(1, 16, 4096, 1024), IPU2, 0.6)
    exchanges = [phase.exchanged_pieces for phase in phases_of_plan(plan, IPU2)]
    bias = Pieces(1, 1, 1)
    per_tile = sum(pieces.code_bytes() for pieces in (*exchanges, bias))
    assert per_tile * 1472 == pytest.approx(360 * 1024, rel=0.1)
    cut = plan.partition
    pairs = 2 if cut.out_channels % 2 == 0 else 1  # a pair of tiles receives what both need at once
    assert exchanges[0].received == pytest.approx((cut.out_channels - 1) / pairs, abs=2)
    stages = [pieces.received + 1 for pieces in exchanges[1:]]
    assert stages[0] * stages[1] >= cut.in_channels


def test_tiles_that_take_no_part_receive_nothing():
    """A tensor of 4 rows has 128 bytes on each of 4 tiles; the others have no code to receive."""

    def turned(x, y):
        return x + y.T

    x, y = (jax.ShapeDtypeStruct(shape, jnp.float16) for shape in ((4, 64), (64, 4)))
    code = profile(turned, x, y).memory.tile_categories["exchange_code"][0]
    receiving = code > code.min()
    assert receiving.sum() == 4
    assert code[receiving].min() - code.min() >= 4 * 2  # from another tile, to an address


def test_the_goal_changes_the_code_of_exchanges_alone():
    def transposed(x, y):
        return jnp.tanh(x @ y).T @ jnp.sin(y)

    x = jax.ShapeDtypeStruct((512, 512), jnp.float16)
    profiles = [profile(transposed, x, x, exchange_goal=goal) for goal in GOALS]
    code = [found.memory.by_category["exchange_code"] for found in profiles]
    assert code[0] > code[1] > code[2]
    assert len({found.cycles for found in profiles}) == 1
    for name in ("variables", "vertex_code", "vertex_state", "control_code", "temporaries"):
        assert len({found.memory.by_category[name] for found in profiles}) == 1
