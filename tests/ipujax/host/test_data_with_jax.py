"""Data sets that use JAX: they are read where no trace is active, whoever asks first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import FeedError
from ipujax.loops import repeat
from lowering.jaxprs import jaxpr
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.pipelining import run_pipeline

f32 = np.float32
doubled = jax.jit(lambda x: x * 2)


def arrays() -> Iterator[Any]:
    return (jnp.asarray([k, k], jnp.float32) for k in range(6))


def random() -> Iterator[Any]:
    key = jax.random.key(0)
    while True:
        key, own = jax.random.split(key)
        yield jax.random.normal(own, (2,))


def on_a_device() -> Iterator[Any]:
    return (jax.device_put(np.full(2, k, f32)) for k in range(6))


def jitted() -> Iterator[Any]:
    return (doubled(np.full(2, k, f32)) for k in range(6))


def derived() -> Iterator[Any]:
    return (jax.grad(lambda x: (x**3).sum())(jnp.full(2, k, f32)) for k in range(6))


def mapped() -> Iterator[Any]:
    return (jax.vmap(jnp.sin)(jnp.full(2, k, f32)) for k in range(6))


class WithItsOwnIter:
    """`__iter__` itself computes with JAX."""

    def __iter__(self) -> Iterator[Any]:
        return iter(jnp.arange(12.0).reshape(6, 2) * 3)


def dataset_of_arrays() -> Any:
    return jnp.arange(12.0).reshape(6, 2)


DATA: list[Callable[[], Any]] = [
    lambda: arrays,
    lambda: random,
    lambda: on_a_device,
    lambda: jitted,
    lambda: derived,
    lambda: mapped,
    WithItsOwnIter,
    dataset_of_arrays,
]
NAMES = ["arrays", "random", "on_a_device", "jitted", "derived", "mapped", "iter", "array"]
EVERY = pytest.mark.parametrize("make", DATA, ids=NAMES)


def first(make: Callable[[], Any], count: int) -> np.ndarray:
    """The first elements, as anyone would read them."""
    dataset = make()
    elements = iter(dataset() if callable(dataset) else dataset)
    return np.stack([np.asarray(next(elements)) for _ in range(count)])


@pytest.mark.sampled(3)
@EVERY
def test_elements_arrive(make: Callable[[], Any]) -> None:
    source, sink = infeed(make()), outfeed()
    ipu.compile(lambda: repeat(4, lambda x: sink.enqueue(x), [], source))()
    np.testing.assert_array_equal(sink.dequeue(), first(make, 4))


def summed(source: Any) -> Callable[[Any], Any]:
    return lambda v: repeat(3, lambda v, x: v * 2 + x.sum(), [v], source)


def in_scan(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda v: jax.lax.scan(lambda c, _: (c, f(v)), v, None, length=1)[1][0]


def in_cond(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda v: jax.lax.cond(v > -1, f, lambda v: v, v)


WITHIN: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "jit": lambda f: ipu.compile(jax.jit(f)),
    "jit_alone": jax.jit,
    "nothing": lambda f: f,
    "vmap": lambda f: ipu.compile(lambda v: jax.vmap(f)(v[None])[0]),
    "grad": lambda f: ipu.compile(lambda v: jax.value_and_grad(f)(v)[0]),
    "remat": lambda f: ipu.compile(jax.checkpoint(f)),
    "scan": lambda f: ipu.compile(in_scan(f)),
    "cond": lambda f: ipu.compile(in_cond(f)),
    "lower": lambda f: lambda v: ipu.compile(f).lower(v).compile()(v),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("within", WITHIN)
def test_wherever_the_loop_is_traced(within: str) -> None:
    source = infeed(random)
    wanted = first(lambda: random, 3).sum(1) @ [4, 2, 1]
    result = WITHIN[within](summed(source))(jnp.float32(0))
    np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_in_a_while_loop() -> None:
    source = infeed(jitted)
    total = ipu.compile(
        lambda v: ipu.loops.while_loop(lambda v: v < 5, lambda v, x: v + x[0], [v], source)
    )(f32(0))
    assert total == 0 + 2 + 4


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_in_a_pipeline(engine: str) -> None:
    stages = [lambda x: x + 1, lambda x: x * 10]
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    _, sent = run_pipeline(stages, 4, engine=engine, data=jitted)
    np.testing.assert_array_equal(
        np.asarray(sent).reshape(4, 2), first(lambda: jitted, 4) * 10 + 10
    )


def test_no_trace_is_seen_and_one_thread_reads_all() -> None:
    threads, clean = set[int](), list[bool]()

    def dataset() -> Iterator[Any]:
        for k in range(20):
            threads.add(threading.get_ident())
            clean.append(jaxpr.trace_state_clean())
            yield f32(k)

    run = ipu.compile(jax.jit(lambda v: repeat(10, lambda v, x: v + x, [v], infeed(dataset))))
    assert run(f32(0)) == 45
    assert all(clean)
    assert len(threads) == 1 < len(threads | {threading.get_ident()})


def test_what_is_configured_for_a_thread_holds_for_its_data() -> None:
    sink = outfeed()
    with jax.enable_x64(True):
        source = infeed(lambda: (jnp.arange(2) + (1 << 40) + k for k in range(40)))
        ipu.compile(lambda: repeat(40, lambda x: sink.enqueue(x), [], source))()
    got = sink.dequeue()
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got[:, 0], (1 << 40) + np.arange(40))


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_typed_keys_arrive_as_keys(engine: str) -> None:
    """They are carried by the loop, and sent, too."""
    keys = jax.random.split(jax.random.key(7), 3)
    source, sink = infeed([{"key": key, "x": np.float32(1)} for key in keys]), outfeed()

    def body(last: Any, key: Any, x: Any) -> Any:
        sink.enqueue((jax.random.uniform(key) * x, last, key))
        return key

    first = jax.random.key(1)
    run = ipu.compile(lambda key: repeat(3, body, [key], source), engine=engine)
    assert bool(run(first) == keys[2])
    drawn, last, sent = sink.dequeue()
    np.testing.assert_array_equal(drawn, jax.vmap(jax.random.uniform)(keys))
    assert (sent == keys).all()
    assert bool(last[0] == first)
    assert (last[1:] == keys[:2]).all()


def test_a_data_set_may_be_an_array_of_keys() -> None:
    keys = jax.random.split(jax.random.key(7), 3)
    sink = outfeed()
    run = ipu.compile(
        lambda: repeat(3, lambda k: sink.enqueue(jax.random.bits(k)), [], infeed(keys))
    )
    run()
    np.testing.assert_array_equal(sink.dequeue(), jax.vmap(jax.random.bits)(keys))


def test_a_key_of_another_algorithm_is_another_structure() -> None:
    source = infeed([jax.random.key(0), jax.random.key(0, impl="rbg")])
    with pytest.raises(FeedError, match="element 1 is a"):
        ipu.compile(lambda: repeat(2, lambda k: None, [], source))()


def test_raw_keys_are_wrapped_in_the_loop() -> None:
    keys = jax.random.split(jax.random.key(7), 3)
    source, sink = infeed(jax.random.key_data(keys)), outfeed()

    def body(data: Any) -> None:
        sink.enqueue(jax.random.uniform(jax.random.wrap_key_data(data)))

    ipu.compile(lambda: repeat(3, body, [], source))()
    np.testing.assert_array_equal(sink.dequeue(), jax.vmap(jax.random.uniform)(keys))


def test_a_later_key_is_no_number_either() -> None:
    source = infeed([np.zeros(2, np.uint32), jax.random.key(0)])
    with pytest.raises(FeedError, match="leaf 0 of element 1 is a key<fry>"):
        ipu.compile(lambda: repeat(2, lambda x: None, [], source))()
