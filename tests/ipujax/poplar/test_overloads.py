"""Overloads of C++'s API go by type, in the order of its arguments."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from ipujax import poplar
from ipujax.poplar import popnn, popops, poputil, program
from ipujax.poplar.popops import padding
from tests.ipujax.poplar.building_graphs import add_tensor, make_engine, make_graph, run

FLOAT, INTERVAL = poplar.FLOAT, poplar.Interval
VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def make_pod(ipus: int = 2, tiles: int = 8) -> poplar.Graph:
    model = poplar.IPUModel()
    model.numIPUs, model.tilesPerIPU = ipus, tiles
    return poplar.Graph(model.createDevice().getTarget())


def test_a_variable_may_be_mapped_when_it_is_added() -> None:
    graph = make_graph()
    linear = poplar.VariableMappingMethod.LINEAR
    tensor = graph.addVariable(FLOAT, [100], linear, "t")
    other = graph.addVariable(FLOAT, [100], "other")
    poputil.mapTensorLinearly(graph, other)
    assert graph.getTileMapping(tensor) == graph.getTileMapping(other)
    assert tensor.name == "t"
    assert graph.addVariable(FLOAT, [1], linear).shape() == [1]


def test_a_mapping_is_complete_unless_it_need_not_be() -> None:
    graph = make_graph()
    tensor = graph.addVariable(FLOAT, [4], "half mapped")
    graph.setTileMapping(tensor.slice(0, 2), 3)
    with pytest.raises(poplar.invalid_tile_mapping, match="element 2 of tensor 'half mapped'"):
        graph.getTileMapping(tensor)
    assert graph.getTileMapping(tensor, False)[3] == [INTERVAL(0, 2)]
    part = graph.createVirtualGraph(8)
    graph.setTileMapping(tensor, 8)
    with pytest.raises(poplar.invalid_tile_mapping, match="tile 8"):
        part.getTileMapping(tensor)
    assert not any(part.getTileMapping(tensor, True, True))


def test_clones_may_have_another_type_and_keep_what_is_one_element() -> None:
    graph = make_graph()
    tensor = add_tensor(graph, VALUES[0], "t", 5)
    half = graph.clone(poplar.HALF, tensor, "half")
    assert (half.elementType(), half.name) == (poplar.HALF, "half")
    assert graph.getTileMapping(half) == graph.getTileMapping(tensor)
    twice = tensor.broadcast(2, 0)
    keeps = poplar.TensorCloneMethod.PRESERVE_ORDER_AND_ALIASES
    for method, count in ((keeps, 4), (poplar.TensorCloneMethod.CREATE_NEW_ORDER, 8)):
        clone = graph.clone(twice, "clone", method)
        assert clone.shape() == [8]
        assert len({*clone.elements.tolist()}) == count
    with pytest.raises(poplar.type_error, match="tensor"):
        graph.clone(poplar.HALF, "t")


def test_pairs_are_intervals() -> None:
    graph = make_graph()
    tensor = graph.addVariable(FLOAT, [3, 4], "t")
    graph.setTileMapping(tensor, [[[0, 4]], [], [(4, 12)]])
    assert graph.getTileMapping(tensor)[2] == [INTERVAL(4, 12)]
    assert tensor.slice([1, 3]).shape() == [2, 4]
    assert tensor.slice([1, 3], 1).shape() == tensor.slice(INTERVAL(1, 3), 1).shape() == [3, 2]
    one, two = tensor.slices([[0, 1], [1, 4]], 1)
    assert (one.shape(), two.shape()) == ([3, 1], [3, 3])
    (joined,) = tensor.slices([[[0, 1], [2, 4]]], 1)
    assert joined.shape() == [3, 3]
    with pytest.raises(poplar.type_error, match="is no interval"):
        graph.setTileMapping(tensor, [[[1, 2, 3]]])


def test_streams_take_the_mode_of_replicas_and_options() -> None:
    graph = make_graph()
    tensor = add_tensor(graph, VALUES, "t")
    mode = poplar.ReplicatedStreamMode.BROADCAST
    stream = graph.addHostToDeviceFIFO("in", FLOAT, 12, mode, {"bufferingDepth": "2"})
    back = graph.addDeviceToHostFIFO("out", FLOAT, 12, {"bufferingDepth": "2"})
    copies = program.Sequence([program.Copy(stream, tensor), program.Copy(tensor, back)])
    engine, out = make_engine(graph, copies), np.zeros(12, np.float32)
    engine.connectStream("in", VALUES + 1)
    engine.connectStream("out", out)
    engine.run(0)
    np.testing.assert_array_equal(out, VALUES.ravel() + 1)
    with pytest.raises(poplar.type_error, match="replicatedMode"):
        graph.addHostToDeviceFIFO("other", FLOAT, 12, {})


def test_callbacks_may_be_objects() -> None:
    class Fill(poplar.StreamCallback):
        completed = 0

        def prefetch(self, data: np.ndarray) -> poplar.StreamCallback.Result:
            return poplar.StreamCallback.Result.NotAvailable

        def fetch(self, data: np.ndarray) -> None:
            data[:] = self.completed

        def complete(self) -> None:
            self.completed += 1

    class Collect(Fill):
        transfers: ClassVar[list[list[int]]] = []

        def fetch(self, data: np.ndarray) -> None:
            self.transfers.append(data.tolist())

    graph, fill, collect = make_graph(), Fill(), Collect()
    tensor = add_tensor(graph, np.zeros(2, np.int32), "t")
    stream = graph.addHostToDeviceFIFO("in", poplar.INT, 2)
    back = graph.addDeviceToHostFIFO("out", poplar.INT, 2)
    copies = program.Sequence([program.Copy(stream, tensor), program.Copy(tensor, back)])
    engine = make_engine(graph, program.Repeat(3, copies))
    engine.connectStreamToCallback("in", fill)
    engine.connectStreamToCallback("out", collect)
    engine.run(0)
    assert collect.transfers == [[0, 0], [1, 1], [2, 2]]
    assert (fill.completed, collect.completed) == (3, 3)
    with pytest.raises(poplar.type_error, match="callback"):
        engine.connectStreamToCallback("in", object())


def test_a_virtual_graph_of_a_number_of_tiles_has_them_of_each_ipu() -> None:
    graph = make_pod()
    part = graph.createVirtualGraph(3)
    target = part.getTarget()
    assert (target.getNumTiles(), target.getNumIPUs(), target.getTilesPerIPU()) == (6, 2, 3)
    tensor = part.addVariable(FLOAT, [6], "t")
    part.setTileMapping(tensor, [[[i, i + 1]] for i in range(6)])
    tiles = [n for n, parts in enumerate(graph.getTileMapping(tensor)) if parts]
    assert tiles == [0, 1, 2, 8, 9, 10]
    chosen = graph.createVirtualGraph([7, 5])
    chosen.setTileMapping(tensor, 2)
    assert graph.getTileMapping(tensor)[15] == [INTERVAL(0, 6)]
    with pytest.raises(poplar.invalid_tile_mapping, match="tile 8 of each IPU"):
        graph.createVirtualGraph([8])


def test_linear_mappings_go_from_a_tile_on_up_or_down() -> None:
    graph = make_pod(1, 8)
    tensor = graph.addVariable(FLOAT, [96], "t")  # three tiles of 128 bytes
    poputil.mapTensorLinearlyWithOffset(graph, tensor, 1, False)
    mapping = graph.getTileMapping(tensor)
    assert [mapping[n] for n in (6, 5, 4)] == [
        [INTERVAL(0, 32)],
        [INTERVAL(32, 64)],
        [INTERVAL(64, 96)],
    ]
    assert poputil.calcLinearTileMapping(graph, tensor, 1, False) == mapping
    assert poputil.calcLinearTileMapping(graph.getTarget(), [2, 48], FLOAT, 1, False) == mapping
    assert poputil.calcLinearTileMapping(graph, [96], 32, 2, 1, False) == mapping
    poputil.mapTensorLinearlyWithOffset(graph, tensor)
    assert graph.getTileMapping(tensor)[0] == [INTERVAL(0, 32)]
    assert poputil.getTileImbalance(graph, tensor) == 32 - 12
    assert poputil.getTileImbalance(graph.getTileMapping(tensor), 20, 8) == 12
    with pytest.raises(poplar.type_error, match="no type"):
        poputil.calcLinearTileMapping(graph, [96])


def test_imbalance_is_beyond_an_even_share_and_not_beyond_grains_of_one() -> None:
    mapping = [[INTERVAL(0, 12)], [INTERVAL(12, 20)], [INTERVAL(20, 28)], [INTERVAL(28, 36)]]
    assert poputil.getTileImbalance(mapping, 0, 8) == 12 - 9


def test_reductions_take_an_operation_or_what_is_in_braces() -> None:
    graph, prog = make_graph(), program.Sequence()
    tensor = add_tensor(graph, VALUES, "t")
    total, largest = popops.Operation.ADD, popops.Operation.MAX
    sums = popops.reduce(graph, tensor, [0], total, prog)
    highest = popops.reduce(graph, tensor, FLOAT, [1], [largest], prog, "max", {})
    outputs: list[poplar.Tensor] = []
    reductions = [
        popops.SingleReduceOp(tensor, [0], [total], FLOAT, "typed"),
        popops.SingleReduceOp(tensor, [1], total, "named"),
    ]
    popops.reduceMany(graph, reductions, outputs, prog, "many", {})
    popops.reduceWithOutput(graph, tensor, sums, [0], [total, True], prog, "again", {})
    results = run(graph, prog, sums, highest, *outputs)
    for got, wanted in zip(
        results, (2 * VALUES.sum(0), VALUES.max(1), VALUES.sum(0), VALUES.sum(1)), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


def test_a_reduction_gives_compute_sets_to_execute() -> None:
    graph, sets = make_graph(), list[poplar.ComputeSet]()
    tensor = add_tensor(graph, VALUES, "t", 7)
    out = add_tensor(graph, np.zeros(VALUES.shape[1], np.float32), "out", 3)
    popops.reduceWithOutput(graph, tensor, out, [0], popops.Operation.ADD, sets, "sums")
    total = popops.reduce(graph, tensor, FLOAT, [0, 1], popops.Operation.ADD, sets)
    prog = program.Sequence([program.Execute(each) for each in sets])
    got = run(graph, prog, out, total)
    np.testing.assert_allclose(got[0], VALUES.sum(0), rtol=1e-6)
    np.testing.assert_allclose(got[1], VALUES.sum(), rtol=1e-6)
    with pytest.raises(poplar.graph_object_creation_error, match="PopLibs"):
        graph.addVertex(sets[0], "Any")


def test_padding_goes_by_dimension_number_tensor_and_type() -> None:
    graph, prog = make_graph(), program.Sequence()
    tensor = add_tensor(graph, VALUES, "t", 7)
    seven = add_tensor(graph, np.float32(7), "seven", 3)
    edge = popops.pad(graph, tensor, [1, 0], [0, 2], 0.0, padding.MappingMethod.EDGE)
    padded = {
        "dimension": (popops.pad(graph, tensor, 1, 2, 1), ((0, 0), (1, 2)), {}),
        "number": (
            popops.pad(graph, tensor, 2, 0, 0, 5.0),
            ((2, 0), (0, 0)),
            {"constant_values": 5},
        ),
        "tensor": (
            popops.pad(graph, tensor, 0, 1, dim=0, val=seven),
            ((0, 1), (0, 0)),
            {"constant_values": 7},
        ),
        "edge": (
            popops.pad(tensor, [1, 2], [0, 1], padding.Type.EDGE),
            ((1, 0), (2, 1)),
            {"mode": "edge"},
        ),
        "reflect": (
            popops.pad(tensor, 1, 1, 1, padding.Type.REFLECT),
            ((0, 0), (1, 1)),
            {"mode": "reflect"},
        ),
        "mapped": (edge, ((1, 0), (0, 2)), {}),
    }
    cut = popops.pad(graph, tensor, [-1, 1], [0, -2])
    tensors = [view for view, *_ in padded.values()]
    copies = [graph.clone(view) for view in (*tensors, cut)]
    for source, copy in zip((*tensors, cut), copies, strict=True):
        prog.add(program.Copy(source, copy))
    *results, cut_values = run(graph, prog, *copies)
    for got, (name, (_, widths, how)) in zip(results, padded.items(), strict=True):
        np.testing.assert_array_equal(got, np.pad(VALUES, widths, **how), err_msg=name)
    np.testing.assert_array_equal(cut_values, np.pad(VALUES[1:, :2], ((0, 0), (1, 0))))
    assert {n for n, parts in enumerate(graph.getTileMapping(edge)) if parts} == {7}
    assert graph.getTileMapping(tensors[0])[0]  # C++'s default: on tile 0
    with pytest.raises(poplar.index_error, match="dimension 2"):
        popops.pad(graph, tensor, 1, 1, 2)


def test_loops_count_unsigned_from_bounds_or_from_0() -> None:
    graph, prog = make_graph(), program.Sequence()
    total = add_tensor(graph, np.zeros(1, np.uint32), "total")
    signed = add_tensor(graph, np.int32(0), "signed")
    limit = add_tensor(graph, np.int32(7), "limit")

    def add(counter: poplar.Tensor) -> program.Sequence:
        steps = program.Sequence()
        popops.addInPlace(graph, total, counter, steps)
        return steps

    prog.add(popops.countedLoop(graph, 2, 10, 3, add))
    prog.add(popops.countedLoop(graph, 4, add, "four"))
    count = graph.addVariable(poplar.INT, [], poplar.VariableMappingMethod.LINEAR, "count")
    steps = program.Sequence()
    popops.addInPlace(graph, signed, count, steps)
    prog.add(popops.countedForLoop(graph, count, 1, limit, 2, steps))
    prog.add(popops.countedForLoop(graph, 5, limit, 1, program.Sequence(), "empty"))
    sums, signed_sum = run(graph, prog, total, signed)
    assert (sums[0], signed_sum) == ((2 + 5 + 8) + (0 + 1 + 2 + 3), 1 + 3 + 5)
    for bounds in ((4, 2, 1), (0, 4, 0), (0, 4, -1)):
        with pytest.raises(poplar.poplar_error):
            popops.countedLoop(graph, *bounds, add)


def test_keys_bring_values_with_them() -> None:
    graph, prog = make_graph(), program.Sequence()
    keys = add_tensor(graph, np.array([[3, 1, 2]], np.float32), "keys")
    values = add_tensor(graph, np.array([[30, 10, 20]], np.int32), "values")
    params = popops.TopKParams(2, True, popops.SortOrder.DESCENDING, True)
    top = popops.topKKeyValue(graph, prog, keys, values, params, "top")
    popops.sortKeyValueInPlace(graph, keys, values, 1, prog)
    results = run(graph, prog, *top, keys, values)
    wanted = ([[3, 2]], [[30, 20]], [[1, 2, 3]], [[10, 20, 30]])
    assert [each.tolist() for each in results] == [*wanted]
    with pytest.raises(poplar.index_error, match="equal shapes"):
        popops.topKKeyValue(graph, prog, keys, values.slice(0, 2, 1), params)


def test_slices_and_gathers_take_plans_and_options() -> None:
    graph, prog = make_graph(), program.Sequence()
    tensor = add_tensor(graph, VALUES, "t")
    rows = add_tensor(graph, np.array([[2], [0]], np.uint32), "rows")
    plan, options = popops.SlicePlan(), {"usedForSlice": "true"}
    slices = popops.multiSlice(graph, tensor, rows, [0], [1], prog, plan, options, "slices")
    part = popops.dynamicSlice(graph, tensor, rows[0], [0], [1], prog, "part", options)
    drawn = popops.gather(graph, tensor, rows.flatten(), 0, prog, popops.GatherParams(), "drawn")
    results = run(graph, prog, slices, part, drawn)
    np.testing.assert_array_equal(results[0][:, 0], VALUES[[2, 0]])
    np.testing.assert_array_equal(results[1], VALUES[2:])
    np.testing.assert_array_equal(results[2], VALUES[[2, 0]])


def test_gradients_of_norms_whiten_activations_where_they_get_their_mean() -> None:
    graph, prog = make_graph(), program.Sequence()
    generator = np.random.default_rng(0)
    acts, grads = (
        add_tensor(graph, generator.normal(size=(4, 2, 3)).astype(np.float32), name)
        for name in ("acts", "grads")
    )
    gamma, beta = (add_tensor(graph, np.array(v, np.float32), "p") for v in ([2, 3], [1, 0]))
    bn = popnn.bn
    mean, deviation = bn.batchNormStatistics(graph, acts, 1e-3, prog, False)
    norm, white = bn.batchNormalise(graph, acts, gamma, beta, mean, deviation, prog)
    short = bn.batchNormGradients(graph, white, grads, deviation, gamma, prog, FLOAT, "short")
    full = bn.batchNormGradients(graph, acts, grads, mean, deviation, gamma, prog, FLOAT, "full")
    of_white = bn.batchNormParamGradients(graph, white, grads, prog)
    of_acts = bn.batchNormParamGradients(graph, acts, grads, mean, deviation, prog)
    factor = popops.mul(graph, gamma, deviation, prog)
    addend = popops.sub(graph, beta, popops.mul(graph, mean, factor, prog), prog)
    combined = bn.batchNormalise(graph, acts, factor, addend, prog)
    results = run(graph, prog, short, full, *of_white, *of_acts, norm, combined)
    for got, wanted in ((0, 1), (2, 4), (3, 5), (6, 7)):
        np.testing.assert_allclose(results[got], results[wanted], rtol=1e-5, atol=1e-5)


def test_sizes_of_poolings_and_of_vectors_are_told() -> None:
    kind = popnn.pooling.PoolingType.MAX
    params = popnn.pooling.PoolParams(kind, [7, 6], [3, 2], [2, 2], [1, 0], [0, -1], 1, 1, FLOAT)
    assert params.getOutputFieldShape() == [3, 2]
    assert params.getNumFieldDims() == 2
    target = make_graph().getTarget()
    assert (target.getFloatVectorWidth(), target.getHalfVectorWidth()) == (2, 4)
    assert target.getMemoryBytes() == 1472 * 624 * 1024


@pytest.mark.parametrize("value", [0, 1, 2, 9])
def test_what_decides_on_branches_is_no_compute_set(value: int) -> None:
    graph = make_graph()
    control = add_tensor(graph, np.int32(value), "control", 0)
    result = add_tensor(graph, np.float32(0), "result", 0)
    bodies = []
    for number in (1.0, 2.0, 3.0):
        steps = program.Sequence()
        popops.addInPlace(graph, result, number, steps, f"add {number:.0f}")
        bodies.append(steps)
    switch = program.Switch(control, [(0, bodies[0]), (1, bodies[1])], bodies[2])
    (got,) = run(graph, program.Sequence([switch, program.If(control, *bodies[:2])]), result)
    assert got == {0: 1 + 2, 1: 2 + 1}.get(value, 3 + 1)
    report = make_engine(graph, switch).report()
    assert [each.name for each in report.compute_sets] == ["add 1/add"]
    assert report.cycles == report.compute_sets[0].cycles
