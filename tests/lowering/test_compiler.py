from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowering.compiler
from lowering import Options, ir, lower
from lowering.compiler import count_ipus_and_replicas
from lowering.ground.errors import InternalError, LoweringError, ShardError
from tests.lowering.samples import V, lowered, shard, text_of, trace


@functools.cache
def using(*shards: int) -> Any:
    """A jaxpr with work on these shards."""

    def fn(x):
        for number in shards:
            with shard(number):
                x = x + 1
        return x

    return trace(fn, V)


@pytest.mark.fact("devices.shards_power2", "devices.shards_divide")
@given(st.integers(0, 70), st.integers(1, 64))
def test_devices_are_split_by_the_next_power_of_two(last, num_ipus):
    shards = next(s for s in (2**i for i in range(8)) if s >= last + 1)
    if last >= num_ipus or num_ipus % shards:
        with pytest.raises(ShardError) as error:
            count_ipus_and_replicas(using(last), num_ipus)
        assert isinstance(error.value, LoweringError)
        assert str(num_ipus) in str(error.value)
        assert "auto_select_ipus" in error.value.fix
        assert __file__ in error.value.where
        return
    ipus, replicas = count_ipus_and_replicas(using(last), num_ipus)
    assert ipus == shards
    assert ipus * replicas == num_ipus
    assert math.log2(ipus).is_integer()


@pytest.mark.fact("devices.replication_3shards")
def test_three_shards_take_four_ipus():
    assert count_ipus_and_replicas(using(0, 1, 2), 8) == (4, 2)


@pytest.mark.fact("devices.shards_divide")
def test_six_ipus_are_no_multiple_of_four():
    with pytest.raises(ShardError, match=r"must divide the number of IPUs .* 6"):
        count_ipus_and_replicas(using(3), 6)


@pytest.mark.fact("devices.replication_auto")
def test_one_device_runs_programs_of_several_sizes():
    def sharded(x):
        with shard(1):
            return x + 1

    assert lowered(sharded, V, ipus=4).replicas == 2
    assert lowered(lambda x: x + 1, V, ipus=4).replicas == 4


def test_unsharded_programs_use_one_ipu():
    assert count_ipus_and_replicas(using(), 3) == (1, 3)
    assert count_ipus_and_replicas(using(0), 16) == (1, 16)


def two_layers(x):
    with shard(0):
        h = jnp.tanh(x)
    with shard(1):
        return (h * 2).sum()


def test_dumps_come_pass_by_pass(golden):
    """The Program's levels in full; of jaxprs, whose text is JAX's, the passes' names."""
    dumps: list[str] = []

    def keep(name: str, text: str) -> None:
        assert text
        dumps.append(f"== {name}\n{text if text.startswith('program') else ''}")

    text_of(jax.grad(two_layers), V, on_pass=keep)
    golden("\n".join(dumps))


def test_the_last_dump_is_the_program():
    dumps: dict[str, str] = {}
    program = lowered(two_layers, V, on_pass=dumps.__setitem__)
    assert list(dumps.values())[-1] == ir.to_text(program)


def test_faults_are_one_more_result():
    program = lowered(two_layers, V, catch_overflow=True)
    assert len(program.outputs) == 2
    assert program.describe_aval(program.outputs[-1]) == "int32[]"
    assert {fault.kind for fault in program.faults} == {"overflow"}
    assert all(__file__ in fault.origin for fault in program.faults)


def test_a_broken_promise_comes_with_the_programs_text(monkeypatch):
    def broken(program):
        raise InternalError("a promise")

    monkeypatch.setattr(lowering.compiler, "verify", broken)
    with pytest.raises(InternalError, match="a promise") as error:
        lowered(two_layers, V)
    assert "copy ipu 0 -> ipu 1" in "".join(error.value.__notes__)


def test_lowering_is_pure():
    closed = trace(two_layers, V)
    before = str(closed)
    texts = {ir.to_text(lower(closed, Options(num_ipus=2))) for _ in range(2)}
    assert len(texts) == 1
    assert str(closed) == before
