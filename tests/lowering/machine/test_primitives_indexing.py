"""Dynamic slices, lookups and scatters: the way that is faster, and what it takes of a tile."""

from __future__ import annotations

import dataclasses as dc
import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.machine import IPU2, Cost, Operation, Shape, map_linearly
from lowering.machine.primitives import Lookup, LookupWorker, cost_of_operation, plan_lookup

INDEX = Shape((), "int32")
SINGLE = LookupWorker(30, 19, 2, 2)
BOUND = 0.6 * IPU2.bytes_per_tile


def cycles(found: Cost) -> float:
    return found.cycles_with_exchange(IPU2.exchange_bytes, IPU2.exchange_cycles, IPU2.sync_cycles)


def sliced(whole: tuple[int, ...], part: tuple[int, ...]) -> Cost:
    given, taken = Shape(whole, "float32"), Shape(part, "float32")
    return cost_of_operation(
        Operation("dynamic_slice", (given, *[INDEX] * len(whole)), (taken,)), IPU2
    )


def updated(whole: tuple[int, ...], part: tuple[int, ...]) -> Cost:
    given, taken = Shape(whole, "float32"), Shape(part, "float32")
    op = Operation("dynamic_update_slice", (given, taken, *[INDEX] * len(whole)), (given,))
    return cost_of_operation(op, IPU2)


def test_a_slice_of_the_only_axis_is_exchanged_and_copied() -> None:
    # Grains of two floats: 131,072 are 90 on the fullest of 1,472 tiles, 720 bytes; 524,288 are
    # 357, 2,856 bytes, all of which a tile inside of the slice sends.
    read, written = sliced((2**20,), (2**18,)), updated((2**20,), (2**18,))
    assert [(p.compute, p.exchange_bytes) for p in read.phases] == [(288 + 720 / 8, 4 + 2856)]
    assert [(p.compute, p.exchange_bytes) for p in written.phases] == [(288 + 2856 / 8, 4 + 2856)]
    assert (read.temporary_bytes, written.temporary_bytes) == (720, 2856)
    assert cycles(read) == 100 + 376 + 2860 / 4 + 378
    assert written.in_place
    assert not read.in_place


def test_many_slices_of_little_each_are_not_copied_one_by_one() -> None:
    assert cycles(sliced((1024, 1024), (1024, 512))) < 1_800
    assert cycles(sliced((2**21,), (2**20,))) < 2_800


def test_few_slices_over_all_tiles_move_only_the_index() -> None:
    read = sliced((64, 1472, 128), (1, 1472, 128))
    assert [phase.exchange_bytes for phase in read.phases] == [4]
    assert read.operands[0] is not None
    assert read.temporary_bytes == 0


@given(
    st.lists(st.tuples(st.integers(1, 600), st.integers(1, 600)), min_size=1, max_size=3),
    st.sampled_from([sliced, updated]),
)
def test_slices_take_no_more_than_the_bytes_of_a_tile(extents, slice_of) -> None:
    whole = tuple(max(pair) for pair in extents)
    part = tuple(min(pair) for pair in extents)
    share = max(
        map_linearly(math.prod(dims), 4, IPU2.tiles_per_ipu).most_bytes for dims in (whole, part)
    )
    assert cycles(slice_of(whole, part)) <= 476 + 1 + share / 4 + 288 + share / 8


def test_gradients_of_a_sort_fit_their_tiles() -> None:
    # 4 million single elements: a tile has a part of the sums, and of the elements and indices.
    found = plan_lookup(Lookup(2**22, 1, 2**22, "float32"), SINGLE, True, IPU2)
    assert found.repeats > 1
    assert 0.3 * BOUND < found.temporary_bytes <= BOUND
    assert cycles(found) > 2 * 2**22 * 4 / 1472 / 4  # every element and index comes once


def test_large_lookups_fit_their_tiles() -> None:
    found = plan_lookup(Lookup(32_000, 1024, 65_536, "float32"), SINGLE, False, IPU2)
    assert found.temporary_bytes <= BOUND
    small = plan_lookup(Lookup(32_000, 1024, 512, "float32"), SINGLE, False, IPU2)
    assert small.repeats == 1
    assert cycles(small) < cycles(found)


