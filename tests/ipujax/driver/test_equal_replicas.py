"""Functions whose replicas cannot differ run once; what is told of them stays that of replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from tests.conftest import RunWithDevices
from tests.numbers import same, use_ipus

X = np.ones(3, np.float32)


def is_run_once(fn: Callable[..., Any], *args: Any) -> bool:
    lowered = ipu.compile(fn).lower(*args)
    assert lowered.replicas == lowered.program.replicas > 1
    assert lowered.report().replication_factor == lowered.replicas
    return lowered.executed_program.replicas == 1


def plus(x: Any) -> Any:
    return x + 1


def marked(x: Any) -> Any:
    with ipu.scopes.ipu_shard(1):
        return jnp.sin(x)


def with_key(x: Any) -> Any:
    return jax.random.normal(jax.random.key(0), (3,)) + x


def differentiated(x: Any) -> Any:
    return jax.grad(lambda y: jax.lax.fori_loop(0, 3, lambda i, c: c * y, y).sum())(x)


@pytest.mark.parametrize("fn", [plus, marked, with_key, differentiated])
@pytest.mark.parametrize("engine", ["auto", "replay", "fused"])
def test_what_cannot_differ_runs_once(fn: Callable[..., Any], engine: str) -> None:
    use_ipus(4)
    assert is_run_once(fn, X)
    run = ipu.compile(fn, engine=engine)
    same(run(X), jax.jit(fn)(X))
    assert f": {run.lower(X).replicas} replicas of " in run.lower(X).as_text()


def test_callbacks_are_made_once() -> None:
    use_ipus(4)
    seen: list[str] = []

    def fn(x: Any) -> Any:
        jax.debug.callback(lambda: seen.append("debug"))

        def pure(y: Any) -> Any:
            seen.append("pure")
            return np.asarray(y)

        def noted(y: Any) -> Any:
            seen.append("io")
            return np.asarray(y)

        x = jax.pure_callback(pure, jax.typeof(x), x, vmap_method="sequential")
        return jax.experimental.io_callback(noted, jax.typeof(x), x)

    for engine in ("auto", "replay"):
        seen.clear()
        same(ipu.compile(fn, engine=engine)(X), jnp.asarray(X))
        jax.effects_barrier()
        assert sorted(seen) == ["debug", "io", "pure"]


def test_refs_and_donated_arguments_are_changed_once() -> None:
    use_ipus(4)

    def fn(ref: Any, x: Any) -> Any:
        ref[...] += x
        return x * 2

    for engine in ("auto", "replay"):
        ref, x = jax.new_ref(jnp.zeros(3)), jnp.ones(3)
        run = ipu.compile(fn, engine=engine, donate_argnums=1)
        np.testing.assert_array_equal(run(ref, x), np.full(3, 2.0))
        np.testing.assert_array_equal(ref[...], np.ones(3))
        assert x.is_deleted()


def test_what_can_differ_runs_as_replicas() -> None:
    source, sink = IPUInfeedQueue(lambda: iter([X] * 40)), IPUOutfeedQueue()

    def enqueues(x: Any) -> Any:
        sink.enqueue(x)
        return x

    def in_a_loop(x: Any) -> Any:
        total = ipu.cross_replica_ops.cross_replica_sum
        return jax.lax.fori_loop(0, 3, lambda i, c: jax.jit(total)(c), x)

    different: list[Callable[..., Any]] = [
        lambda x: ipu.loops.repeat(2, lambda c, e: c + e, [x], source),
        enqueues,
        in_a_loop,
        lambda x: x + ipu.replication_ops.replication_index(),
        lambda x: ipu.rand_ops.dropout(x, rate=0.5),
    ]
    use_ipus(4)
    for fn in different:
        assert not is_run_once(fn, X)


def test_rounding_at_random_differs() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.floating_point_behaviour.esr = True
    config.configure_ipu_system()
    assert not is_run_once(lambda x: (x * 1.1).astype(jnp.float16), X)


def test_faults_of_equal_replicas_are_errors() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.floating_point_behaviour.div0 = True
    config.configure_ipu_system()
    assert is_run_once(plus, X)
    with pytest.raises(ipu.errors.FloatingPointError, match=r"(?s)div.*test_equal_replicas"):
        ipu.compile(lambda x: 1 / x)(X * 0)


def test_a_kernel_of_pallas_is_left_closed() -> None:
    from jax.experimental import pallas

    def kernel(x: Any, out: Any) -> None:
        number = pallas.program_id(0)
        out[number] = x[number] * 2 + number

    def fn(x: Any, own: bool) -> Any:
        y = pallas.pallas_call(kernel, jax.typeof(x), grid=(3,), interpret=True)(x)
        return y + ipu.replication_ops.replication_index() if own else y

    use_ipus(4)
    wanted = jnp.asarray([2, 3, 4], jnp.float32)
    for own in (False, True):
        for engine in ("auto", "replay"):
            run = ipu.compile(fn, engine=engine, static_argnums=1)
            same(run(X, own), wanted)
        assert run.lower(X, own).report().cycles > 0


def test_engines_choose_one_device_or_several(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        """
import jax, jax.numpy as jnp, numpy as np
import ipujax as ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 4
config.configure_ipu_system()

def own(x):
    return jnp.sin(x @ x) + ipu.replication_ops.replication_index()

small, large = (jax.ShapeDtypeStruct((n, n), jnp.float32) for n in (4, 600))
for fn, x, engine, spread in [
    (lambda x: x + 1, small, "replay", False),
    (own, small, "auto", False),
    (own, large, "auto", True),
    (own, small, "fused", True),
    (own, small, "replay", True),
]:
    assert ipu.compile(fn, engine=engine).lower(x).placement.spread == spread, (engine, x)
x = np.full((4, 4), 0.5, np.float32)
for engine in ("auto", "fused", "replay"):
    np.testing.assert_allclose(ipu.compile(own, engine=engine)(x), np.sin(x @ x), rtol=1e-6)
""",
    )
