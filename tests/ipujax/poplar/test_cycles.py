"""Cycle counts against reports and sums by hand; graphs within functions of JAX."""

# pyright: reportOperatorIssue=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import poplar
from ipujax.poplar import program
from tests.ipujax.poplar.test_control import add, counting, less


def read_count(device: poplar.Device, engine: poplar.Engine, handle: str) -> int:
    engine.load(device)
    engine.run()
    low, high = engine.readTensor(handle).tolist()
    return low + (high << 32)


def test_a_count_of_a_sequence_is_the_cycles_of_its_report() -> None:
    device, graph, x, _ = counting()
    to = graph.addDeviceToHostFIFO("to", poplar.INT, 3)
    inner = [program.Repeat(5, add(graph, x, 1)), program.Copy(x, to)]
    sequence = program.Sequence(inner)
    alone = poplar.Engine(graph, program.Sequence(inner)).report().cycles
    count = poplar.cycleCount(graph, sequence, 3, poplar.SyncType.INTERNAL, "count")
    assert graph.getTileMapping(count)[3] == [poplar.Interval(0, 2)]
    graph.createHostRead("count", count)
    engine = poplar.Engine(graph, sequence)
    engine.connectStream("to", np.zeros(3, np.int32))
    assert read_count(device, engine, "count") == alone == engine.report().cycles
    engine.run()
    assert engine.readTensor("count")[0] == alone


def test_counts_of_loops_are_what_has_run() -> None:
    device, graph, x, flag = counting()
    one = add(graph, x, 1)
    loop = program.RepeatWhileTrue(less(graph, x, 7, flag), flag, program.Repeat(2, one))
    sequence = program.Sequence([loop])
    count = poplar.cycleCount(graph, sequence, 0)
    graph.createHostRead("count", count)
    # Every superstep: sync 100, launch 11; `add` 31, `less` 6 * 30. x: 0, 2, 4, 6, 8.
    expected = 8 * (111 + 31) + 5 * (111 + 180)
    assert read_count(device, poplar.Engine(graph, sequence), "count") == expected


def test_stamps_differ_by_what_is_between_them() -> None:
    device, graph, x, _ = counting()
    sequence = program.Sequence([add(graph, x, 1)])
    first = poplar.cycleStamp(graph, sequence, 0)
    sequence.add(program.Repeat(3, add(graph, x, 2)))
    second = poplar.cycleStamp(graph, sequence, 0)
    for name, stamp in (("first", first), ("second", second)):
        graph.createHostRead(name, stamp)
    engine = poplar.Engine(graph, sequence)
    assert read_count(device, engine, "first") == 142
    assert engine.readTensor("second")[0] - 142 == 3 * (111 + 32)
    engine.run()
    assert engine.readTensor("first")[0] == 142 * 2 + 3 * 143


# --- within functions of JAX ----------------------------------------------------------------------


@poplar.codelet(cycles=lambda x: 3 * x.size)
def Square(
    x: poplar.Input[poplar.Vector[poplar.FLOAT]], out: poplar.Output[poplar.Vector[poplar.FLOAT]]
):
    return {"out": x * x}


def squares(graph: poplar.Graph, sequence: program.Sequence, x: poplar.Tensor) -> poplar.Tensor:
    y = graph.addVariable(poplar.FLOAT, x.shape(), "y")
    cs = graph.addComputeSet("squares")
    for i in range(x.dim(0)):
        graph.setTileMapping(y[i], 5 + i)
        vertex = graph.addVertex(cs, Square, {"x": x[i], "out": y[i]})
        graph.setTileMapping(vertex, 5 + i)
    sequence.add(program.Execute(cs))
    return y


X = jnp.arange(12.0).reshape(3, 4)


def test_a_call_is_a_function_of_jax() -> None:
    def total(x: jax.Array) -> jax.Array:
        return (poplar.call(squares, x) * jnp.array([1.0, 2, 3, 4])).sum()

    def plain(x: jax.Array) -> jax.Array:
        return (x * x * jnp.array([1.0, 2, 3, 4])).sum()

    for transformed in (lambda f: f, jax.jit, jax.grad, lambda f: ipu.compile(jax.grad(f))):
        np.testing.assert_allclose(transformed(total)(X), transformed(plain)(X))
    both = jnp.stack([X, X + 1])
    np.testing.assert_allclose(jax.vmap(total)(both), jax.vmap(plain)(both))


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_in_a_program_a_call_is_on_its_tiles(engine: str, tmp_path) -> None:
    def run(x: jax.Array) -> jax.Array:
        return poplar.call(squares, jnp.sin(x)).sum()

    compiled = ipu.compile(run, engine=engine)
    np.testing.assert_allclose(compiled(X), (jnp.sin(X) ** 2).sum(), rtol=1e-6)
    lowered = compiled.lower(X)
    (mine,) = [c for c in lowered.report().compute_sets if c.name == "squares"]
    assert mine.tile_cycles.nonzero()[0].tolist() == [5, 6, 7]
    assert mine.tile_cycles.max() == 72
    (moved,) = [e for e in lowered.report().exchanges if e.name == "squares"]
    assert moved.received_bytes.nonzero()[0].tolist() == [5, 6, 7]
    lowered.compile().save(tmp_path / "saved")
    loaded = ipu.load_executable(tmp_path / "saved")
    np.testing.assert_array_equal(loaded(X), compiled(X))


def test_calls_refuse_what_an_engine_refuses() -> None:
    def build_unwritten(graph: poplar.Graph, sequence: Any, x: poplar.Tensor) -> poplar.Tensor:
        return graph.clone(x)

    with pytest.raises(poplar.control_program_error, match="argument0_clone"):
        poplar.call(build_unwritten, X)

    def build_stream(graph: poplar.Graph, sequence: Any, x: poplar.Tensor) -> poplar.Tensor:
        sequence.add(program.Copy(graph.addHostToDeviceFIFO("in", poplar.FLOAT, 12), x.flatten()))
        return x

    with pytest.raises(poplar.graph_connection_error, match="stream 'in'"):
        poplar.call(build_stream, X)
    with pytest.raises(poplar.type_error, match="complex64"):
        poplar.call(squares, X * 1j)
    with pytest.raises(poplar.type_error, match="tensors"):
        poplar.call(lambda graph, sequence, x: 3, X)
