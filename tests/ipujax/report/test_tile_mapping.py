from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import TargetError, TileMappingError
from tests.ipujax.reporting import configured, f32, struct


def lowered(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return ipu.compile(fn).lower(*args, **kwargs)


def test_arguments_are_spread_by_the_rule_of_linear_mapping() -> None:
    # poputil: grains of 64 bits (2 floats), at least 128 bytes (16 grains) on a tile that has any:
    # 500 grains on 500 // 16 = 31 tiles are 17 at most, which 30 tiles hold.
    mapping = ipu.tile_mapping(lowered(lambda x: x + 1, struct(1000)), "args[0]")
    assert mapping.layout == "linear"
    assert (mapping.value, mapping.name, mapping.ipu) == (0, "float32[1000]", 0)
    held = [own for own in mapping.intervals if own]
    assert len(mapping.intervals) == len(mapping.bytes_per_tile) == 1472
    assert len(held) == 30
    assert all(start % 2 == stop % 2 == 0 for ((start, stop),) in held)
    assert max(stop - start for ((start, stop),) in held) == 34
    elements = sorted(i for ((start, stop),) in held for i in range(start, stop))
    assert elements == list(range(1000))
    assert mapping.bytes_per_tile.sum() == 4000
    assert "30 of 1472 tiles, linear" in repr(mapping)
    assert "tile 0: [0, 3" in str(mapping)
    assert "and 22 more tiles" in str(mapping)


def test_values_have_numbers_and_paths() -> None:
    def model(params: Any, x: Any, *, scale: Any) -> Any:
        return {"y": x * scale + params["w"]}, x

    program = lowered(model, {"w": struct(64)}, struct(64), scale=struct(64))
    executable = program.compile()
    numbers = [
        ipu.tile_mapping(executable, name).value
        for name in ("args[0]['w']", "args[1]", "kwargs['scale']", "results[0]['y']")
    ]
    assert numbers[:3] == [0, 1, 2]
    assert numbers[3] == program.program.outputs[0]
    assert ipu.tile_mapping(program, "%1") == ipu.tile_mapping(program, 1)
    assert ipu.tile_mapping(program, 'args[0]["w"]').value == 0
    quoted = lowered(lambda x: x["a'b"] + 1, {"a'b": struct(64)})
    assert ipu.tile_mapping(quoted, """args[0]["a'b"]""").value == 0


def test_planned_layouts_show_bytes_and_not_elements() -> None:
    program = lowered(lambda x, y: x @ y, struct(256, 256), struct(256, 256))
    mapping = ipu.tile_mapping(program, "args[1]")
    assert mapping.layout != "linear"
    _, note, first, *_ = str(mapping).splitlines()
    assert note == "  laid out by a plan: how many bytes on each tile, not which elements"
    tile, own = next((i, own) for i, own in enumerate(mapping.bytes_per_tile) if own)
    assert first == f"  tile {tile}: {own:,} bytes"


def test_static_arguments_keep_their_positions() -> None:
    run = ipu.compile(lambda n, x: x * n, static_argnums=0)
    program = run.lower(3, struct(8))
    assert ipu.tile_mapping(program, "args[1]").value == 0
    assert ipu.tile_mapping(program, "results").name == "float32[8]"
    with pytest.raises(TileMappingError, match=r"no value 'args\[0\]'\n  fix:   use one of args"):
        ipu.tile_mapping(program, "args[0]")


def test_values_on_several_ipus_need_one_to_be_named() -> None:
    configured(2)

    def model(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            y = x + 1
        with ipu.scopes.ipu_shard(1):
            return jnp.sin(y) * x

    program = lowered(model, struct(256))
    with pytest.raises(
        TileMappingError, match=r"\(args\[0\]\) is on IPUs 0, 1\n  fix:   say which, with"
    ):
        ipu.tile_mapping(program, "args[0]")
    assert [ipu.tile_mapping(program, "args[0]", ipu=i).ipu for i in (0, 1)] == [0, 1]
    assert ipu.tile_mapping(program, "results").ipu == 1
    with pytest.raises(TileMappingError, match="is on IPU 1, not on IPU 0"):
        ipu.tile_mapping(program, "results", 0)


def test_the_target_can_be_chosen() -> None:
    program = lowered(lambda x: x + 1, struct(100_000))
    assert len(ipu.tile_mapping(program, 0, target="ipu1").intervals) == 1216
    with pytest.raises(TargetError, match="no chip 'ipu9'"):
        ipu.tile_mapping(program, 0, target="ipu9")


@pytest.mark.parametrize("value", [-1, 99, "%99", "x", "", None, 1.5, True])
def test_what_is_no_value_is_an_error(value: Any) -> None:
    with pytest.raises(TileMappingError, match=r"value"):
        ipu.tile_mapping(lowered(lambda x: x + 1, struct(8)), value)


def test_values_that_stay_on_the_host_have_no_tiles() -> None:
    program = lowered(lambda x, unused: x + 1, struct(8), struct(8))
    with pytest.raises(TileMappingError, match=r"%1 \(args\[1\]\) is on no IPU"):
        ipu.tile_mapping(program, "args[1]")


def test_only_programs_have_mappings() -> None:
    with pytest.raises(TileMappingError, match=r"takes a program.*\n  fix: .*lower"):
        ipu.tile_mapping(ipu.compile(lambda x: x), np.ones(3, f32))


def test_compute_sets_are_on_the_tiles_of_what_another_ipu_has_made() -> None:
    """Results on the second IPU lie as their operands do, which begin behind one another."""

    def fn(x: Any, y: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            x, y = jnp.exp(x), jnp.exp(y)
        with ipu.scopes.ipu_shard(1):
            return jnp.tanh(x), jnp.sin(y)

    configured(2)
    sets = ipu.compile(fn).lower(struct(4000), struct(3000)).report().compute_sets
    first, second, third, fourth = (np.nonzero(each.vertices)[0].tolist() for each in sets)
    assert [each.ipu for each in sets] == [0, 0, 1, 1]
    assert (third, fourth) == (first, second)
    assert second[0] == first[-1] + 1
