"""After `lower(...).compile()` no call compiles, not by XLA either: neither the first nor later."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.conftest import RunWithDevices
from tests.harness import ROOT
from tests.numbers import use_ipus

EVENT = "/jax/core/compile/backend_compile_duration"
W = np.float32([[0.5, -0.25], [0.125, 1]])

_compiled: list[str] = []


def _listen(event: str, duration: float, **about: Any) -> None:
    if event == EVENT:
        _compiled.append(str(about.get("fun_name")))


jax.monitoring.register_event_duration_secs_listener(_listen)


@contextmanager
def nothing_compiles() -> Generator[None]:
    """What runs inside must not compile."""
    _compiled.clear()
    yield
    assert not _compiled


def infeed() -> IPUInfeedQueue:
    return IPUInfeedQueue(lambda: (np.float32([i, 1]) for i in itertools.count()))


def plain() -> Callable[..., Any]:
    return lambda w: jnp.tanh(w @ w)


def sharded() -> Callable[..., Any]:
    def model(w: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            x = w @ w
        with ipu.scopes.ipu_shard(1):
            return jnp.tanh(x) @ w

    return model


def host_call() -> Callable[..., Any]:
    def model(w: Any) -> Any:
        x = w * 2 + ipu.replication_ops.replication_index()
        with ipu.scopes.outside_compilation_scope():
            y = jnp.sin(x)
        return y @ w

    return model


def per_replica_callback() -> Callable[..., Any]:
    return lambda w: jax.pure_callback(np.sin, w, w + 1, vmap_method="sequential") * 3


def step(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w)


def looped(mode: IPUOutfeedMode, count: int) -> Callable[[], Callable[..., Any]]:
    def make() -> Callable[..., Any]:
        queue, outfeed = infeed(), IPUOutfeedQueue(outfeed_mode=mode)

        def body(w: Any, x: Any) -> Any:
            outfeed.enqueue(w.sum())
            return step(w, x)

        return lambda w: ipu.loops.repeat(count, body, [w], queue)

    return make


def while_loop() -> Callable[..., Any]:
    queue, outfeed = infeed(), IPUOutfeedQueue()

    def body(i: Any, w: Any, x: Any) -> Any:
        outfeed.enqueue(w.sum())
        return i + 1, step(w, x)

    return lambda w: ipu.loops.while_loop(lambda i, w: i < 3, body, [0, w], queue)[1]


def scan_over_shards() -> Callable[..., Any]:
    outfeed = IPUOutfeedQueue()

    def body(w: Any, x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            y = w * x
        with ipu.scopes.ipu_shard(1):
            z = jnp.sin(y).sum()
        outfeed.enqueue(z)
        return w + z, z

    return lambda w: jax.lax.scan(body, w, w)[0]


def pipelined(training: bool) -> Callable[[], Callable[..., Any]]:
    def make() -> Callable[..., Any]:
        queue, outfeed = infeed(), IPUOutfeedQueue()

        def optimize(loss: Any) -> Any:
            return OptimizerFunctionOutput(optax.adam(0.1), loss)

        def model(w: Any) -> Any:
            trained = pipeline(
                [lambda p, x: jnp.tanh(x @ p["a"]), lambda p, x: ((x @ p["b"]) ** 2).sum()],
                4,
                infeed_queue=queue,
                outfeed_queue=outfeed,
                optimizer_function=optimize if training else None,
                variables={"a": w, "b": w * 2},
            )
            return trained[0]["a"] if training else w

        return model

    return make


MODELS = {
    "plain": plain,
    "sharded": sharded,
    "host_call": host_call,
    "per_replica_callback": per_replica_callback,
    "loop": looped(IPUOutfeedMode.ALL, 11),
    "loop_last": looped(IPUOutfeedMode.LAST, 2),
    "while_loop": while_loop,
    "scan_over_shards": scan_over_shards,
    "training": pipelined(training=True),
    "inference": pipelined(training=False),
}


def check(name: str, engine: str, ipus: int, donated: tuple[int, ...] = ()) -> None:
    """Three calls of a program: with NumPy's array, with one of JAX's, and with a result."""
    use_ipus(ipus)
    compiled = ipu.compile(MODELS[name](), engine=engine, donate_argnums=donated)
    executable = compiled.lower(W).compile()
    array = jax.device_put(W.copy())
    with nothing_compiles():
        for argument in (W, array):
            result = executable(argument)
        jax.block_until_ready(executable(result))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ipus", [2, 4])
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("name", MODELS)
def test_compiled_once(name: str, engine: str, ipus: int) -> None:
    check(name, engine, ipus)


@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("name", ["plain", "loop"])
def test_donated_arguments(name: str, engine: str) -> None:
    check(name, engine, ipus=1, donated=(0,))


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_a_count_that_is_known_at_run_time(engine: str) -> None:
    queue = infeed()
    use_ipus(1)
    run = ipu.compile(lambda w, n: ipu.loops.repeat(n, step, [w], queue), engine=engine)
    executable = run.lower(W, np.int32(0)).compile()
    with nothing_compiles():
        for count in (1, 0, 7, 100):
            jax.block_until_ready(executable(W, np.int32(count)))


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_numbers_of_python(engine: str) -> None:
    queue = infeed()
    use_ipus(1)

    def body(w: Any, n: Any, x: Any) -> Any:
        return w * x.sum(), n + 1

    run = ipu.compile(lambda w, n: ipu.loops.repeat(3, body, [w, n], queue), engine=engine)
    executable = run.lower(0.5, 2).compile()
    with nothing_compiles():
        for first in (0, 3):  # elements are [0, 1], [1, 1], ...
            w, n = executable(0.5, 2)
            assert int(n) == 5
            assert float(w) == 0.5 * np.prod([first + i + 1 for i in range(3)])


def test_what_is_committed_to_a_device() -> None:
    use_ipus(1)
    for name in ("plain", "loop", "while_loop"):
        executable = ipu.compile(MODELS[name](), engine="replay").lower(W).compile()
        argument = jax.device_put(W, jax.devices()[0])
        with nothing_compiles():
            jax.block_until_ready(executable(argument))


@pytest.mark.exhaustive
def test_on_real_devices(run_with_devices: RunWithDevices) -> None:
    out = run_with_devices(
        4,
        f"""
        import sys

        sys.path.insert(0, {str(ROOT)!r})
        import jax
        import ipujax as ipu
        from tests.ipujax.driver.test_compile_ahead import W, check, nothing_compiles, use_ipus

        for name in ("plain", "sharded", "host_call", "loop", "scan_over_shards", "training"):
            for engine in ("fused", "replay"):
                check(name, engine, 4)
                print(name)
        use_ipus(1)
        for engine in ("fused", "replay"):
            executable = ipu.compile(lambda x: x * 2, engine=engine).lower(W).compile()
            with nothing_compiles():
                print(executable(jax.device_put(W, jax.devices()[2])).tolist() == (W * 2).tolist())
        """,
    )
    assert len(out.split()) == 14
    assert out.endswith("True\nTrue\n")
