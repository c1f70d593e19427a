"""Memory and liveness in a report's file: written and read, they are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.report import Report
from ipujax.report.presentation.document.forms import StringTable
from ipujax.report.presentation.document.runs import decode_repeats
from ipujax.report.presentation.document.sections import LIVENESS, MEMORY
from lowering import machine
from lowering.machine import map_linearly
from tests.ipujax.reporting import configured, struct, training
from tests.ipujax.small_report import small_report


def plain() -> Report:
    configured()
    return ipu.compile(lambda x: jnp.tanh(x) @ x).lower(struct(64, 64)).report()


def pipelined() -> Report:
    configured(2)
    model, args = training(2, 8)
    return ipu.compile(model).lower(*args).report()


def offloaded() -> Report:
    configured(2, io_tiles__num_io_tiles=8)
    model, args = training(2, 4, offload_weight_update_variables=True)
    return ipu.compile(model).lower(*args).report()


def nothing() -> Report:
    configured()
    return ipu.compile(lambda: ()).lower().report()


def full() -> Report:
    configured(ipu_model__tiles_per_ipu=1)
    return ipu.compile(lambda x: x + 1).lower(struct(200_000)).report()


REPORTS = [small_report, plain, pipelined, offloaded, nothing, full]


@pytest.fixture(params=REPORTS, ids=lambda make: make.__name__)
def report(request: pytest.FixtureRequest) -> Report:
    make: Callable[[], Report] = request.param
    return make()


def through_json(section: Any, value: Any) -> tuple[Any, Any]:
    """What a section writes, and what it reads from that."""
    strings = StringTable()
    data = json.loads(json.dumps(section.encode(value, strings), allow_nan=False))
    return data, section.decode(data, strings.texts)


def same(left: Any, right: Any) -> None:
    for name, value in left.items():
        np.testing.assert_array_equal(right[name], value)
    assert set(left) == set(right)


def test_memory_comes_back(report: Report) -> None:
    before = report.memory
    _, after = through_json(MEMORY, before)
    for name in ("tile_peak_bytes", "always_live_bytes", "peak_bytes", "remote_bytes"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    for name in ("limit", "most_code_bytes", "code_limit", "biggest", "fits", "missing_bytes"):
        assert getattr(after, name) == getattr(before, name)
    assert after.worst == before.worst
    same(before.tile_categories, after.tile_categories)
    same(before.ipu_categories, after.ipu_categories)
    assert after.by_category == before.by_category


def test_memory_says_what_it_is(report: Report) -> None:
    data, _ = through_json(MEMORY, report.memory)
    for ipu_, held in enumerate(data["tile_categories"]):
        for name, bytes_ in report.memory.tile_categories.items():
            assert (name in held) == bool(bytes_[ipu_].any())
            if name in held:
                np.testing.assert_array_equal(decode_repeats(held[name]), bytes_[ipu_])
    assert data["by_category"] == dict(report.memory.by_category)
    assert sum(map(sum, data["ipu_categories"].values())) == sum(data["peak_bytes"])
    assert data["fits"] == (data["missing_bytes"] == 0)


def fields(tensor: machine.Lifetime) -> tuple[Any, ...]:
    return (
        *(tensor.name, tensor.category, tensor.operation, tensor.origin),
        *(tensor.first, tensor.last, tensor.value, tensor.total_bytes),
        tensor.mapping.bytes_per_tile().tolist(),
    )


def test_liveness_comes_back(report: Report) -> None:
    before = report.liveness
    data, after = through_json(LIVENESS, before)
    assert len(after) == len(before) == report.num_ipus
    for one, other in zip(before, after, strict=True):
        assert tuple(other.names) == tuple(one.names)
        assert tuple(other.origins) == tuple(one.origins)
        np.testing.assert_array_equal(other.bytes, one.bytes)
        np.testing.assert_array_equal(other.temporary_bytes, one.temporary_bytes)
        assert list(map(fields, other.tensors)) == list(map(fields, one.tensors))
        assert other.worst == one.worst
    assert through_json(LIVENESS, after)[0] == data


def test_equal_mappings_are_written_once(report: Report) -> None:
    data, _ = through_json(LIVENESS, report.liveness)
    for held in data:
        assert len({json.dumps(mapping) for mapping in held["mappings"]}) == len(held["mappings"])
        for number, bytes_ in zip(
            held["tensors"]["mapping"], held["tensors"]["bytes"], strict=True
        ):
            assert decode_repeats(held["mappings"][number]).sum() == bytes_


def test_tiles_of_input_and_output_hold_nothing() -> None:
    report = offloaded()
    tiles = report.target.tiles_per_ipu
    for held in report.liveness:
        for tensor in held.tensors:
            bytes_ = tensor.mapping.bytes_per_tile()
            assert len(bytes_) == tiles
            assert not bytes_[-8:].any()


def change(data: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((0, "steps", "name"), [0]),
        ((0, "steps", "bytes"), []),
        ((0, "tensors", "first"), []),
        ((0, "tensors", "mapping"), [99, 99, 99]),
        ((0, "tensors", "name"), [10**6] * 3),
    ],
)
def test_broken_liveness_is_an_error(path: tuple[Any, ...], value: Any) -> None:
    strings = StringTable()
    data = LIVENESS.encode(small_report().liveness, strings)
    change(data, path, value)
    with pytest.raises((ValueError, LookupError)):
        LIVENESS.decode(data, strings.texts)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("tile_categories",), [{}]),
        (("tile_categories", 0, "variables"), [[1, 3]]),
        (("tile_categories", 0, "cheese"), [[1, 2]]),
        (("tile_peak_bytes",), [[[1, 2]], [[1, 3]]]),
        (("tile_peak_bytes",), []),
    ],
)
def test_broken_memory_is_an_error(path: tuple[Any, ...], value: Any) -> None:
    data = MEMORY.encode(small_report().memory, StringTable())
    change(data, path, value)
    with pytest.raises((ValueError, LookupError)):
        MEMORY.decode(data, [])


@pytest.mark.exhaustive
def test_many_steps_and_tensors() -> None:
    """A hundred thousand of each are written and read, and the worst is found."""
    count = 100_000
    mapping = map_linearly(64, 4, 2)
    names = tuple(f"add float32[{i % 100}]" for i in range(count))
    held = machine.Liveness(
        names=names,
        origins=("model.py:7",) * count,
        operations=(0,) * count,
        bytes=np.arange(count) * 4,
        temporary_bytes=np.zeros(count, dtype=np.int64),
        tensors=tuple(
            machine.Lifetime(
                name="float32[64]",
                category="activations",
                operation="add",
                origin="model.py:7",
                mapping=mapping,
                first=i,
                last=min(i + 3, count - 1),
            )
            for i in range(count)
        ),
    )
    _, (after,) = through_json(LIVENESS, (held,))
    assert after.names == names
    assert [tensor.first for tensor in after.alive_at(after.worst)] == list(range(count - 4, count))
