from __future__ import annotations

import dataclasses as dc
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
from lowering.ground import InternalError, LoweringError, ShardError
from lowering.jaxprs import ClosedJaxpr
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


@given(st.integers(0, 20), st.integers(1, 64))
def test_meshes_are_split_by_the_next_power_of_two_or_by_the_shards(last, num_ipus):
    power = 1 << last.bit_length()
    if last >= num_ipus or (num_ipus % power and num_ipus % (last + 1)):
        with pytest.raises(ShardError, match=f"{num_ipus}"):
            count_ipus_and_replicas(using(last), num_ipus, on_meshes=True)
        return
    ipus, replicas = count_ipus_and_replicas(using(last), num_ipus, on_meshes=True)
    assert ipus == (last + 1 if num_ipus % power else power)
    assert ipus * replicas == num_ipus


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
    monkeypatch.setattr(lowering.compiler, "insert_copies", lambda program: program)
    with pytest.raises(InternalError, match="reads %0 on ipu 0: not there") as error:
        lowered(two_layers, V)
    (note,) = error.value.__notes__
    assert note.startswith("after pass `insert_copies`:\nprogram")


@pytest.mark.parametrize("name", ["keep_small_values_on_tiles", "drop_dead", "insert_checks"])
def test_the_pass_that_breaks_a_jaxpr_is_named(name, monkeypatch):
    original = getattr(lowering.compiler, name)

    def drop_first_equation(closed: ClosedJaxpr) -> ClosedJaxpr:
        return ClosedJaxpr(closed.jaxpr.replace(eqns=closed.jaxpr.eqns[1:]), closed.consts)

    def broken_pass(*args):
        result = original(*args)
        if isinstance(result, tuple):
            return drop_first_equation(result[0]), *result[1:]
        return drop_first_equation(result)

    monkeypatch.setattr(lowering.compiler, name, broken_pass)
    with pytest.raises(InternalError, match="nothing before it binds") as error:
        lowered(two_layers, V)
    (note,) = error.value.__notes__
    assert note.startswith(f"after pass `{name}`:\n{{ lambda ;")


def test_the_pass_that_breaks_a_program_without_copies_is_named(monkeypatch):
    def drop_first_step(program: ir.Program) -> ir.Program:
        return dc.replace(program, body=ir.Sequence(program.body.steps[1:]))

    monkeypatch.setattr(lowering.compiler, "load_late", drop_first_step)
    drop_first_step.__name__ = "load_late"
    with pytest.raises(InternalError, match="before it is written") as error:
        lowered(two_layers, V)
    assert error.value.__notes__[0].startswith("after pass `load_late`:\nprogram")


def test_a_program_that_a_pass_leaves_is_not_verified_again(monkeypatch):
    verified: list[tuple[str, ir.Program, bool]] = []

    def record(name: str, program: ir.Program, *, has_copies: bool) -> None:
        verified.append((name, program, has_copies))

    monkeypatch.setattr(lowering.compiler, "verify_after_pass", record)
    lowered(lambda x: x + 1, V)
    names = [name for name, _, _ in verified]
    assert names[0] == "partition"
    assert "keep_loop_variables_stored" not in names
    assert len({(id(program), has_copies) for _, program, has_copies in verified}) == len(names)


def test_lowering_is_pure():
    closed = trace(two_layers, V)
    before = str(closed)
    texts = {ir.to_text(lower(closed, Options(num_ipus=2))) for _ in range(2)}
    assert len(texts) == 1
    assert str(closed) == before
