"""Conformance facts about compiling, placing, scopes and host operations."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import ipu_compiler
from ipujax.errors import (
    DeviceError,
    IPUError,
    OutsideCompilationError,
    ScopeError,
    ShardError,
)
from ipujax.events import IpuTraceEventType as Type
from ipujax.replication_ops import replication_index
from ipujax.scopes import ipu_scope, ipu_shard, outside_compilation_scope
from lowering import marks
from lowering.jaxprs import jaxpr
from tests.ipujax.feeding import compilations, configure, executions, infeed, outfeed

ENGINES = pytest.mark.parametrize("engine", ["fused", "replay"])


def replicas_of(*shards: int) -> int:
    """The replication factor of a program that uses these shards of the configured device."""

    def program(x: jax.Array) -> jax.Array:
        for shard in shards:
            with ipu_shard(shard):
                x = x + 1
        return ipu.cross_replica_ops.cross_replica_sum(jnp.ones_like(x))

    return int(ipu.compile(program)(np.float32(0)))


# --- shards and replicas --------------------------------------------------------------------------


@pytest.mark.fact("devices.shards_power2")
@pytest.mark.parametrize(
    ("ipus", "shards", "replicas"),
    [
        (1, (), 1),
        (4, (), 4),
        (6, (), 6),
        (4, (0,), 4),
        (4, (1,), 2),
        (4, (2,), 1),
        (8, (0, 3), 2),
        (16, (4,), 2),
        (8, (7,), 1),
        (6, (1,), 3),
    ],
)
def test_shards_are_rounded_up_and_the_rest_is_replicas(
    ipus: int, shards: tuple[int, ...], replicas: int
) -> None:
    configure(ipus)
    assert replicas_of(*shards) == replicas


@pytest.mark.fact("devices.shards_divide")
@pytest.mark.parametrize(("ipus", "shards"), [(6, (0, 1, 2)), (6, (3,)), (3, (1,)), (12, (7,))])
def test_shards_must_divide_the_ipus(ipus: int, shards: tuple[int, ...]) -> None:
    configure(ipus)
    with pytest.raises(ShardError, match="number of shards must divide the number of IPUs"):
        replicas_of(*shards)


@pytest.mark.fact("devices.replication_auto")
def test_two_programs_on_one_device_have_their_own_factors() -> None:
    configure(4)
    assert replicas_of(0, 1) == 2
    assert replicas_of() == 4
    assert replicas_of(0, 1) == 2


@pytest.mark.fact("devices.replication_3shards")
def test_three_shards_on_eight_ipus_are_two_replicas() -> None:
    configure(8)
    assert replicas_of(0, 1, 2) == 2


@pytest.mark.fact("devices.ordinal_out_of_range")
def test_a_program_for_a_device_that_is_not_configured() -> None:
    configure(1, 1)
    run = ipu.compile(lambda x: x + 1, device="/device:IPU:2")
    with pytest.raises(DeviceError, match=r"no device with ordinal 2.*auto_select_ipus"):
        run(1.0)
    assert ipu.compile(lambda x: x + 1, device="/device:IPU:1")(1.0) == 2.0


# --- devices --------------------------------------------------------------------------------------


@pytest.mark.fact("compile.wrong_device")
def test_a_program_on_the_cpu_is_refused() -> None:
    with ipu_scope("cpu"), pytest.raises(DeviceError, match="not an IPU"):
        ipu_compiler.compile(lambda a: a + a, [np.float32(1)])


@pytest.mark.fact("compile.noop_wrong_device")
def test_nothing_may_be_compiled_anywhere() -> None:
    with ipu_scope("cpu"):
        assert ipu_compiler.compile(lambda: None) is None


@pytest.mark.fact("compile.scope_merge")
def test_two_scopes_are_one_program() -> None:
    def program(x: jax.Array, y: jax.Array) -> jax.Array:
        with ipu.scopes.ipu_jit_scope("first"):
            z = x @ y
        with ipu.scopes.ipu_jit_scope(0):  # as the original's `ipu_scope` calls it
            return x @ z

    ones = np.ones((2, 2), np.float32)
    with ipu.events.record() as trace:
        result = ipu.compile(program)(ones, ones)
    np.testing.assert_array_equal(result, [[4, 4], [4, 4]])
    assert compilations(trace) == 1
    assert executions(trace) == 1


@pytest.mark.fact("compile.events")
@ENGINES
def test_events_of_one_run(engine: str) -> None:
    def out(a: jax.Array, b: jax.Array) -> jax.Array:
        return a + b

    with ipu.events.record() as trace:
        result = ipu.compile(out, engine=engine)(np.float32([1]), np.float32([2]))
    np.testing.assert_array_equal(result, [3])
    assert ipu.utils.extract_all_types_from_event_trace(trace) == [
        Type.COMPILE_BEGIN,
        Type.COMPILE_END,
        Type.LOAD_ENGINE,
        Type.EXECUTE,
    ]
    assert {event.module for event in trace} == {"out"}


# --- what a function may return -------------------------------------------------------------------


class Spec(NamedTuple):
    """Something that a user may return by mistake: the name of a mode is no array."""

    mode: str
    loss: jax.Array


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [2, [], 1, [x]], lambda x: {"a": (x,)}])
def test_results_that_are_no_arrays_are_refused_at_any_depth(wrap: Any) -> None:
    run = ipu.compile(lambda x: wrap(Spec("train", x)))
    with pytest.raises(TypeError, match=r"(?s)'train'|str"):
        run(np.float32(1))


# --- scopes ---------------------------------------------------------------------------------------


def attributes_of(program: Any, primitive: str, names: list[str]) -> list[dict[str, bool]]:
    closed = jax.make_jaxpr(program)(1.0)
    return [
        {name: ipu.sharding.has_attr(eqn, name) for name in names}
        for eqn in closed.jaxpr.eqns
        if eqn.primitive.name == primitive
    ]


def test_frontend_attributes_are_in_the_text() -> None:
    def model(x: Any) -> Any:
        with ipu.scopes.frontend_attribute("attr_a", "a"):
            x = jnp.sin(x)
            with ipu.scopes.frontend_attribute("attr_a", "c"):
                x = jnp.cos(x)
            x = jnp.tanh(x)
        return jnp.exp(x)

    text = ipu.compile(model).lower(jnp.ones(3)).as_text()
    assert "= [sin, cos, tanh, exp](%0)\n    attribute attr_a=a: sin, tanh\n" in text
    assert "\n    attribute attr_a=c: cos\n" in text
    assert text.count("attribute") == 2


@pytest.mark.fact("compile.frontend_attr_nest")
def test_frontend_attributes_nest() -> None:
    def program(x: jax.Array) -> jax.Array:
        with ipu.scopes.frontend_attribute("attr_a", "a"):
            x = jnp.sin(x)
            with (
                ipu.scopes.frontend_attribute("attr_a", "c"),
                ipu.scopes.frontend_attribute("attr_b", "b"),
            ):
                x = jnp.sin(x)
            x = jnp.sin(x)
        return jnp.sin(x)

    closed = jax.make_jaxpr(program)(1.0)
    seen = [dict(marks.read_marks(jaxpr.name_stack(eqn)).attributes) for eqn in closed.jaxpr.eqns]
    assert seen == [{"attr_a": "a"}, {"attr_a": "c", "attr_b": "b"}, {"attr_a": "a"}, {}]
    assert attributes_of(program, "sin", ["attr_a", "attr_b"]) == [
        {"attr_a": True, "attr_b": False},
        {"attr_a": True, "attr_b": True},
        {"attr_a": True, "attr_b": False},
        {"attr_a": False, "attr_b": False},
    ]


@pytest.mark.fact("compile.stoch_round_nest")
def test_stochastic_rounding_scopes_nest() -> None:
    rounding = ipu.scopes.stochastic_rounding

    def program(x: jax.Array) -> jax.Array:
        x = jnp.sin(x)
        with rounding(False):
            x = jnp.sin(x)
        with rounding(True):
            x = jnp.sin(x)
        with rounding(False):
            with rounding(True):
                x = jnp.sin(x)
            x = jnp.sin(x)
        with rounding(True):
            with rounding(False):
                x = jnp.sin(x)
            x = jnp.sin(x)
        return x

    default = "True"  # what the configuration says where no scope does: esr=True
    closed = jax.make_jaxpr(program)(1.0)
    found = [
        dict(marks.read_marks(jaxpr.name_stack(eqn)).attributes).get(
            marks.STOCHASTIC_ROUNDING, default
        )
        for eqn in closed.jaxpr.eqns
    ]
    assert found == ["True", "False", "True", "True", "False", "False", "True"]


# --- operations on the host -----------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.fact("compile.outside_scalar")
@ENGINES
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
def test_a_scalar_goes_to_the_host_and_back(dtype: Any, engine: str) -> None:
    with jax.enable_x64(True):

        def f(x: jax.Array) -> jax.Array:
            x = x * x
            with outside_compilation_scope():
                y = (x.astype(jnp.float64) * 2).astype(x.dtype)
            return y + 2

        run = ipu.compile(f, engine=engine)
        with ipu.events.record() as trace:
            results = [run(dtype(i)) for i in range(3)]
    assert [float(r) for r in results] == [2, 4, 10]
    assert {r.dtype for r in results} == {np.dtype(dtype)}
    assert compilations(trace) == 1


@pytest.mark.fact("compile.outside_reuse")
@ENGINES
def test_a_value_that_was_sent_to_the_host_keeps_its_value(engine: str) -> None:
    def f(x: jax.Array) -> jax.Array:
        x = x * x
        with outside_compilation_scope():
            y = x + 1
        return x * y

    assert ipu.compile(f, engine=engine)(np.float32(2)) == 20


@pytest.mark.fact("compile.outside_vector")
@ENGINES
def test_a_vector_goes_to_the_host_and_back(engine: str) -> None:
    with jax.enable_x64(True):

        def f(x: jax.Array) -> jax.Array:
            x = x + x
            with outside_compilation_scope():
                y = (x.astype(jnp.float64) + 2).astype(x.dtype)
            return y + 2

        result = ipu.compile(f, engine=engine)(np.float32([1, 2]))
    np.testing.assert_array_equal(result, [6, 8])


def in_a_repeat(x: jax.Array) -> jax.Array:
    def body(x: jax.Array) -> jax.Array:
        with outside_compilation_scope():
            return x + 1

    return ipu.loops.repeat(3, body, [x])


def in_a_repeat_with_queues(x: jax.Array) -> jax.Array:
    source, sink = infeed([np.float32(1)] * 3), outfeed()

    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        with outside_compilation_scope():
            x = x + y
        sink.enqueue(x)
        return x

    return ipu.loops.repeat(3, body, [x], source)


def in_a_branch(x: jax.Array) -> jax.Array:
    def branch(x: jax.Array) -> jax.Array:
        with outside_compilation_scope():
            return x + 1

    return jax.lax.cond(x > 0, branch, lambda x: x, x)


def in_a_while(x: jax.Array) -> jax.Array:
    def body(x: jax.Array) -> jax.Array:
        with outside_compilation_scope():
            return x + 1

    return ipu.loops.while_loop(lambda x: x < 3, body, [x])


@pytest.mark.fact("compile.outside_loop")
@pytest.mark.parametrize("program", [in_a_repeat, in_a_repeat_with_queues, in_a_branch, in_a_while])
def test_host_operations_inside_control_flow_are_refused(program: Any) -> None:
    with pytest.raises(OutsideCompilationError) as caught:
        ipu.compile(program)(np.float32(1))
    assert "control flow" in str(caught.value) or "loop" in str(caught.value)
    assert "test_facts_compile.py" in caught.value.where


@pytest.mark.fact("compile.outside_nested")
def test_host_scopes_do_not_nest() -> None:
    def f(x: jax.Array) -> jax.Array:
        with outside_compilation_scope("outer"), outside_compilation_scope("inner"):
            return x + 1

    with pytest.raises(ScopeError, match=r"inner.*inside.*outer") as caught:
        ipu.compile(f)(1.0)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, IPUError)
    with outside_compilation_scope():  # the failed scopes are closed
        pass


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_the_host_gets_the_first_replicas_values_and_answers_all(engine: str) -> None:
    configure(4)

    def program(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        index = replication_index()
        with outside_compilation_scope():
            answer = index + 1 + x
        every = ipu.all_to_all_op.all_gather(answer, 4)
        return every, ipu.cross_replica_ops.cross_replica_sum(10 * index + answer)

    every, total = ipu.compile(program, engine=engine)(np.int32(5))
    np.testing.assert_array_equal(every, [6, 6, 6, 6])
    assert total == 60 + 4 * 6


def test_the_index_of_a_replica_is_not_the_index_of_a_shard() -> None:
    configure(4)

    def program() -> jax.Array:
        with ipu_shard(1):
            index = replication_index()
        return ipu.cross_replica_ops.cross_replica_sum(index)

    assert int(ipu.compile(program)()) == 1
