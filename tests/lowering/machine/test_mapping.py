"""Linear mappings against their promises, and against examples computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.machine import map_evenly, map_linearly

elements_ = st.integers(0, 5_000) | st.integers(0, 50_000_000)
element_bytes_ = st.sampled_from([1, 2, 4, 8])
tiles_ = st.integers(1, 1472)
minimums = st.integers(1, 1024)
grains = st.none() | st.integers(1, 64)


@given(elements_, element_bytes_, tiles_, minimums, grains)
def test_every_element_once_and_evenly(
    elements: int, element_bytes: int, tiles: int, minimum: int, grain: int | None
) -> None:
    mapping = map_linearly(elements, element_bytes, tiles, minimum_bytes=minimum, grain=grain)
    pieces = list(mapping.pieces())
    assert len(pieces) == mapping.used <= tiles
    assert [piece.tile for piece in pieces] == list(range(mapping.used))
    assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces)][:-1]
    assert (pieces[-1].stop if pieces else 0) == elements
    sizes = [piece.stop - piece.start for piece in pieces]
    assert min(sizes, default=1) > 0
    for piece in pieces[:-1]:
        assert piece.stop % mapping.grain == 0
    in_grains = [math.ceil(size / mapping.grain) for size in sizes]
    assert max(in_grains, default=0) - min(in_grains, default=0) <= 1
    assert max(sizes, default=0) == mapping.most_elements
    assert mapping.bytes_per_tile().sum() == mapping.total_bytes
    assert mapping.bytes_per_tile().max() == mapping.most_bytes


@given(elements_, element_bytes_, tiles_, minimums, grains)
def test_the_original_formula(
    elements: int, element_bytes: int, tiles: int, minimum: int, grain: int | None
) -> None:
    g = grain or max(1, 8 // element_bytes)
    total = math.ceil(elements / g)
    fewest = math.ceil(math.ceil(minimum / element_bytes) / g)
    mapping = map_linearly(elements, element_bytes, tiles, minimum_bytes=minimum, grain=grain)
    if not total:
        assert mapping.used == 0
        return
    most = max(math.ceil(total / tiles), math.ceil(total / max(1, total // fewest)))
    assert mapping.used == math.ceil(total / most)
    assert mapping.bounds().tolist() == [
        min(elements, i * total // mapping.used * g) for i in range(mapping.used + 1)
    ]


@given(st.integers(1, 100_000), element_bytes_, tiles_, minimums)
def test_tiles_have_the_minimum_or_share_it(
    elements: int, element_bytes: int, tiles: int, minimum: int
) -> None:
    mapping = map_linearly(elements, element_bytes, tiles, minimum_bytes=minimum)
    fewest = math.ceil(math.ceil(minimum / element_bytes) / mapping.grain)
    grains_in_all = math.ceil(elements / mapping.grain)
    # No tile of the most even split has less, but for the tensor that is smaller than that.
    assert math.ceil(grains_in_all / mapping.used) >= min(fewest, grains_in_all)
    if grains_in_all < fewest:
        assert mapping.used == 1


@pytest.mark.parametrize(
    ("elements", "element_bytes", "tiles", "used", "most"),
    [
        (0, 4, 1472, 0, 0),
        (1, 4, 1472, 1, 1),
        (32, 4, 1472, 1, 32),  # 128 bytes: one tile
        (62, 4, 1472, 1, 62),  # 31 grains of two: not enough for two times 16
        (63, 4, 1472, 2, 32),  # 32 grains, the last of them not full
        (17, 1, 2, 1, 17),
        (64, 4, 1472, 2, 32),
        (100, 4, 1472, 3, 34),  # 50 grains of two, 17 at most
        (64, 2, 1472, 1, 64),
        (1024 * 1024, 2, 1472, 1465, 716),  # 262,144 grains of four, 179 at most
        (1024 * 1024, 4, 1216, 1214, 864),  # 524,288 grains of two, 432 at most
        (1472 * 64, 4, 1472, 1472, 64),
    ],
)
def test_examples(elements: int, element_bytes: int, tiles: int, used: int, most: int) -> None:
    mapping = map_linearly(elements, element_bytes, tiles)
    assert (mapping.used, mapping.most_elements) == (used, most)


def test_a_mapping_starts_where_it_is_moved_to_and_wraps_around() -> None:
    mapping = map_linearly(96, 4, 4).start_at_tile(6)
    assert [piece.tile for piece in mapping.pieces()] == [2, 3, 0]
    assert mapping.bytes_per_tile().tolist() == [128, 0, 128, 128]


@given(st.integers(0, 10_000), element_bytes_, st.integers(1, 64), st.integers(1, 64))
def test_spread_uses_what_it_is_given(
    elements: int, element_bytes: int, used: int, more: int
) -> None:
    mapping = map_evenly(elements, element_bytes, used, used + more, first_tile=more, layout="plan")
    assert mapping.layout == "plan"
    assert mapping.used == min(used, math.ceil(elements / mapping.grain))
    held = mapping.bytes_per_tile()
    assert held.sum() == elements * element_bytes
    assert np.count_nonzero(held) == mapping.used
