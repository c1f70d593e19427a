"""JAX's callbacks in replicated programs: made once, for the first replica, on both engines."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.experimental import io_callback

import ipujax as ipu
from tests.numbers import use_ipus

ENGINES = pytest.mark.parametrize("engine", ["fused", "replay"])
ORDERED = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])

F32 = jax.ShapeDtypeStruct((), jnp.float32)


class Host:
    """Remembers what it was called with."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def note(self, value: Any) -> None:
        self.seen.append(float(np.asarray(value).ravel()[0]))

    def answer(self, value: Any) -> np.float32:
        self.note(value)
        return np.float32(100 * len(self.seen))


def own(x: Any) -> Any:
    """Another number on each replica."""
    return x + ipu.replication_ops.replication_index().astype(x.dtype)


def total(x: Any) -> Any:
    return ipu.cross_replica_ops.cross_replica_sum(x)


def flat(host: Host, x: Any, ordered: bool) -> Any:
    io_callback(host.note, None, own(x), ordered=ordered)
    jax.debug.callback(host.note, 10 * own(x), ordered=ordered)
    jax.debug.callback(host.note, -x, ordered=ordered)  # which all replicas share
    return total(own(x))


def answered(host: Host, x: Any, ordered: bool) -> Any:
    return total(own(x) + io_callback(host.answer, F32, own(x), ordered=ordered))


def scanned(host: Host, x: Any, ordered: bool) -> Any:
    def step(carry: Any, _: Any) -> Any:
        jax.debug.callback(host.note, carry, ordered=ordered)
        return carry + 1, None

    return total(lax.scan(step, own(x), None, length=3)[0])


def chosen(host: Host, x: Any, ordered: bool) -> Any:
    def taken() -> Any:
        jax.debug.callback(host.note, own(x), ordered=ordered)
        return own(x) * 2

    def other() -> Any:
        jax.debug.callback(host.note, -own(x), ordered=ordered)
        return own(x)

    return total(lax.cond(own(x) > 1, taken, other))


def looped(host: Host, x: Any, ordered: bool) -> Any:
    def step(carry: Any) -> Any:
        return carry + 1 + 0 * io_callback(host.answer, F32, carry, ordered=ordered)

    return total(lax.while_loop(lambda carry: carry < 4, step, x + 3 * own(x) - 3 * x))


def asked_whether(host: Host, x: Any, ordered: bool) -> Any:
    def goes_on(carry: Any) -> Any:
        jax.debug.callback(host.note, carry, ordered=ordered)
        return carry < 3

    return total(lax.while_loop(goes_on, lambda carry: carry + 1, own(x)))


def nested(host: Host, x: Any, ordered: bool) -> Any:
    def ask(carry: Any) -> Any:
        def inner(carry: Any, _: Any) -> Any:
            return carry + io_callback(host.answer, F32, carry, ordered=ordered), None

        scanned = jax.jit(lambda c: lax.scan(inner, c, None, length=2)[0])(carry)
        return ipu.loops.repeat(1, lambda c: _noted(host, c, ordered), [scanned])

    def step(carry: Any, number: Any) -> Any:
        return lax.cond(number % 2 == 0, ask, lambda c: c, carry), None

    return total(lax.scan(step, own(x), jnp.arange(3))[0])


def _noted(host: Host, value: Any, ordered: bool) -> Any:
    jax.debug.callback(host.note, value, ordered=ordered)
    return value


CASES = {
    flat: (3.0, [1, 10, -1]),
    answered: (203.0, [1]),
    scanned: (9.0, [1, 2, 3]),
    chosen: (5.0, [-1]),
    looped: (8.0, [1, 2, 3]),
    asked_whether: (6.0, [1, 2, 3]),
    nested: (2403.0, [1, 101, 301, 301, 701, 1201]),
}


@pytest.mark.sampled(2)
@ENGINES
@ORDERED
@pytest.mark.parametrize(("fn", "wanted"), CASES.items(), ids=[fn.__name__ for fn in CASES])
def test_the_host_is_called_as_by_the_first_replica(
    fn: Any, wanted: tuple[float, list[float]], ordered: bool, engine: str
) -> None:
    use_ipus(2)
    host = Host()
    run = ipu.compile(lambda x: fn(host, x, ordered), engine=engine)
    result = float(run(jnp.float32(1)))
    jax.effects_barrier()
    number, seen = wanted
    assert result == number
    assert sorted(host.seen) == sorted(seen)
    assert not ordered or host.seen == seen


@ENGINES
def test_prints_are_the_first_replicas(engine: str, capfd: pytest.CaptureFixture[str]) -> None:
    use_ipus(4)
    ipu.compile(lambda x: jax.debug.print("{}", own(x)), engine=engine)(jnp.float32(1))
    jax.effects_barrier()
    assert capfd.readouterr().out == "1.0\n"


@ENGINES
def test_pure_callbacks_are_every_replicas_own(engine: str) -> None:
    use_ipus(2)

    def fn(x: Any) -> Any:
        return total(jax.pure_callback(lambda v: np.asarray(v) * 2, F32, own(x)))

    assert float(ipu.compile(fn, engine=engine)(jnp.float32(1))) == 6.0


@ENGINES
def test_on_two_ipus_in_order(engine: str) -> None:
    use_ipus(4)
    host = Host()

    def fn(x: Any) -> Any:
        x = own(x)
        for number in range(4):
            with ipu.scopes.ipu_shard(number % 2):
                x = x + io_callback(host.answer, F32, x, ordered=True)
        return x

    assert float(ipu.compile(fn, engine=engine)(jnp.float32(1))) == 1001.0
    assert host.seen == [1, 101, 301, 601]


@ENGINES
def test_outside_of_compiled_code(engine: str) -> None:
    use_ipus(2)
    host = Host()

    def fn(x: Any) -> Any:
        x = own(x)
        with ipu.scopes.outside_compilation_scope():
            y = x + io_callback(host.answer, F32, x, ordered=True)
        return total(y)

    assert float(ipu.compile(fn, engine=engine)(jnp.float32(1))) == 202.0
    assert host.seen == [1]


@pytest.mark.sampled(1)
@ENGINES
def test_in_loops_over_queues(engine: str) -> None:
    use_ipus(2)
    host = Host()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue([np.float32(i) for i in range(6)])

    def fn(x: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            jax.debug.callback(host.note, element, ordered=True)
            return carry + element

        return ipu.loops.repeat(3, step, [x], infeed)

    ipu.compile(fn, engine=engine)(jnp.float32(0))
    jax.effects_barrier()
    assert host.seen == [0, 2, 4]


@pytest.mark.exhaustive
@ENGINES
def test_in_pipelines_once_for_each_micro_batch(engine: str) -> None:
    use_ipus(4)
    host = Host()

    def first(variables: Any, x: Any) -> Any:
        jax.debug.callback(host.note, x, ordered=True)
        return x * variables["a"]

    def second(variables: Any, hidden: Any) -> Any:
        return jnp.sum(hidden * variables["b"])

    def step(variables: Any) -> Any:
        return ipu.pipelining_ops.pipeline(
            [first, second],
            gradient_accumulation_count=4,
            infeed_queue=ipu.ipu_infeed_queue.IPUInfeedQueue(
                [np.full(2, i, np.float32) for i in range(8)]
            ),
            outfeed_queue=ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(
                optax.sgd(0.1), loss
            ),
            variables=variables,
        )

    ipu.compile(step, engine=engine)({"a": jnp.float32(1), "b": jnp.float32(2)})
    jax.effects_barrier()
    assert host.seen == [0, 2, 4, 6]
