"""Kernels of replayed programs: each compiled once, and before the program runs."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.engine import task_compilation as engine_compilation
from ipujax.engine.task_compilation import Compilation
from tests.conftest import RunWithDevices
from tests.numbers import same, use_ipus

V = jax.ShapeDtypeStruct((3,), jnp.float32)


def logged(caplog: pytest.LogCaptureFixture, what: str) -> int:
    return sum(what in record.message for record in caplog.records)


def test_what_is_compiled_is_called() -> None:
    compilation = Compilation()
    both = [compilation.add_function(fn, [V]) for fn in (jnp.sin, jnp.cos)]
    compilation.compile_all()
    compiled = [each.compile_function() for each in both]
    compilation.compile_all()
    assert [each.compile_function() for each in both] == compiled
    x = np.ones(3, np.float32)
    same([each(x) for each in both], [jnp.sin(x), jnp.cos(x)])


class Meeting:
    """A jitted function without results, whose compilation waits for that of the others."""

    out_info = ()
    output_shardings = ()

    def __init__(self, barrier: threading.Barrier):
        self.barrier = barrier

    def lower(self, *operands: Any) -> Meeting:
        return self

    def compile(self) -> Meeting:
        self.barrier.wait(timeout=120)
        return self


def test_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = threading.Barrier(3)
    monkeypatch.setattr(engine_compilation, "count_host_cores", lambda: 3)
    monkeypatch.setattr(jax, "jit", lambda function, **options: Meeting(barrier))
    compilation = Compilation()
    three = [compilation.add_function(jnp.sin, [V]) for _ in range(3)]
    compilation.compile_all()
    assert all(isinstance(each.compile_function(), Meeting) for each in three)


def test_a_function_that_cannot_be_compiled() -> None:
    def wrong(x: Any) -> Any:
        raise ValueError("no such kernel")

    compilation = Compilation()
    for function in (jnp.sin, wrong):
        compilation.add_function(function, [V])
    with pytest.raises(ValueError, match="no such kernel"):
        compilation.compile_all()


def layers(x: Any) -> Any:
    for number in range(4):
        with ipu.scopes.ipu_shard(number % 2):
            x = jnp.tanh(x) * 2
    return jax.lax.scan(lambda c, _: (layer(layer(c, 0), 1), None), x, None, length=2)[0]


def layer(x: Any, number: int) -> Any:
    with ipu.scopes.ipu_shard(number):
        return jnp.sinh(x) * 0.1


def test_equal_kernels_are_compiled_once_and_calls_compile_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    use_ipus(2)
    x = jnp.ones(5)
    lowered = ipu.compile(layers, engine="replay").lower(x)
    with jax.log_compiles():
        executable = lowered.compile()
        # One of them twice: the first may not overwrite the argument that it reads.
        assert logged(caplog, "MLIR module conversion jit(run_node_kernel)") == 3
        caplog.clear()
        result = executable(x)
        assert logged(caplog, "Finished XLA compilation") == 0
    same(result, jax.jit(layers)(x))


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_weak_types_of_arguments_stay(engine: str) -> None:
    use_ipus(2)
    run = ipu.compile(layers, engine=engine)
    same(run(1.0), jax.jit(layers)(1.0))
    same(run(jnp.float32(1)), jax.jit(layers)(jnp.float32(1)))


@pytest.mark.exhaustive
def test_on_several_devices(run_with_devices: RunWithDevices) -> None:
    out = run_with_devices(
        4,
        """
        import logging
        import jax, jax.numpy as jnp
        import ipujax as ipu
        from tests.ipujax.driver.test_kernels import layers
        from tests.numbers import same, use_ipus

        found = []
        class Count(logging.Handler):
            def emit(self, record):
                if "Finished XLA compilation" in record.getMessage():
                    found.append(record)

        logging.getLogger("jax").addHandler(Count())
        for ipus in (2, 4):
            use_ipus(ipus)
            x = jnp.ones(5)
            # The number of a replica has them differ: equal ones run once.
            function = lambda x: layers(x) + ipu.replication_ops.replication_index()
            lowered = ipu.compile(function, engine="replay").lower(x)
            with jax.log_compiles():
                executable = lowered.compile()
                found.clear()
                executable(x)
                executable(x)
            same(executable(x), jax.jit(layers)(x))
            print(ipus, lowered.placement.spread, len(found))
        """,
    )
    assert out.splitlines()[0] == "2 False 0"
    assert out.splitlines()[1].startswith("4 True")
