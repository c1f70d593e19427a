"""Cycles of single vertices: the estimators' closed forms, and what hardware took."""

from __future__ import annotations

import dataclasses as dc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.machine import IPU1, IPU2, IPU21, Target
from lowering.machine.planner import (
    Cuts,
    Grains,
    Product,
    amp_cycles,
    distinct_cuts,
    dot_cycles,
    estimate_reductions,
    find_largest_part,
    find_stage_factors,
    reduction_vertex_cycles,
    slic_cycles,
)

SLIC = Grains(in_channels=4, out_channels=4)
PATCHES = Product(
    field=(64, 64),
    kernel=(3, 3),
    in_channels=4,
    out_channels=4,
    input_field=(66, 66),
    stride=(1, 1),
    dilation=(1, 1),
    dtype="float16",
    partials="float16",
    result="float16",
)
ONE = np.array([1])
ONE_TILE = Cuts(
    groups=ONE,
    batch=ONE,
    field=(ONE, ONE),
    kernel=(ONE, ONE),
    in_channels=ONE,
    out_channels=ONE,
    serial_in=ONE,
    serial_out=ONE,
    early=0 * ONE,
)

# tessellate-ipu@3ab241f3: notebooks/IPU Peak Flops.ipynb: rows of a [rows, 16] x [16, 16] product
# in half precision on every tile of a Bow, and cycles (docs/hardware.md, AMP vertex).
TESSELLATE = {
    16: 402.0,
    32: 461.3,
    128: 845.3,
    256: 1352.0,
    512: 2381.3,
    1024: 4424.0,
    1280: 5453.3,
    1536: 6476.0,
    2048: 8525.3,
}


@pytest.mark.parametrize(("rows", "measured"), TESSELLATE.items())
def test_one_amp_vertex_takes_what_the_hardware_took(rows: int, measured: float):
    error = 0.05 if rows == 16 else 0.01
    cycles = amp_cycles(rows, 16, 16, "float16", "float16", IPU21)
    assert cycles == pytest.approx(measured, rel=error)


@pytest.mark.parametrize(("rows", "estimated"), [(16, 427), (128, 883), (512, 2419), (2048, 8563)])
def test_amp_is_the_estimator_less_the_state_that_workers_keep(rows: int, estimated: float):
    # The closed form without the 7 worker cycles that a call keeps (docs/hardware.md, AMP vertex).
    assert amp_cycles(rows, 16, 16, "float16", "float16", IPU21) == estimated - 6 * 7


@pytest.mark.parametrize(
    ("dtype", "partials", "target", "macs"),
    [
        ("float16", "float16", IPU2, 64),
        ("float16", "float32", IPU2, 32),
        ("float32", "float32", IPU2, 16),
        ("float16", "float32", IPU1, 32),
        ("float32", "float32", IPU1, 8),
    ],
)
def test_amp_reaches_the_peak_with_many_rows(dtype, partials, target, macs: int):
    few, many = (amp_cycles(n, 64, 64, dtype, partials, target) for n in (60_000, 120_000))
    # The first pass over the input channels also zeroes, in the code that does not overlap it.
    assert 60_000 * 64 * 64 / (many - few) == pytest.approx(macs, rel=0.16)
    assert 60_000 * 64 * 64 / (many - few) <= macs * 1.0001


def doubled(target: Target, *names: str) -> Target:
    """The chip with twice of some of its rates."""
    twice = {
        name: tuple((types, 2 * rate) for types, rate in getattr(target, name)) for name in names
    }
    return dc.replace(target, **twice)


@pytest.mark.parametrize("names", [("macs_per_cycle",), ("macs_per_cycle", "amp_units")])
@pytest.mark.parametrize(
    ("dtype", "partials"),
    [("float16", "float16"), ("float16", "float32"), ("float32", "float32")],
)
def test_twice_the_products_per_cycle_are_twice_as_fast(dtype, partials, names):
    times: list[float] = []
    for target in (IPU2, doubled(IPU2, *names)):
        few, many = (amp_cycles(n, 128, 128, dtype, partials, target) for n in (60_000, 120_000))
        times.append(many - few)
    # But for what zeroes the sums, which is as slow as before.
    assert times[0] / times[1] == pytest.approx(2, rel=0.06)


