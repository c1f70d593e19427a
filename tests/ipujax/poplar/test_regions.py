"""Intervals of tensors: those that follow each other in memory, and shares of workers."""

# pyright: reportOperatorIssue=false

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from ipujax import poplar
from ipujax.poplar import poputil, program
from tests.ipujax.poplar.building_graphs import add_tensor, make_engine, make_graph

Interval = poplar.Interval


def test_regions_are_shared_out_as_poplibs_does() -> None:
    # The regions of the comment in PopLibs' Util.cpp, 11 grains of 4: 2, 3, 3 and 3 of them.
    regions = [Interval(0, 10), Interval(15, 20), Interval(33, 60)]
    assert poputil.splitRegions(regions, 4, 8, 6) == [
        [Interval(0, 8)],
        [Interval(8, 10), Interval(15, 20), Interval(33, 38)],
        [Interval(38, 50)],
        [Interval(50, 60)],
    ]
    assert poputil.splitRegions([], 4, 8) == []


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.sampled(4)
def test_workers_get_all_elements_in_whole_grains(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bounds = np.sort(rng.choice(2000, 2 * rng.integers(1, 9), replace=False)).tolist()
    regions = [Interval(a, b) for a, b in zip(bounds[::2], bounds[1::2], strict=True)]
    grain, target = int(rng.integers(1, 9)), make_graph().getTarget()
    shares = poputil.splitRegionsBetweenWorkers(target, regions, grain)
    flat = [i for share in shares for each in share for i in range(each.begin(), each.end())]
    assert flat == [i for each in regions for i in range(each.begin(), each.end())]
    sizes = [sum(each.size() for each in share) for share in shares]
    grains = -(-len(flat) // grain)
    assert len(shares) <= 6
    assert all(size % grain == 0 for size in sizes[:-1])
    assert max(-(-size // grain) for size in sizes) == -(-grains // 6)
    # As lists of intervals that follow each other they are cut at the same places.
    lists = poputil.splitRegionsBetweenWorkers(target, [regions], grain)
    assert [each for (each,) in lists] == shares


def test_regions_are_sorted_by_their_place_in_memory() -> None:
    graph = make_graph()
    t = graph.addVariable(poplar.FLOAT, [4, 6], "t")
    whole = [Interval(0, 24)]
    assert graph.getSortedContiguousRegions(t, whole) == [whole]
    turned = t.transpose()
    (found,) = graph.getSortedContiguousRegions(turned, whole)
    order = [i for each in found for i in range(each.begin(), each.end())]
    np.testing.assert_array_equal(turned.flatten().elements[order], np.arange(24))
    rows = graph.getSortedContiguousRegions(t.slice(0, 2, 1), [Interval(2, 8)])
    assert rows == [[Interval(each, each + 2)] for each in (2, 4, 6)]
    twice = t[0].broadcast(2, 0)
    first = graph.getSortedContiguousRegions(twice, [Interval(0, 12)], removeAliasedIntervals=True)
    assert first == [[Interval(0, 6)]]
    assert graph.getSortedContiguousRegions(t, []) == []


@poplar.codelet(cycles=lambda x: x.size)
def AddNumber(
    x: poplar.Input[poplar.Vector[poplar.FLOAT]],
    number: poplar.Input[poplar.FLOAT],
    y: poplar.Output[poplar.Vector[poplar.FLOAT]],
):
    return {"y": x + number}


def test_a_vertex_for_each_worker_of_each_tile_and_numbers_for_inputs() -> None:
    """The loop of custom operations: over tiles, contiguous regions, and workers."""
    graph, values = make_graph(), np.arange(3000, dtype=np.float32).reshape(50, 60)
    t = add_tensor(graph, values, "t")
    out = graph.clone(t, "out")
    cs = graph.addComputeSet("add")
    for tile, intervals in enumerate(graph.getTileMapping(t)):
        regions = graph.getSortedContiguousRegions(t, intervals)
        for share in poputil.splitRegionsBetweenWorkers(graph.getTarget(), regions, 2):
            x, y = (poplar.concat(each.flatten().slices(share)) for each in (t, out))
            vertex = graph.addVertex(cs, AddNumber, {"x": x, "number": 0.5, "y": y})
            graph.setTileMapping(vertex, tile)
    graph.createHostRead("out", out)
    engine = make_engine(graph, cs)
    engine.run()
    np.testing.assert_array_equal(engine.readTensor("out"), values + 0.5)
    report = engine.report()
    assert report.compute_sets[0].vertices[0] == 6
    assert not report.exchanges
    constants = report.memory.tile_categories["constants"][0]
    assert constants[0] == 6 * 4
    assert constants.sum() == 4 * len(cs.vertices)


@poplar.codelet(cycles=lambda y: y.size)
def GiveScale(scale: float, y: poplar.Output[poplar.Vector[poplar.FLOAT]]):
    return {"y": jnp.broadcast_to(jnp.asarray(scale, y.dtype), y.shape)}


def test_what_an_array_holds_when_it_is_given_counts() -> None:
    """Programs in C++ fill one buffer again and again."""
    graph, buffer, scale = make_graph(), np.ones(4, np.float32), np.ones(1, np.float32)
    constant = graph.addConstant(poplar.FLOAT, [4], buffer)
    variable = graph.addVariable(poplar.FLOAT, [4], "variable")
    graph.setInitialValue(variable, buffer)
    y = graph.addVariable(poplar.FLOAT, [1], "y")
    cs = graph.addComputeSet("cs")
    vertex = graph.addVertex(cs, GiveScale, {"scale": scale, "y": y})
    for each in (constant, variable, y, vertex):
        graph.setTileMapping(each, 0)
    buffer[:] = scale[:] = 7
    for name, each in (("constant", constant), ("variable", variable), ("y", y)):
        graph.createHostRead(name, each)
    engine = make_engine(graph, cs)
    engine.run()
    for name in ("constant", "variable", "y"):
        assert set(engine.readTensor(name).tolist()) == {1.0}


def test_a_copy_on_another_ipu_has_its_tiles_there() -> None:
    model = poplar.IPUModel()
    model.numIPUs = 2
    device = model.createDevice().createVirtualDevice(8)
    graph, steps = poplar.Graph(device), program.Sequence()
    assert graph.getTarget().getNumTiles() == 16
    t = graph.addVariable(poplar.FLOAT, [6], "t")
    graph.setInitialValue(t, np.arange(6))
    for i in range(6):
        graph.setTileMapping(t[i], i)
    there = poputil.copyToIpu(graph, t, steps, 1)
    again = poputil.duplicate(graph, there, steps)
    for each in (there, again):
        mapped = [n for n, tile in enumerate(graph.getTileMapping(each)) if tile]
        assert mapped == [8, 9, 10, 11, 12, 13]
    graph.createHostRead("again", again)
    engine = poplar.Engine(graph, steps)
    engine.loadAndRun(device)
    np.testing.assert_array_equal(engine.readTensor("again"), np.arange(6))
    with pytest.raises(poplar.index_error, match="there is no IPU 2"):
        poputil.cloneToIpu(graph, t, 2)
    with pytest.raises(poplar.poplar_error, match="8 tiles each"):
        device.createVirtualDevice(9)
