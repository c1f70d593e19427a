"""JAX's contexts and the types of static arguments: a program is compiled for each, as by jit."""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigError
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from tests.conftest import RunWithDevices
from tests.numbers import same, use_ipus

X = np.float32(1)


def normal(k: Any) -> Any:
    return jax.random.normal(jax.random.key(0), (3,)) + k


def mixed(k: Any) -> Any:
    return k * 2, jnp.zeros(3) + np.float64(0.1)


def promoted(k: Any) -> Any:
    return k + jnp.arange(3)


def ranks(k: Any) -> Any:
    return jnp.ones((2, 3)) * (k + jnp.ones(3))


CONTEXTS: list[tuple[Callable[[Any], Any], tuple[Any, ...], Callable[[Any], Any]]] = [
    (jax.threefry_partitionable, (True, False), normal),
    (jax.default_prng_impl, ("threefry2x32", "rbg"), normal),
    (jax.enable_x64, (False, True), mixed),
    (jax.numpy_dtype_promotion, ("standard", "strict"), promoted),
    (jax.numpy_rank_promotion, ("allow", "raise"), ranks),
]


def outcome(fn: Callable[[Any], Any], value: Any) -> Any:
    """What a function gives; of a failure, its class."""
    try:
        return [(x.dtype.name, np.asarray(x).tolist()) for x in jax.tree.leaves(fn(value))]
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("case", range(len(CONTEXTS)))
@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_a_program_is_compiled_for_each_context(case: int, engine: str) -> None:
    use_ipus(4)
    context, values, fn = CONTEXTS[case]

    def beside_replicas(k: Any) -> Any:  # so that the host drives it
        return fn(k), ipu.replication_ops.replication_index()

    plain, run = jax.jit(beside_replicas), ipu.compile(beside_replicas, engine=engine)
    seen: list[Any] = []
    for value in (*values, values[0]):
        with context(value):
            seen.append(outcome(run, X))
            wanted = outcome(plain, X)
        if not isinstance(wanted, str):
            same(*([jnp.asarray(x[1]) for x in each] for each in (seen[-1], wanted)), exact=False)
            assert [x[0] for x in seen[-1]] == [x[0] for x in wanted]
        else:
            assert seen[-1] == wanted
    assert seen[0] == seen[2]
    # JAX itself makes the same numbers of a key of another kind that is new in a function.
    assert seen[0] != seen[1] or context is jax.default_prng_impl


def test_the_precision_of_products_is_that_of_the_call() -> None:
    use_ipus(2)
    run = ipu.compile(lambda a: a @ a + ipu.replication_ops.replication_index(), engine="replay")
    executables: list[int] = []
    for precision in ("bfloat16", "float32", "bfloat16"):
        with jax.default_matmul_precision(precision):
            run(np.ones((2, 2), np.float32))
        (calls,) = run._calls.values()
        executables.append(len(calls._executables))
    assert executables == [1, 2, 2]


class Mode(enum.IntEnum):
    ONE = 1


@dc.dataclass(frozen=True)
class Scale:
    by: Any


STATICS: list[Any] = [
    1, 1.0, True, np.float32(1), np.int8(1), np.bool_(True), Mode.ONE, 1 + 0j, 0, False, 0.0, -0.0,
    "1", (1,), (1.0,), (True,), Scale(1), Scale(True), frozenset({1}), None,
]  # fmt: skip


def number_in(static: Any) -> Any:
    if isinstance(static, (tuple, frozenset)):
        return next(iter(static))
    if isinstance(static, Scale):
        return static.by
    return {"1": 7, None: 8}.get(static, static) if static is None or static == "1" else static


@pytest.mark.parametrize("by_keyword", [False, True])
def test_static_arguments_are_told_apart_as_jit_does(by_keyword: bool) -> None:
    use_ipus(2)

    def fn(x: Any, n: Any) -> Any:
        return jnp.asarray(number_in(n)) * 2 + x * 0, ipu.replication_ops.replication_index()

    plain, run = jax.jit(fn, static_argnums=1), ipu.compile(fn, static_argnums=1)
    for static in STATICS:
        if by_keyword:
            same(run(np.int8(3), n=static), plain(np.int8(3), n=static))
        else:
            same(run(np.int8(3), static), plain(np.int8(3), static))


