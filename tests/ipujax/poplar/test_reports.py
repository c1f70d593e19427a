"""Reports of Poplar's programs: bytes and cycles of tiles, against what the mapping says."""

# pyright: reportOperatorIssue=false

from __future__ import annotations

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import poplar
from ipujax.poplar import poplin, poputil, program
from lowering import machine
from tests.ipujax.poplar.test_control import AddValue, add, counting
from tests.ipujax.poplar.test_tutorials import DotProductVertex, SumVertex, make_graph

CODE = ("vertex_code", "vertex_state", "control_code", "exchange_code", "stack")


def product_of_rows(rows: int, cols: int) -> poplar.Engine:
    """Row i is multiplied on tile 2 i; everything else is mapped linearly from tile 0 on."""
    _, graph = make_graph()
    m = graph.addVariable(poplar.FLOAT, [rows, cols], "m")
    x = graph.addVariable(poplar.FLOAT, [cols], "x")
    y = graph.addVariable(poplar.FLOAT, [rows], "y")
    scale = graph.addConstant(poplar.FLOAT, [cols], 2.0, "scale")
    for t in (m, x, y):
        poputil.mapTensorLinearly(graph, t)
    graph.setTileMapping(scale, 9)
    cs = graph.addComputeSet("mul")
    for i in range(rows):
        v = graph.addVertex(cs, DotProductVertex, {"a": m[i], "b": x, "out": y[i]})
        graph.setTileMapping(v, 2 * i)
        graph.setPerfEstimate(v, 20, 2 * cols)
    steps = program.Sequence()
    steps.add(program.Copy(scale, x))
    steps.add(program.Execute(cs))
    return poplar.Engine(graph, steps)


def test_memory_holds_what_is_mapped_and_copies_of_remote_operands() -> None:
    rows, cols = 4, 32
    report = product_of_rows(rows, cols).report()
    memory, categories = report.memory, report.memory.tile_categories
    variables = np.zeros(1472, int)
    variables[:4] += 4 * cols  # m: 32 elements a tile
    variables[0] += 4 * cols + 4 * rows
    np.testing.assert_array_equal(categories["variables"][0], variables)
    assert categories["constants"][0].nonzero()[0].tolist() == [9]
    # Tile 0 has its row, x and y; tile 2 needs row 1 and x, and makes y[1] for tile 0.
    needed = {2 * i: 4 * (cols * (2 if i else 0) + (1 if i else 0)) for i in range(rows)}
    copies = categories["temporaries"][0]
    assert {tile: int(copies[tile]) for tile in needed} == needed
    assert copies.sum() == sum(needed.values())
    assert not categories["activations"].any()
    code = sum(categories[name] for name in CODE)
    np.testing.assert_array_equal(
        memory.tile_peak_bytes,
        code + sum(categories[n] for n in ("variables", "constants")) + copies,
    )
    assert memory.peak_bytes[0] == sum(memory.by_category.values())
    assert memory.fits
    assert categories["vertex_state"][0].nonzero()[0].tolist() == [0, 2, 4, 6]
    assert {t.path for t in report.liveness[0].tensors} == {"m", "x", "y", "scale"}
    assert memory.biggest[0].path == "m"
    assert str(report)


def test_a_tile_over_its_limit_is_named() -> None:
    _, graph = make_graph()
    big = graph.addVariable(poplar.FLOAT, [200_000], "big")
    graph.setTileMapping(big, 77)
    small = graph.addVariable(poplar.FLOAT, [100], "small")
    graph.setTileMapping(small, 77)
    copy = program.Copy(small, big.slice(0, 100))
    with pytest.raises(poplar.graph_memory_allocation_error, match=r"tile 77 .*'big' 800,000") as e:
        poplar.Engine(graph, copy)
    assert "'small' 400" in str(e.value)
    engine = poplar.Engine(graph, copy, {"debug.allowOutOfMemory": "true"})
    memory = engine.report().memory
    assert not memory.fits
    assert memory.worst == (0, 77)
    # The same tensor over all tiles fits.
    poputil.mapTensorLinearly(graph, big)
    assert poplar.Engine(graph, copy).report().memory.fits


def test_remote_operands_count_for_the_limit() -> None:
    _, graph = make_graph()
    x = graph.addVariable(poplar.FLOAT, [170_000], "x")
    y = graph.addVariable(poplar.FLOAT, [1], "y")
    poputil.mapTensorLinearly(graph, x)
    graph.setTileMapping(y, 3)
    cs = graph.addComputeSet("all")
    graph.setTileMapping(graph.addVertex(cs, SumVertex, {"in": x, "out": y[0]}), 3)
    with pytest.raises(poplar.graph_memory_allocation_error, match=r"tile 3 .* for 'all'"):
        poplar.Engine(graph, program.Execute(cs))