def test_temporaries_of_a_lookup_by_hand() -> None:
    # Two tiles and one row: each takes half of 8 indices, and half of the 16 bytes from the other,
    # in one pass; a scatter has its 4 rows of updates of 16 bytes beside these.
    pair = dc.replace(IPU2, tiles_per_ipu=2)
    read = plan_lookup(Lookup(1, 4, 8, "float32"), LookupWorker(0, 1000, 0), False, pair)
    assert read.temporary_bytes == 4 * 4 + 16 / 2
    written = plan_lookup(Lookup(1, 4, 8, "float32"), LookupWorker(0, 1000, 0), True, pair)
    assert written.temporary_bytes == 4 * 4 + 16 / 2 + 4 * 16


def rows_of(groups: int, extent: int, count: int) -> Cost:
    """The cost of `jnp.take_along_axis` of so many rows, each with so many indices."""

    def lookup(x: jax.Array, indices: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x, indices, -1, mode="promise_in_bounds")

    shapes = ((groups, extent), "float16"), ((groups, count), "uint32")
    closed = jax.make_jaxpr(lookup)(*(jax.ShapeDtypeStruct(*one) for one in shapes))
    (call,) = closed.eqns
    gather = next(e for e in call.params["jaxpr"].eqns if e.primitive.name == "gather")
    x, indices = Shape((groups, extent), "float16"), Shape((groups, count, 1), "uint32")
    params = ("dimension_numbers", gather.params["dimension_numbers"])
    op = Operation("gather", (x, indices), (Shape((groups, count), "float16"),), (params,))
    return cost_of_operation(op, IPU2)


def test_a_row_that_is_looked_up_by_itself_stays_on_its_tile() -> None:
    # On each of 1472 tiles one row of 96 and 60 indices, ten for each worker.
    found = rows_of(1472, 96, 60)
    (phase,) = found.phases
    assert phase.compute == pytest.approx(6 * (30 + 10 * (19 + 2)), abs=30)
    assert phase.exchange_bytes == 60 * 4  # the indices
    assert found.vertices[0].tiles == 1472
    # Twice the rows are two on each tile.
    twice = rows_of(2944, 96, 60).phases[0]
    assert twice.compute == pytest.approx(6 * (30 + 20 * (19 + 2)), abs=30)


def test_few_rows_that_are_looked_up_by_themselves_take_all_tiles() -> None:
    assert cycles(rows_of(2, 4096, 4096)) < cycles(rows_of(64, 4096, 4096))
    assert rows_of(2, 4096, 4096).vertices[0].tiles > 736


def test_the_smallest_is_taken_if_nothing_fits() -> None:
    tiny = dc.replace(IPU2, bytes_per_tile=16, reserved_bytes=0)
    found = plan_lookup(Lookup(10, 2, 5, "float32"), SINGLE, True, tiny)
    assert found.temporary_bytes == 8 + 4  # an index and its row


@given(
    st.integers(1, 10**6),
    st.integers(1, 2000),
    st.integers(1, 10**6),
    st.sampled_from(["float16", "float32"]),
    st.booleans(),
)
def test_all_lookups_fit(rows: int, row: int, count: int, dtype: str, writes: bool) -> None:
    found = plan_lookup(Lookup(rows, row, count, dtype), SINGLE, writes, IPU2)
    assert found.temporary_bytes <= BOUND
    more = plan_lookup(Lookup(rows, row, 4 * count, dtype), SINGLE, writes, IPU2)
    assert cycles(more) >= 0.95 * cycles(found)


@pytest.mark.parametrize("writes", [False, True])
def test_more_memory_is_never_slower(writes: bool) -> None:
    lookup = Lookup(2**20, 2, 2**20, "float32")
    sizes = (65_536, 262_144, 638_976, 2**30)
    found = [
        plan_lookup(lookup, SINGLE, writes, dc.replace(IPU2, bytes_per_tile=size)) for size in sizes
    ]
    assert sorted(map(cycles, found), reverse=True) == list(map(cycles, found))
    assert found[-1].repeats == 1
