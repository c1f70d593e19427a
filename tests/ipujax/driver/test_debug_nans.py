"""`jax.debug_nans`, `jax.debug_infs` and `jax.disable_jit` around compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.numbers import same, use_ipus

BAD = -np.ones(3, np.float32)
ENGINES = ("auto", "replay", "fused")


def straight(x: Any) -> Any:
    with ipu.scopes.ipu_shard(0):
        y = jnp.log(x)  # here
    with ipu.scopes.ipu_shard(1):
        return y + 1


def looped(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, c: jnp.sqrt(c) + i, x)  # here


def branched(x: Any) -> Any:
    return jax.lax.cond(x[0] < 0, lambda y: jnp.arccos(y - 1), lambda y: y, x)  # here


def differentiated(x: Any) -> Any:
    return jax.grad(lambda y: jnp.log(y).sum() * 0 + jnp.sqrt(y).sum())(x)  # here


def line_of_here(fn: Callable[..., Any]) -> int:
    lines = fn.__code__.co_firstlineno
    with open(__file__) as source:
        text = source.read().splitlines()
    return next(n + 1 for n, line in enumerate(text) if n + 1 >= lines and "# here" in line)


@pytest.mark.parametrize("fn", [straight, looped, branched, differentiated])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_nan_is_an_error_with_its_line(fn: Callable[[Any], Any], engine: str) -> None:
    use_ipus(2)
    run = ipu.compile(fn, engine=engine)
    before = run(BAD)  # nobody asks yet
    with (
        jax.debug_nans(True),
        pytest.raises(FloatingPointError, match=f"test_debug_nans.py:{line_of_here(fn)}") as raised,
    ):
        run(BAD)
    assert isinstance(raised.value, ipu.errors.IPUError)
    with jax.debug_nans(True):
        assert np.isfinite(jax.tree.leaves(run(np.full(3, 2, np.float32)))[0]).all()
    same(run(BAD), before)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_infinity_is_an_error_with_its_line(engine: str) -> None:
    use_ipus(2)
    run = ipu.compile(lambda x: (1 / x) * 2, engine=engine)
    with jax.debug_nans(True):
        assert np.isinf(run(np.zeros(3, np.float32))).all()
    with (
        jax.debug_infs(True),
        pytest.raises(FloatingPointError, match=r"(?s)an infinity in results.*test_debug_nans"),
    ):
        run(np.zeros(3, np.float32))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_nan_that_does_not_come_out_is_none(engine: str) -> None:
    def masked(x: Any) -> Any:
        return jnp.where(x > 0, jnp.log(x), 0.0)

    use_ipus(2)
    with jax.debug_nans(True):
        same(ipu.compile(masked, engine=engine)(BAD), jax.jit(masked)(BAD))


def test_a_nan_that_goes_in_comes_from_no_line() -> None:
    use_ipus(2)
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="look for it in the arg"):
        ipu.compile(lambda x: x + 1)(np.full(3, np.nan, np.float32))


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_elements_of_an_outfeed_are_looked_at(engine: str) -> None:
    use_ipus(2)
    source = IPUInfeedQueue(lambda: iter(np.float32([1, 2, -1, 3] * 5)))
    sink = IPUOutfeedQueue()

    def step(total: Any, element: Any) -> Any:
        sink.enqueue(jnp.log(element))
        return total + element

    run = ipu.compile(lambda x: ipu.loops.repeat(4, step, [x], source), engine=engine)
    with (
        jax.debug_nans(True),
        pytest.raises(FloatingPointError, match=r"(?s)a NaN in outfeed `.*`log`.*test_debug_nans"),
    ):
        run(np.float32(0))


def test_pipelines_are_watched() -> None:
    use_ipus(2)
    source, sink = IPUInfeedQueue(lambda: iter([BAD] * 8)), IPUOutfeedQueue()

    def first(w: Any, x: Any) -> Any:
        return x * w

    def second(w: Any, x: Any) -> Any:
        return jnp.log(x).sum()

    def model(w: Any) -> Any:
        return pipeline(
            [first, second],
            gradient_accumulation_count=4,
            infeed_queue=source,
            outfeed_queue=sink,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optax.sgd(0.1), loss),
            variables=w,
        )

    with (
        jax.debug_nans(True),
        pytest.raises(FloatingPointError, match=r"(?s)a NaN in .*`log`.*test_debug_nans.*second"),
    ):
        ipu.compile(model)(jnp.float32(1))


def test_what_was_compiled_before_says_where_the_number_is() -> None:
    use_ipus(2)
    executable = ipu.compile(lambda x: {"y": jnp.log(x)}).lower(BAD).compile()
    with (
        jax.debug_nans(True),
        pytest.raises(FloatingPointError, match=r"results\['y'\].*\n.*\n.*compile again"),
    ):
        executable(BAD)


def test_traps_of_the_configuration_stay_errors() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.floating_point_behaviour.inv = True
    config.configure_ipu_system()
    run = ipu.compile(lambda x: jnp.where(x > 0, jnp.log(x), 0.0))
    for watched in (False, True):
        with jax.debug_nans(watched), pytest.raises(FloatingPointError, match="invalid in `log`"):
            run(BAD)


# --- without jit ------------------------------------------------------------------------------


@pytest.mark.parametrize("ipus", [1, 4])
@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_without_jit_a_function_sees_values(ipus: int, engine: str) -> None:
    use_ipus(ipus)
    seen: list[float] = []

    def fn(x: Any, n: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            y = jnp.sin(x)
        seen.append(float(y[0]))
        if y[0] > 0:
            y = y * n
        return jax.lax.while_loop(lambda c: c[0] < 5, lambda c: c + 1, y)

    run, x = ipu.compile(fn, engine=engine, static_argnums=1), np.full(3, 0.5, np.float32)
    with pytest.raises(jax.errors.ConcretizationTypeError):
        run(x, 2)
    with jax.disable_jit():
        np.testing.assert_allclose(run(x, 2), fn(x, 2))
        np.testing.assert_allclose(run(-x, n=2), fn(-x, 2))
    assert len(seen) == 4


@pytest.mark.parametrize("ipus", [1, 2])
def test_without_jit_queues_and_replicas_are_as_ever(ipus: int) -> None:
    use_ipus(ipus)
    source = IPUInfeedQueue(lambda: iter(np.arange(40, dtype=np.float32)))
    sink = IPUOutfeedQueue()

    def step(total: Any, element: Any) -> Any:
        sink.enqueue(element)
        return total + ipu.cross_replica_ops.cross_replica_sum(element)

    run = ipu.compile(lambda x: ipu.loops.repeat(3, step, [x], source))
    with jax.disable_jit():
        assert run(np.float32(0)) == sum(range(3 * ipus))
    assert sink.dequeue().size == 3 * ipus