def test_compute_sets_and_exchanges_add_up_to_the_cycles() -> None:
    report = product_of_rows(4, 32).report()
    (mul,) = report.compute_sets
    assert mul.name == "mul"
    assert mul.tile_cycles[:8].tolist() == [120, 0] * 4
    assert mul.cycles == 120 + 11 + report.target.sync_cycles
    to_x, operands, results = report.exchanges
    assert to_x.received_bytes.nonzero()[0].tolist() == [0]
    assert to_x.sent_bytes[9] == 128
    assert operands.name == results.name == "mul"
    # Row i goes to tile 2 i; x goes from tile 0 to three tiles, and is sent once.
    assert operands.received_bytes[:7].tolist() == [0, 0, 256, 0, 256, 0, 256]
    assert operands.sent_bytes[:5].tolist() == [128, 128, 128, 128, 0]
    assert results.sent_bytes[:7].tolist() == [0, 0, 4, 0, 4, 0, 4]
    assert results.received_bytes[0] == 12
    exchanged = sum(e.cycles * e.runs for e in report.exchanges)
    # The copy and the results' exchange have a sync each, without vertices.
    assert report.cycles == mul.cycles + exchanged + 2 * report.target.sync_cycles
    assert report.default_share == 0
    (operation,) = [o for o in report.operations if o.flops]
    assert "test_reports.py" in operation.origin
    assert len({o.origin for o in report.operations}) == 2  # the copy's line, and the execution's
    assert operation.flops == 4 * 64


@pytest.mark.parametrize("kind", ["Vertex", "MultiVertex"])
def test_cycles_that_nobody_says_are_the_planners(kind: str) -> None:
    @poplar.codelet(kind=kind)
    def Square(x: poplar.InOut[poplar.Vector[poplar.FLOAT]]):
        return {"x": x * x}

    found = []
    for size in (60, 600):
        _, graph = make_graph()
        x = graph.addVariable(poplar.FLOAT, [size], "x")
        graph.setTileMapping(x, 0)
        graph.setInitialValue(x, 1)
        cs = graph.addComputeSet("squares")
        graph.setTileMapping(graph.addVertex(cs, Square, {"x": x}), 0)
        engine = poplar.Engine(graph, program.Execute(cs))
        assert engine.report().default_share == 1
        found.append(int(engine.report().compute_sets[0].tile_cycles[0]))
        # What the planner says of it in an ordinary program, on one tile.
        chip = ipu.targets.Target(**{**vars_of(ipu.targets.IPU2), "tiles_per_ipu": 1})
        alone = ipu.compile(lambda x: x * x).lower(jnp.ones(size)).report(chip)
        tile = max(c.tile_cycles.max() for c in alone.compute_sets)
        assert found[-1] == (6 * tile if kind == "Vertex" else tile)
        graph.registerPerfEstimator("Square", lambda x: 7 * x.size)
        said = poplar.Engine(graph, program.Execute(cs)).report()
        assert said.compute_sets[0].tile_cycles[0] == (42 if kind == "Vertex" else 7) * size
        assert said.default_share == 0
    assert found[1] > 3 * found[0]


def vars_of(target: ipu.targets.Target) -> dict:
    return {name: getattr(target, name) for name in target.__dataclass_fields__}


def test_host_copies_are_steps_of_the_host_in_loops_too() -> None:
    _, graph, x, _ = counting()
    to = graph.addHostToDeviceFIFO("to", poplar.INT, 3)
    back = graph.addDeviceToHostFIFO("back", poplar.INT, 3)
    body = [program.Copy(to, x), add(graph, x, 5), program.Copy(x, back)]
    report = poplar.Engine(graph, program.Repeat(4, program.Sequence(body))).report()
    assert [step.kind for step in report.steps].count("host") == 8
    assert report.busy_cycles["host"][0] > 0
    assert not report.exchanges


def test_ordinary_programs_list_compute_sets_and_exchanges() -> None:
    def chain(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 5, lambda _, x: jnp.tanh(x @ w), x).sum()

    report = ipu.compile(chain).lower(jnp.ones((64, 512)), jnp.ones((512, 512))).report()
    sets, exchanges = report.compute_sets, report.exchanges
    by_name = {each.name: each for each in sets}
    assert by_name["tanh/Tanh"].runs == 5
    total = sum(each.cycles * each.runs for each in (*sets, *exchanges))
    assert total == report.cycles
    busy = report.busy_cycles
    assert sum(each.cycles * each.runs for each in exchanges) == busy["exchange"][0]
    assert all(each.vertices.shape == each.tile_cycles.shape == (1472,) for each in sets)
    tanh = next(o for o in report.operations if o.name.startswith("tanh"))
    assert (by_name["tanh/Tanh"].vertices > 0).sum() == tanh.tiles


