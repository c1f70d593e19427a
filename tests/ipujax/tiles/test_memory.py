"""The memory of values on tiles: where the user put them, all that live at once, and its limit."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import tiles
from tests.ipujax.tiles.test_placing import report_of

T = (7, 9)
ROWS = np.ones((2, 3000), np.float32)
ROW = 12_000  # bytes


def double(row: jax.Array) -> jax.Array:
    return row * 2


def chain(x: jax.Array) -> Any:
    first = tiles.put_sharded(x, T)
    second = tiles.map(double, first)
    third = tiles.map(double, second)
    return tiles.map(lambda a, b, c: a + b + c, first, second, third)


def held_by_hand(report: Any) -> dict[str, np.ndarray]:
    """The bytes on tiles of what a program holds by hand, by the user's names."""
    return {
        tensor.path: tensor.mapping.bytes_per_tile()
        for tensor in report.profile.liveness[0].tensors
        if getattr(tensor.mapping, "by_hand", None) is not None
    }


def test_values_lie_where_the_user_has_put_them() -> None:
    for bytes_ in held_by_hand(report_of(chain, ROWS)).values():
        assert dict(zip(*np.nonzero(bytes_), bytes_[list(T)], strict=True)) == {7: ROW, 9: ROW}


def test_what_lives_at_once_adds_up() -> None:
    report = report_of(chain, ROWS)
    assert report.memory.tile_categories["activations"][0, [6, 7, 8, 9]].tolist() == [
        0,
        4 * ROW,
        0,
        4 * ROW,
    ]
    data = report.memory.tile_categories["constants"] + report.memory.tile_categories["temporaries"]
    assert not data.any()

    def one_after_the_other(x: jax.Array) -> Any:
        value = tiles.put_sharded(x, T)
        for _ in range(3):
            value = tiles.map(double, value)
        return value.array

    activations = report_of(one_after_the_other, ROWS).memory.tile_categories["activations"]
    assert activations[0, 7] == 2 * ROW


def test_states_and_loop_variables_stay_in_place() -> None:
    @tiles.vertex(state=("memory",))
    def accumulate(memory: jax.Array, x: jax.Array) -> Any:
        return x.sum(), memory + x

    def run(x: jax.Array) -> Any:
        memory = tiles.put_sharded(x, T)
        total, memory = tiles.map(accumulate, memory, tiles.put_replicated(x[0], T))
        return total, memory

    activations = report_of(run, ROWS).memory.tile_categories["activations"]
    assert activations[0, 7] == 2 * ROW + 4  # what is put there, and a sum

    def loop(x: jax.Array) -> Any:
        return jax.lax.fori_loop(0, 4, lambda _, y: tiles.map(double, y), tiles.put_sharded(x, T))

    report = report_of(loop, ROWS)
    assert report.memory.tile_categories["activations"][0, [7, 8]].tolist() == [2 * ROW, 0]


def test_arguments_on_tiles_lie_there() -> None:
    report = report_of(lambda x: tiles.map(double, x), tiles.TileArray(ROWS, T))
    assert report.memory.tile_categories["variables"][0, [7, 8, 9]].tolist() == [ROW, 0, ROW]
    assert not report.exchanges


def test_copies_of_remote_data_lie_on_the_tiles_of_vertices() -> None:
    matrix = np.ones((30, 30), np.float32)

    def run(x: jax.Array, m: jax.Array) -> Any:
        return tiles.map(lambda row, m: row @ m, tiles.put_sharded(x, T), m)

    report = report_of(run, ROWS[:, :30], matrix)
    (exchange,) = [each for each in report.exchanges if each.name == "<lambda>"]
    copies = held_by_hand(report)["copies of remote data for <lambda>"]
    np.testing.assert_array_equal(copies, exchange.received_bytes)
    assert min(copies[7], copies[9]) > 3400  # of 3 600; some lies there already


def test_what_planned_operations_compute_is_spread_over_all_tiles() -> None:
    def run(x: jax.Array) -> Any:
        return jnp.sin(tiles.put_sharded(x, T).array)

    report = report_of(run, ROWS)
    (spread,) = [
        each for each in report.profile.liveness[0].tensors if each.path.startswith("results")
    ]
    assert spread.mapping.bytes_per_tile().max() < 200
    moved = [step for step in report.steps if step.kind == "exchange" and "sin" in step.name]
    assert moved[0].cycles >= ROW / 8  # the two tiles send their rows


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_a_tile_over_its_limit_is_an_error(engine: Any) -> None:
    limit = report_of(chain, ROWS).memory.limit
    few = int(limit // (4 * 4)) // 2 * 2  # four rows of so many numbers just fit
    run = ipu.compile(chain, engine=engine)
    run.lower(np.zeros((2, few), np.float32)).compile()
    x = np.zeros((2, few + 8), np.float32)
    with pytest.raises(ipu.errors.OutOfMemoryError) as caught:
        run(x)
    text = str(caught.value)
    assert "tile 7 of IPU 0" in text
    assert "'put_sharded' float32" in text
    assert "test_memory.py:28" in text
    with mock.patch.dict(
        os.environ, {"POPLAR_ENGINE_OPTIONS": '{"debug.allowOutOfMemory": "true"}'}
    ):
        np.testing.assert_array_equal(run(x).array, x)
    assert jax.jit(chain)(x).tiles == T  # outside of compiled code there are no tiles


def test_the_error_names_a_line_where_an_argument_is_on_tiles_too() -> None:
    rows = tiles.TileArray(np.zeros((2, 100_000), np.float32), T)
    with pytest.raises(ipu.errors.OutOfMemoryError) as caught:
        ipu.compile(lambda x: tiles.map(double, x))(rows)
    (where,) = [line for line in str(caught.value).splitlines() if "where:" in line]
    assert "test_memory.py:" in where


def test_a_chip_of_fewer_tiles_is_an_error() -> None:
    def run(x: jax.Array) -> Any:
        return tiles.put_sharded(x, (0, 1300)).array

    lowered = ipu.compile(run).lower(ROWS)
    with pytest.raises(ValueError, match="tile 1300, and programs have 1216"):
        lowered.report("ipu1")


def test_tiles_beside_those_for_input_and_output() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.io_tiles.num_io_tiles = 32
    config.io_tiles.place_ops_on_io_tiles = True
    config.configure_ipu_system()
    many = np.ones((2, 100_000), np.float32)
    with pytest.raises(ipu.errors.OutOfMemoryError, match="tile 7 of IPU 0"):
        ipu.compile(chain)(many)
    held = held_by_hand(report_of(chain, ROWS))["put_sharded"]
    assert (held.size, held[7], held[9]) == (1472, ROW, ROW)
