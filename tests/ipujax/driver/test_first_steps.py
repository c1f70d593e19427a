"""What a new user tries first, right and wrong: printing things, keywords, swapped arguments."""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import LoopTypeError, OutOfRangeError, ScopeError, ShardError
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.loops import repeat

HERE = "test_first_steps.py"


def two_shards(x: jax.Array) -> jax.Array:
    with ipu.scopes.ipu_shard(0):
        y = x + 1
    with ipu.scopes.ipu_shard(1):
        return y * 2


def configure(ipus: int) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()


def test_what_things_look_like() -> None:
    configure(4)
    compiled = ipu.compile(two_shards)
    lowered = compiled.lower(1.0)
    assert repr(compiled) == "<ipu.compile of two_shards for /device:IPU:0>"
    program = "Program(two_shards: 2 x 2 IPUs)"
    assert repr(lowered.program) == program
    assert repr(lowered) == f"<Lowered {program} for /device:IPU:0>"
    executable = lowered.compile()
    assert repr(executable) == f"<Executable {program} for /device:IPU:0, engine 'fused'>"


def test_what_queues_look_like() -> None:
    infeed, outfeed = IPUInfeedQueue([1.0]), IPUOutfeedQueue()
    assert repr(infeed) == f"<IPUInfeedQueue {infeed.name}>"
    assert repr(outfeed) == f"<IPUOutfeedQueue {outfeed.name}>"


def test_a_partial_has_the_name_of_its_function() -> None:
    configure(2)
    text = ipu.compile(functools.partial(two_shards)).lower(1.0).as_text()
    assert text.startswith("program two_shards:")


def test_each_attribute_of_a_configuration_is_completed_once() -> None:
    names = dir(ipu.config.IPUConfig())
    assert "auto_select_ipus" in names
    assert len(names) == len(set(names))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_a_static_argument_by_keyword(engine: str) -> None:
    @functools.partial(ipu.compile, static_argnums=(1, 3), engine=engine)
    def copies(x: jax.Array, count: int, scale: float = 2.0, kind: Any = None) -> list[jax.Array]:
        return [x * scale if kind is None else kind(x * scale)] * count

    assert [float(y) for y in copies(1.0, 2)] == [2.0, 2.0]
    assert [float(y) for y in copies(1.0, count=3)] == [2.0, 2.0, 2.0]
    assert [float(y) for y in copies(count=1, x=2.0)] == [4.0]
    assert [float(y) for y in copies(1.0, count=1, kind=lambda y: -y)] == [-2.0]
    assert [float(y) for y in copies(1.0, kind=lambda y: y, scale=5.0, count=1)] == [5.0]
    executable = copies.lower(1.0, count=2).compile()
    assert [float(y) for y in executable(3.0, count=2)] == [6.0, 6.0]


def test_shards_that_are_not_there_name_the_line() -> None:
    with pytest.raises(ShardError) as caught:
        ipu.compile(two_shards)(1.0)
    assert HERE in caught.value.where
    assert "two_shards" in caught.value.where


def test_a_text_for_a_shard_names_the_line() -> None:
    def program(x: jax.Array) -> jax.Array:
        with ipu.scopes.ipu_shard("1"):
            return x

    with pytest.raises(ScopeError, match=rf"where: .*{HERE}"):
        ipu.compile(program)(1.0)


@pytest.mark.parametrize("count", [3.0, "3", None, [3], True])
def test_a_number_of_iterations_that_is_none_is_named(count: Any) -> None:
    with pytest.raises(LoopTypeError) as caught:
        repeat(count, lambda x: x, [1.0])
    assert repr(count) in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: repeat(lambda x: x, 3, [1.0]),
            r"a number of iterations .* an integer",
        ),
        (lambda: repeat(3, [1.0], lambda x: x), r"the body of repeat is \[1.*must be a function"),
    ],
)
def test_arguments_of_repeat_in_another_order(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(LoopTypeError, match=message):
        call()


def test_a_body_that_forgets_to_return() -> None:
    with pytest.raises(LoopTypeError, match="returned nothing"):
        repeat(2, lambda x: None, [1.0])


def test_an_error_of_the_first_run_comes_alone() -> None:
    total = ipu.compile(lambda: repeat(5, lambda s, x: s + x, [0.0], IPUInfeedQueue([1.0] * 3)))
    with pytest.raises(OutOfRangeError) as caught:
        total()
    assert caught.value.__context__ is None


def test_inputs_of_the_original_compile_that_are_no_list() -> None:
    with pytest.raises(TypeError, match=r"type ndarray.* a list or .* a single one is \[x\]"):
        ipu.ipu_compiler.compile(lambda x: x, np.float32([1, 2]))


@pytest.mark.parametrize("tool", ["info", "inventory"])
def test_a_listing_cut_short(tool: str) -> None:
    arguments = ["--list-devices"] if tool == "info" else []
    command = [sys.executable, "-m", f"ipujax.cli.{tool}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # as `head -0` would
        errors = process.stderr.read()
    assert errors == b""


def test_replicas_that_nobody_asked_for_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[str]:
        lines = [r.getMessage() for r in caplog.records if "replicas" in r.getMessage()]
        caplog.clear()
        return lines

    caplog.set_level(logging.INFO, "ipujax")
    shards = ipu.compile(two_shards)
    configure(2)
    shards(np.float32(1))
    assert not told()
    configure(4)
    for engine in ("fused", "replay"):
        plain = ipu.compile(lambda x: x + 1, name="plain", engine=engine)
        for shape in ((), (), (3,)):
            plain(np.zeros(shape, np.float32))
        plain.lower(np.float32(1)).compile()
        assert told() == [
            "Program `plain` runs as 4 replicas, each with elements of its own from infeeds, "
            "since it uses 1 IPU and /device:IPU:0 has 4"
        ]
    shards(np.float32(1))
    assert told() == [
        "Program `two_shards` runs as 2 replicas, each with elements of its own from infeeds, "
        "since it uses 2 IPUs and /device:IPU:0 has 4"
    ]