def test_twice_the_products_per_cycle_by_hand():
    # Four cycles a row, and two: 2048 rows are 342 for the busiest worker.
    times = [
        amp_cycles(2048, 16, 16, "float16", "float16", target)
        for target in (IPU2, doubled(IPU2, "macs_per_cycle"))
    ]
    assert times[0] - times[1] == 6 * 2 * (342 - 3)


def test_windows_slide_as_fast_as_products_are_made():
    part = find_largest_part(PATCHES, SLIC, ONE_TILE)
    times = [
        float(slic_cycles(part, SLIC, "float16", 1, target)[0])
        for target in (IPU2, doubled(IPU2, "macs_per_cycle"))
    ]
    # 64 x 64 outputs: 11 pieces of rows, 62.09 long, for the busiest of six workers; once over the
    # three rows of the kernel, each 62.09 - 5 cycles, and half of that.
    assert times[0] - times[1] == pytest.approx(3 * 6 * 11 * (683 / 11 - 5) / 2)


def test_workers_are_the_chips():
    twelve = dc.replace(IPU2, workers=12)
    # 100 rows: 17 for the busiest of 6, 9 of 12, in one pass of 37 + 4 (n - 3) less 7.
    both = [
        amp_cycles(100, 16, 16, "float16", "float16", target) - target.workers * 7
        for target in (IPU2, twelve)
    ]
    assert both[0] - both[1] == 6 * (37 + 4 * 14 - 7) - 12 * (37 + 4 * 6 - 7)
    count, partials = np.array([4]), np.array([96])
    six, more = (
        reduction_vertex_cycles(partials, count, "float32", np.array([False]), workers)
        for workers in (6, 12)
    )
    assert (six.tolist(), more.tolist()) == ([33 + 6 * (20 + 4 * 16)], [33 + 12 * (20 + 2 * 16)])


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(1, 300))
def test_amp_of_arrays_is_amp_of_each(rows: int, ins: int, outs: int):
    together = amp_cycles(
        np.array([rows, 7]), np.array([ins, 16]), outs, "float32", "float32", IPU2
    )
    alone = [amp_cycles(r, i, outs, "float32", "float32", IPU2) for r, i in ((rows, ins), (7, 16))]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize(
    ("size", "dtype", "partials", "cycles"),
    [
        (8, "float32", "float32", 7 + 4),
        (8, "float16", "float32", 7 + 2),
        (8, "float16", "float16", 6 + 1 + 4 + 2),
        (6, "float16", "float32", 7 + 1 + 6),
    ],
)
def test_dot_products_load_a_vector_per_cycle(size: int, dtype, partials, cycles: int):
    assert dot_cycles(size, dtype, partials) == cycles


@given(st.integers(1, 1472))
def test_reductions_take_up_to_three_stages(depth: int):
    factors = find_stage_factors(depth)
    assert np.prod(factors) >= depth
    assert len(factors) == (depth > 1) + (depth >= 16) + (depth >= 125)
    assert max(factors, default=1) <= max(15, 12)


def test_a_reduction_sends_what_changes_tiles():
    reduced = estimate_reductions(np.array([600, 600]), np.array([1, 6]), "float32", "float32", 6)
    assert reduced.outputs.tolist() == [600, 100]
    assert reduced.exchange_bytes.tolist() == [0, 5 * 100 * 4]
    # 25 groups of four outputs: five for the busiest worker, each 2 cycles a partial and 8 more.
    assert reduced.cycles.tolist() == [0, 33 + 6 * (20 + 5 * (6 * 2 + 8))]


def test_storing_halves_takes_a_cycle_less():
    one = reduction_vertex_cycles(np.array([64]), np.array([4]), "float32", np.array([False]), 6)
    other = reduction_vertex_cycles(np.array([64]), np.array([4]), "float32", np.array([True]), 6)
    assert (one - other).tolist() == [6 * 3]


@given(st.integers(1, 5000), st.integers(1, 1472))
def test_distinct_cuts_leave_nothing_out(count: int, limit: int):
    cuts = distinct_cuts(count, limit)
    possible = {-(-count // parts) for parts in range(1, min(count, limit) + 1)}
    assert {-(-count // parts) for parts in cuts} == possible
    assert max(cuts) <= min(count, limit)
