"""poputil: mappings by their definition, views, and names of vertices."""

from __future__ import annotations

import numpy as np
import pytest

from ipujax import poplar
from ipujax.poplar import popops, poputil, program
from tests.ipujax.poplar.building_graphs import add_tensor, make_graph

TILES = 1472


def sizes_of(mapping: list[list[poplar.Interval]]) -> list[int]:
    return [sum(interval.size() for interval in tile) for tile in mapping]


@pytest.mark.parametrize("elements", [1, 31, 33, 64, 1000, 47_104, 50_001])
@pytest.mark.parametrize("type", [poplar.FLOAT, poplar.HALF], ids=lambda each: each.name)
def test_grains_are_spread_as_evenly_as_they_can_be(elements: int, type: poplar.Type) -> None:
    graph = make_graph()
    tensor = graph.addVariable(type, [elements], "t")
    poputil.mapTensorLinearly(graph, tensor)
    mapping = graph.getTileMapping(tensor)
    per_grain = 8 // type.size
    grains, used = -(-elements // per_grain), sum(bool(tile) for tile in mapping)
    for tile in range(used):
        begin, end = (g * grains // used * per_grain for g in (tile, tile + 1))
        assert mapping[tile] == [poplar.Interval(begin, min(end, elements))]
    assert not any(mapping[used:])
    assert used == 1 or elements * type.size // used >= 128 or used == TILES


def test_the_least_of_a_tile_its_grain_and_the_first_tile_can_be_given() -> None:
    graph = make_graph()
    tensor = graph.addVariable(poplar.FLOAT, [40], "t")
    poputil.mapTensorLinearly(graph, tensor, 4, 4)
    assert sizes_of(graph.getTileMapping(tensor))[:11] == [4] * 10 + [0]
    assert poputil.mapTensorLinearlyWithOffset(graph, tensor, 8, 4, 1470) == 3
    sizes = sizes_of(graph.getTileMapping(tensor))
    assert sizes[1470:] + sizes[:4] == [8, 8, 8, 8, 8, 0]
    assert graph.getTileMapping(tensor)[1470] == [poplar.Interval(0, 8)]
    assert poputil.mapTensorLinearlyWithOffset(graph, tensor, 5) == 6
    with pytest.raises(poplar.type_error, match="no 2 numbers"):
        poputil.mapTensorLinearlyWithOffset(graph, tensor, 8, 4)
    assert poputil.getTileImbalance([[poplar.Interval(0, 6)], [poplar.Interval(6, 8)]]) == 2


def test_on_a_virtual_graph_tensors_lie_on_its_tiles_alone() -> None:
    graph = make_graph()
    part = graph.createVirtualGraph(100, 110)
    tensor = graph.addVariable(poplar.FLOAT, [64], "t")
    poputil.mapTensorLinearly(part, tensor)
    drawn = popops.reduce(
        part,
        tensor.reshape([32, 2]),
        [1],
        popops.ReduceParams(popops.Operation.ADD),
        program.Sequence(),
    )
    for each, tiles in ((tensor, [100, 101]), (drawn, [100])):
        mapping = graph.getTileMapping(each)
        assert [tile for tile, intervals in enumerate(mapping) if intervals] == tiles


def test_tensors_are_repeated_to_one_shape_without_copies() -> None:
    graph = make_graph()
    row, column = (add_tensor(graph, np.zeros(s, np.float32), "t") for s in ([3], [2, 1]))
    a, b = poputil.broadcastToMatch(row, column)
    assert a.shape() == b.shape() == [2, 3]
    np.testing.assert_array_equal(a.elements, [row.elements] * 2)
    assert poputil.broadcastToMatch(row, [4, 3]).shape() == [4, 3]
    with pytest.raises(poplar.index_error, match="do not match"):
        poputil.broadcastToMatch(row, [4, 2])


def test_names_of_vertices_have_cpps_types() -> None:
    name = poputil.templateVertex("ns::V", poplar.UNSIGNED_INT, 8, True, "float")
    assert name == "ns::V<unsigned int,8,true,float>"
    assert poputil.templateVertex("V") == "V"