@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_static_arguments_without_hash_are_refused(engine: str) -> None:
    use_ipus(2)
    run = ipu.compile(lambda x, n: x + n[0], static_argnums=1, engine=engine)
    for call in (run, run.lower, run.trace):
        with pytest.raises(ConfigError, match=r"no hash: \[1\], of type list"):
            call(X, [1])


def test_numbers_of_64_bits_inside_of_a_function() -> None:
    def fn(x: Any) -> Any:
        with jax.enable_x64(True):
            with ipu.scopes.ipu_shard(0):
                wide = jnp.cumsum(jnp.arange(3) + np.float64(0.1)) * x
            with ipu.scopes.ipu_shard(1):
                looped = jax.lax.fori_loop(0, 3, lambda i, c: c * wide + i, wide)
        return wide, looped, x * 2

    use_ipus(4)
    wanted = jax.jit(fn)(X)
    for engine in ("fused", "replay"):
        got = ipu.compile(fn, engine=engine)(X)
        assert [x.dtype for x in got] == [x.dtype for x in wanted]
        for mine, theirs in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-15)
    assert ipu.compile(fn).lower(X).report().cycles > 0


def test_numbers_of_64_bits_beside_queues_and_replicas() -> None:
    use_ipus(2)
    source, sink = IPUInfeedQueue(lambda: iter([np.float32(1)] * 20)), IPUOutfeedQueue()

    def step(total: Any, element: Any) -> Any:
        with jax.enable_x64(True):
            wide = total.astype(jnp.float64) + element * np.float64(0.1)
            sink.enqueue(wide)
            return wide.astype(jnp.float32)

    def fn(x: Any) -> Any:
        return ipu.loops.repeat(3, step, [x], source)

    for engine in ("fused", "replay"):
        ipu.compile(fn, engine=engine)(X)
        sent = sink.dequeue()
        assert sent.dtype == np.float64
        np.testing.assert_allclose(sent[0], 1 + 0.1, rtol=1e-15)


def test_a_strategy_tells_equal_functions_apart() -> None:
    @dc.dataclass(frozen=True)
    class Times:
        by: Any

        def __call__(self, x: Any) -> Any:
            return x * self.by

    class Lists(list[int]):
        def first(self, x: Any) -> Any:
            return x * self[0]

    use_ipus(1)
    strategy = ipu.ipu_strategy.IPUStrategy()
    assert strategy.run(Times(2), [np.int32(3)]).dtype == np.int32
    assert strategy.run(Times(2.0), [np.int32(3)]).dtype == np.float32
    factor = Lists([2])
    assert strategy.run(factor.first, [X]) == strategy.run(factor.first, [X]) == 2
    assert len(strategy._compiled) == 3


def test_with_an_executable_cache_and_devices(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        """
import os, tempfile
os.environ["TF_POPLAR_FLAGS"] = f"--executable_cache_path={tempfile.mkdtemp()}"
import jax, jax.numpy as jnp, numpy as np
import ipujax as ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 4
config.configure_ipu_system()

def fn(x, n):
    key = jax.random.key(0)
    return jnp.asarray(n) + x * 0 + jax.random.uniform(key), ipu.replication_ops.replication_index()

for twice in range(2):
    plain, run = jax.jit(fn, static_argnums=1), ipu.compile(fn, static_argnums=1)
    for n in (1, 1.0, True, np.float32(1)):
        for partitionable in (True, False):
            with jax.threefry_partitionable(partitionable):
                got, wanted = run(np.int8(0), n)[0], plain(np.int8(0), n)[0]
            assert got.dtype == wanted.dtype and got.weak_type == wanted.weak_type
            np.testing.assert_array_equal(got, wanted)
""",
    )


def test_fingerprints_of_programs_tell_contexts_apart() -> None:
    use_ipus(1)
    run, prints = ipu.compile(normal), []
    for partitionable in (True, False, True):
        with jax.threefry_partitionable(partitionable):
            prints.append(run.lower(X).compute_program_hash())
    assert prints[0] == prints[2] != prints[1]
