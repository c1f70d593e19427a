"""What Python code raises that a program calls: an error of ours with its line, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import io_callback

import ipujax as ipu
from ipujax.errors import CallbackError
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.conftest import RunWithDevices
from tests.numbers import use_ipus

engines = pytest.mark.parametrize("engine", ["fused", "replay"])
f32 = np.float32


class Check:
    """A callback that raises as long as it is told to."""

    def __init__(self) -> None:
        self.error: BaseException | None = KeyError("boom")

    def __call__(self, x: Any) -> Any:
        if self.error is not None:
            raise self.error  # the line that errors name
        return np.asarray(x)


def pure(check: Check, x: Any) -> Any:
    return jax.pure_callback(check, jax.typeof(x), x, vmap_method="sequential")


def io(check: Check, x: Any) -> Any:
    return io_callback(check, jax.typeof(x), x)


def ordered(check: Check, x: Any) -> Any:
    return io_callback(check, jax.typeof(x), x, ordered=True)


def debug(check: Check, x: Any) -> Any:
    jax.debug.callback(check, x)
    return x


def outside(check: Check, x: Any) -> Any:
    with ipu.scopes.outside_compilation_scope():
        return jax.pure_callback(check, jax.typeof(x), x)


def fails_and_recovers(compiled: Callable[..., Any], check: Check, *arguments: Any) -> Any:
    """The program's error is ours while the callback fails; gives what it computes later."""
    for _ in range(2):
        with pytest.raises(CallbackError) as caught:
            compiled(*arguments)
        assert caught.value.__cause__ is check.error
        what, where, fix = str(caught.value).splitlines()
        assert what.endswith("raised KeyError: 'boom'")
        assert where.startswith(f"  where: {__file__}:35 (__call__), called at {__file__}:")
        assert fix.startswith("  fix:")
    assert ipu.compile(lambda x: x + 1)(f32(1)) == 2
    check.error = None
    result = compiled(*arguments)
    jax.effects_barrier()
    return result


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", [pure, io, ordered, debug, outside])
@engines
def test_in_a_program(kind: Any, engine: str) -> None:
    check = Check()
    run = ipu.compile(lambda x: kind(check, x * 2) + 1, engine=engine)
    assert fails_and_recovers(run, check, f32(3)) == 7


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [pure, io, ordered, debug])
@engines
def test_in_a_loop_with_queues(kind: Any, engine: str) -> None:
    check, results = Check(), IPUOutfeedQueue()
    data = IPUInfeedQueue(lambda: (f32(i) for i in range(100)))

    def body(x: Any, e: Any) -> Any:
        results.enqueue(e)
        return kind(check, x) + 1

    run = ipu.compile(lambda x: ipu.loops.repeat(3, body, [x], data), engine=engine)
    assert fails_and_recovers(run, check, f32(0)) == 3
    assert len(results.dequeue()) >= 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [pure, debug])
@engines
def test_on_replicas(kind: Any, engine: str) -> None:
    use_ipus(2)
    check = Check()

    def model(x: Any) -> Any:
        own = kind(check, x + ipu.replication_ops.replication_index())
        return ipu.cross_replica_ops.cross_replica_sum(own)

    assert fails_and_recovers(ipu.compile(model, engine=engine), check, f32(1)) == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [pure, debug])
@engines
def test_in_a_pipeline(kind: Any, engine: str) -> None:
    use_ipus(2)
    check = Check()
    data = IPUInfeedQueue(lambda: (f32([i, 1]) for i in range(100)))

    def first(w: Any, x: Any) -> Any:
        return kind(check, jax.lax.stop_gradient(x)) * w

    def optimize(loss: Any) -> Any:
        return OptimizerFunctionOutput(optax.sgd(0.0), loss)

    def model(w: Any) -> Any:
        return pipeline(
            [first, lambda w, x: x.sum()],
            4,
            infeed_queue=data,
            outfeed_queue=IPUOutfeedQueue(),
            optimizer_function=optimize,
            device_mapping=[0, 1],
            variables=w,
        )[0]

    run = ipu.compile(model, engine=engine)
    np.testing.assert_array_equal(fails_and_recovers(run, check, f32([1, 2])), [1, 2])


@engines
def test_without_results(engine: str) -> None:
    check = Check()
    run = ipu.compile(lambda x: jax.debug.callback(check, x), engine=engine)
    assert fails_and_recovers(run, check, f32(1)) is None


def test_inside_what_jax_calls() -> None:
    check = Check()

    def model(x: Any) -> Any:
        inner = jax.jit(lambda x: pure(check, x))
        return jax.lax.cond(
            x > 0, lambda x: jax.lax.scan(lambda c, _: (inner(c), ()), x, length=2)[0], jnp.sin, x
        )

    assert fails_and_recovers(ipu.compile(model), check, f32(1)) == 1


def test_a_format_that_does_not_fit() -> None:
    def model(x: Any) -> Any:
        jax.debug.print("{:d}", x)
        return x

    with pytest.raises(CallbackError, match="raised ") as caught:
        ipu.compile(model)(f32(1.5))
    assert caught.value.__cause__ is not None


def test_an_interrupt_stays_one() -> None:
    check = Check()
    check.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        ipu.compile(lambda x: pure(check, x))(f32(1))


def test_ahead_of_time() -> None:
    check = Check()
    executable = ipu.compile(lambda x: io(check, x)).lower(f32(1)).compile()
    assert fails_and_recovers(executable, check, f32(1)) == 1


def test_the_process_ends_as_if_nothing_had_been(run_with_devices: RunWithDevices) -> None:
    source = """
        import jax, numpy as np
        import ipujax as ipu
        from jax.experimental import io_callback

        def bad(x):
            raise KeyError("boom")

        def model(x):
            return io_callback(bad, jax.typeof(x), x, ordered=True)

        try:
            ipu.compile(model)(np.float32(1))
        except ipu.errors.CallbackError as error:
            print(type(error.__cause__).__name__)
    """
    assert run_with_devices(1, source) == "KeyError\n"
