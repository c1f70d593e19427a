"""`print_tensor`, everywhere that code can be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError
from ipujax.internal_ops import print_tensor
from tests.conftest import RunWithDevices

Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, fn: Callable[..., Any], *args: Any) -> list[str]:
    """The lines on standard error, once the function has run."""
    jax.block_until_ready(fn(*args))
    jax.effects_barrier()
    out, err = capsys.readouterr()
    assert out == ""
    return not_logged(err)


def not_logged(text: str) -> list[str]:
    return [line for line in text.splitlines() if not re.match(r"[IWE]\d{4} ", line)]


def configure(ipus: int) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()


def test_prints_name_and_value_and_gives_the_input_back(capsys: Capture) -> None:
    x = jnp.array([[1.0, 2.0]])
    assert print_tensor(x) is x
    assert printed(capsys, lambda: print_tensor(x, name="x")) == ["[[1. 2.]]", "x: [[1. 2.]]"]


@pytest.mark.parametrize("wrap", [jax.jit, ipu.compile], ids=["jit", "compile"])
def test_prints_in_the_order_of_the_program(capsys: Capture, wrap: Callable[..., Any]) -> None:
    def model(x: Any) -> Any:
        for i in range(5):
            x = print_tensor(x + i, f"a{i}")
            print_tensor(x @ x, f"b{i}")
        return x

    values = np.cumsum(range(5))
    expected = [
        line for i, v in enumerate(values) for line in (f"a{i}: [[{v}.]]", f"b{i}: [[{v * v}.]]")
    ]
    run = wrap(model)
    for _ in range(2):
        assert printed(capsys, run, jnp.zeros((1, 1))) == expected


def test_prints_on_several_ipus_in_order(capsys: Capture) -> None:
    def model(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            x = print_tensor(x * 2, "first")
        with ipu.scopes.ipu_shard(1):
            return print_tensor(x * 2, "second")

    configure(2)
    run = ipu.compile(model)
    assert printed(capsys, run, jnp.ones(2)) == ["first: [2. 2.]", "second: [4. 4.]"]


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_each_replica_prints(capsys: Capture, engine: str) -> None:
    def model(x: Any) -> Any:
        print_tensor(x, "shared")
        return print_tensor(x + ipu.replication_ops.replication_index(), "x")

    configure(2)
    run = ipu.compile(model, engine=engine)
    assert printed(capsys, run, 1) == ["shared: 1", "shared: 1", "x: 1", "x: 2"]


def loop(x: Any) -> Any:
    def step(carry: Any, i: Any) -> Any:
        return print_tensor(carry * i, "carry"), None

    return jax.lax.scan(step, x, jnp.arange(1.0, 4.0))[0]


@pytest.mark.parametrize(
    "transform",
    [lambda f: f, jax.grad, lambda f: jax.grad(jax.checkpoint(f))],
    ids=["plain", "grad", "remat"],
)
def test_prints_in_a_loop(capsys: Capture, transform: Callable[..., Any]) -> None:
    lines = printed(capsys, jax.jit(transform(loop)), 1.0)
    assert lines[:3] == ["carry: 1.0", "carry: 2.0", "carry: 6.0"]
    assert jax.jit(transform(loop))(1.0) == 6.0


def test_prints_each_example_under_vmap(capsys: Capture) -> None:
    lines = printed(capsys, jax.vmap(loop), jnp.array([1.0, 10.0]))
    assert lines == [f"carry: {v:.1f}" for v in (1, 10, 2, 20, 6, 60)]


def test_prints_from_several_devices(run_with_devices: RunWithDevices) -> None:
    out = run_with_devices(
        4,
        """
        import sys
        import jax, jax.numpy as jnp
        import ipujax as ipu

        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 4
        config.configure_ipu_system()
        sys.stderr = sys.stdout

        def model(x):
            return ipu.internal_ops.print_tensor(x + ipu.replication_ops.replication_index(), "x")

        ipu.compile(model)(1)
        jax.effects_barrier()
        """,
    )
    assert sorted(not_logged(out)) == ["x: 1", "x: 2", "x: 3", "x: 4"]


def test_prints_in_the_loops_of_ipujax(capsys: Capture) -> None:
    run = ipu.compile(lambda x: ipu.loops.repeat(3, lambda x: print_tensor(x + 1, "x"), [x]))
    assert printed(capsys, run, 0) == ["x: 1", "x: 2", "x: 3"]


def test_prints_in_the_branch_that_is_taken(capsys: Capture) -> None:
    def model(x: Any) -> Any:
        yes, no = lambda: print_tensor(x, "yes"), lambda: print_tensor(x, "no")
        return jax.lax.cond(x > 0, yes, no)

    assert printed(capsys, jax.jit(model), 1) == ["yes: 1"]


def test_prints_once_for_each_micro_batch_of_a_pipeline(capsys: Capture) -> None:
    def first(variables: Any, x: Any) -> Any:
        return print_tensor(x * variables["a"], "first")

    def second(variables: Any, hidden: Any) -> Any:
        print_tensor(hidden, "second")
        return jnp.sum(hidden * variables["b"])

    def step(variables: Any) -> Any:
        return ipu.pipelining_ops.pipeline(
            [first, second],
            gradient_accumulation_count=4,
            infeed_queue=infeed,
            outfeed_queue=ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(
                optax.sgd(0.1), loss
            ),
            variables=variables,
        )

    configure(2)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue([np.full(2, i, np.float32) for i in range(4)])
    lines = printed(capsys, ipu.compile(step), {"a": jnp.float32(1), "b": jnp.float32(2)})
    assert lines == [f"{stage}: [{i}. {i}.]" for i in range(4) for stage in ("first", "second")]


def test_prints_the_primal_once_under_grad(capsys: Capture) -> None:
    def model(x: Any) -> Any:
        print_tensor(x * 2, "x")
        return ipu.loops.repeat(2, lambda y: print_tensor(y * x, "y"), [x])

    assert printed(capsys, ipu.compile(jax.grad(model)), 2.0) == ["x: 4.0", "y: 4.0", "y: 8.0"]
    lines = printed(capsys, ipu.compile(jax.vmap(jax.grad(model))), jnp.array([1.0, 2.0]))
    assert sorted(lines) == ["x: 2.0", "x: 4.0", "y: 1.0", "y: 1.0", "y: 4.0", "y: 8.0"]


@pytest.mark.parametrize("value", [None, {"a": 1.0}, "text", (jnp.ones(2), jnp.ones(3))])
def test_prints_arrays_only(value: Any) -> None:
    with pytest.raises(ConfigTypeError, match="the input of print_tensor cannot be an array"):
        print_tensor(value)


def test_its_name_is_a_string() -> None:
    with pytest.raises(ConfigTypeError, match="the name of print_tensor is 3"):
        print_tensor(1.0, 3)  # pyright: ignore[reportArgumentType]


def test_large_arrays_are_abridged(capsys: Capture) -> None:
    assert printed(capsys, print_tensor, jnp.arange(5000)) == [
        "[   0    1    2 ... 4997 4998 4999]"
    ]