def test_reports_go_into_files(tmp_path) -> None:
    report = product_of_rows(4, 32).report()
    report.to_json(tmp_path / "report.json")
    report.to_html(tmp_path / "report.html")
    report.to_perfetto(tmp_path / "trace.json")
    again = ipu.report.load(tmp_path / "report.json")
    np.testing.assert_array_equal(again.memory.tile_peak_bytes, report.memory.tile_peak_bytes)
    for given, kept in zip(report.compute_sets, again.compute_sets, strict=True):
        assert (given.name, given.runs, given.cycles) == (kept.name, kept.runs, kept.cycles)
        np.testing.assert_array_equal(given.tile_cycles, kept.tile_cycles)
    for given, kept in zip(report.exchanges, again.exchanges, strict=True):
        assert (given.name, given.runs, given.cycles) == (kept.name, kept.runs, kept.cycles)
        np.testing.assert_array_equal(given.sent_bytes, kept.sent_bytes)
        np.testing.assert_array_equal(given.received_bytes, kept.received_bytes)
    assert again.exchanges
    assert "mul" in (tmp_path / "trace.json").read_text()


def test_pages_and_traces_have_what_each_tile_does(tmp_path) -> None:
    _, graph = make_graph()
    x = graph.addVariable(poplar.INT, [60], "x")
    cs = graph.addComputeSet("uneven")
    graph.setInitialValue(x, 0)
    bounds = [0, 10, 30, 60]
    for tile, (begin, end) in enumerate(itertools.pairwise(bounds)):
        vertex = graph.addVertex(cs, AddValue, {"x": x.slice(begin, end), "by": 0})
        graph.setTileMapping(vertex, tile)
        graph.setTileMapping(x.slice(begin, end), 2 if tile == 0 else tile)
    report = poplar.Engine(graph, program.Repeat(4, program.Execute(cs))).report()
    activity = report.tile_activity
    assert activity is not None
    (totals,) = activity.totals
    assert totals.cycles[:4].tolist() == [4 * 100, 4 * 200, 4 * 300, 0]
    assert totals.received_bytes[:3].tolist() == [4 * 40, 0, 4 * 40]
    assert totals.sent_bytes[:3].tolist() == [4 * 40, 0, 4 * 40]
    written = report.to_dict()["tile_activity"]
    assert written["compute_sets"][0]["tile_cycles"] == [[100, 1], [200, 1], [300, 1], [0, 1469]]
    again = ipu.report.Report.from_dict(report.to_dict())
    assert again.to_dict()["tile_activity"] == written
    report.to_perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    found = [e["args"] for e in events if "vertices" in e.get("args", {})]
    assert len(found) == 1  # the four runs are one slice, one after the other
    assert found[0]["vertices"] == found[0]["tiles"] == 3
    assert found[0]["cycles of the busiest tile"] == 300
    assert found[0]["mean cycles of its tiles"] == 200


def test_of_many_steps_those_that_take_most_are_kept_tile_by_tile() -> None:
    def steps() -> list[machine.ComputeSet]:
        one = np.ones(5, np.int64)
        return [machine.ComputeSet(f"{i}", i % 2, one, 2, i * one, 10 + i) for i in range(300)]

    activity = machine.sum_tile_activity(steps(), [], 2, 5)
    assert [each.name for each in activity.compute_sets] == [str(i) for i in range(200, 300)]
    even = 2 * sum(range(0, 300, 2))
    assert [each.cycles.tolist() for each in activity.totals] == [[even] * 5, [even + 300] * 5]


def test_plain_vertex_of_a_multi_vertex_has_the_tile_alone() -> None:
    _, graph = make_graph()
    x = graph.addVariable(poplar.INT, [6], "x")
    graph.setTileMapping(x, 0)
    graph.setInitialValue(x, 0)
    cs = graph.addComputeSet("two")
    for i in range(2):
        v = graph.addVertex(cs, AddValue, {"x": x.slice(3 * i, 3 * i + 3), "by": 1})
        graph.setTileMapping(v, 0)
    report = poplar.Engine(graph, program.Execute(cs)).report()
    assert report.compute_sets[0].tile_cycles[0] == 2 * 31


def test_the_work_space_of_a_planned_product_counts() -> None:
    """As much as that of the same product in an ordinary program, beside the variables."""
    _, graph = make_graph()
    shapes = {"a": [256, 512], "b": [512, 384]}
    a, b = (graph.addVariable(poplar.HALF, shape, name) for name, shape in shapes.items())
    for tensor in (a, b):
        poputil.mapTensorLinearly(graph, tensor)
        graph.setInitialValue(tensor, 1)
    steps = program.Sequence()
    poplin.matMul(graph, a, b, steps)
    memory = poplar.Engine(graph, steps).report().memory
    half = (jax.ShapeDtypeStruct(shape, jnp.float16) for shape in shapes.values())

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.matmul(a, b, preferred_element_type=jnp.float32).astype(jnp.float16)

    ordinary = ipu.compile(product).lower(*half).report().memory
    found = memory.tile_categories["temporaries"].sum()
    assert found == pytest.approx(ordinary.tile_categories["temporaries"].sum(), rel=0.02)
    assert found > 10 * memory.tile_categories["variables"].sum()
    largest_step = sum(bytes_.sum() for bytes_ in memory.tile_categories.values())
    assert memory.peak_bytes.sum() == largest_step
