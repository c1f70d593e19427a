"""`ipu.compile(f).trace(...)`: what is known of a function before its device has a part in it."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import DeviceError, LeakedValueError
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.utils import DeviceConnectionType

SHAPE = jax.ShapeDtypeStruct((2, 3), np.float32)


def scaled(x: Any, count: int, *, scale: Any = 2.0) -> Any:
    return {"y": [x["a"] * scale] * count}


def test_what_a_traced_function_says_of_itself() -> None:
    traced = ipu.compile(scaled, static_argnums=1, donate_argnums=0).trace({"a": SHAPE}, 2, scale=3)
    first = inspect.getsourcelines(scaled)[1]
    assert traced.name == "scaled"
    assert traced.line == f"{__file__}:{first} (scaled)"
    aval: Any = traced.out_avals
    assert [each.shape for each in aval["y"]] == [(2, 3)] * 2
    (x,), kwargs = traced.in_avals  # pyright: ignore[reportGeneralTypeIssues]
    assert (x["a"].shape, kwargs["scale"].dtype) == ((2, 3), np.int32)
    assert traced.signature.donated == (0,)
    assert list(traced.signature.argument_paths()) == ["args[0]['a']", "kwargs['scale']"]
    assert list(traced.signature.result_paths()) == ["results['y'][0]", "results['y'][1]"]
    assert traced.queues == ()


def test_a_function_without_code_has_no_line() -> None:
    class Callable:
        def __call__(self, x: Any) -> Any:
            return x

    assert ipu.compile(Callable()).trace(SHAPE).line == ""


def test_tracing_and_lowering_are_what_lower_does() -> None:
    run = ipu.compile(scaled, static_argnums=1)
    traced = run.trace({"a": SHAPE}, 2)
    assert traced.lower().as_text() == run.lower({"a": SHAPE}, 2).as_text()
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    result = traced.lower().compile()({"a": x}, 2)
    np.testing.assert_array_equal(result["y"][1], x * 2)


def test_a_traced_function_is_lowered_for_the_device_of_that_moment() -> None:
    traced = ipu.compile(lambda x: x + 1).trace(SHAPE)
    assert traced.lower().program.replicas == 1
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    assert traced.lower().program.replicas == 2


def test_a_device_that_is_none_is_found_when_lowering() -> None:
    traced = ipu.compile(lambda x: x + 1, device="/cpu:0").trace(SHAPE)
    with pytest.raises(DeviceError, match="not an IPU"):
        traced.lower()


def test_a_leaked_value_is_found_when_tracing() -> None:
    kept: list[Any] = []
    jax.jit(kept.append)(1.0)
    with pytest.raises(LeakedValueError):
        ipu.compile(lambda x: x + kept[0]).trace(1.0)


def test_queues_and_refs() -> None:
    infeed, outfeed = IPUInfeedQueue([1.0]), IPUOutfeedQueue()
    state = jax.new_ref(jnp.zeros(()))

    def body(total: Any, x: Any) -> Any:
        outfeed.enqueue(total)
        return total + x

    def run(given: Any) -> Any:
        state[...] += 1
        return ipu.loops.repeat(3, body, [given[...]], infeed)

    traced = ipu.compile(run).trace(jax.new_ref(jnp.ones(())))
    assert set(traced.queues) == {infeed, outfeed}
    assert traced.signature.refs.positions == (0, 1)
    assert traced.signature.refs.closed_over == (state,)


def test_a_method_is_traced_without_its_instance() -> None:
    class Model:
        @ipu.compile
        def apply(self, x: Any) -> Any:
            return x * 2

    jax.tree_util.register_static(Model)
    assert Model().apply.trace(SHAPE).lower().as_text().startswith("program apply")


def test_arguments_keep_their_places_beside_a_static_one_by_keyword() -> None:
    def copies(x: Any, count: int, scale: Any = 2.0, kind: Any = None) -> Any:
        del kind
        return [x * scale] * count

    lowered = ipu.compile(copies, static_argnums=(1, 3)).lower(SHAPE, count=3)
    assert set(lowered.report().arguments.values()) == {"args[0]"}


def test_compiling_alone_gives_zeros_where_faults_are_caught() -> None:
    config = ipu.config.IPUConfig()
    config.floating_point_behaviour.inv = True
    config.device_connection.type = DeviceConnectionType.PRE_COMPILE
    config.device_connection.version = "ipu2"
    config.configure_ipu_system()
    a, b = ipu.compile(lambda x: (jnp.log(x), x / x))(np.float32([-1, 0]))
    assert (a.tolist(), b.tolist()) == ([0, 0], [0, 0])


def test_one_kernel_and_host_driven_calls_of_one_function() -> None:
    """The signature that the host must drive is met after one that `jax.jit` runs alone."""
    outfeed = IPUOutfeedQueue()

    @ipu.compile
    def run(x: Any) -> Any:
        if x.ndim:
            outfeed.enqueue(x)
        return x + 1

    for _ in range(2):
        assert run(np.float32(1)) == 2
        np.testing.assert_array_equal(run(np.float32([1, 2])), [2, 3])
    np.testing.assert_array_equal(outfeed.dequeue(), [[1, 2], [1, 2]])
