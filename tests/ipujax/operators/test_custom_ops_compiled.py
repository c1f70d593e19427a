"""Custom operations in Programs: sharded, replicated, in loops and pipelines, and modelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.custom_ops import codelet_expression_op, cpu_user_operation, precompiled_user_op
from ipujax.errors import CustomOpError
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.conftest import RunWithDevices
from tests.ipujax.building import built

f32 = np.float32
OPERATORS = (precompiled_user_op, cpu_user_operation)
both = pytest.mark.parametrize("operator", OPERATORS)
engines = pytest.mark.parametrize("engine", ["fused", "replay"])


def configure(ipus: int) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()


def negate(x: Any, operator: Any, name: str = "negate") -> Any:
    outs = {"output_types": [x.dtype], "output_shapes": [x.shape]}
    (result,) = operator([x], built("functions.cc"), outs=outs, op_name="Negate", name=name)
    return result


def text_of(function: Callable[..., Any], *args: Any) -> str:
    return ipu.compile(function).lower(*args).as_text()


def test_one_is_a_kernel_and_the_other_a_host_call() -> None:
    x = jnp.ones(3)
    one = text_of(lambda x: 2 * negate(x + 1, precompiled_user_op), x)
    assert one.count("execute") == 1
    assert "host-call" not in one
    assert text_of(lambda x: 2 * negate(x + 1, cpu_user_operation), x).splitlines()[1:] == [
        "  inputs %0 float32[3]",
        "  copy host -> ipu 0: %0",
        "  execute ipu 0: %1 float32[3] = [add](%0)",
        "  copy ipu 0 -> host: %1",
        "  host-call negate: %2 float32[3] = [negate](%1)",
        "  copy host -> ipu 0: %2",
        "  execute ipu 0: %3 float32[3] = [multiply](%2)",
        "  copy ipu 0 -> host: %3",
        "  outputs %3",
    ]
    gradient = text_of(jax.grad(lambda x: (negate(x, cpu_user_operation) ** 2).sum()), x)
    assert "host-call negate_grad" in gradient
    mapped = text_of(jax.vmap(lambda x: negate(x, cpu_user_operation)), jnp.ones((4, 3)))
    assert "host-call negate: %1 float32[4,3] = [negate](%0)" in mapped


@both
@engines
def test_sharded(operator: Any, engine: Any) -> None:
    configure(2)

    def loss(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            x = negate(x * 2, operator)
        with ipu.scopes.ipu_shard(1):
            return (negate(x + 1, operator, "second") ** 2).sum()

    run = ipu.compile(jax.value_and_grad(loss), engine=engine)
    x = jnp.arange(3.0)
    value, gradient = run(x)
    assert value == 1 + 1 + 9
    np.testing.assert_array_equal(gradient, 2 * (2 * x - 1) * 2)
    if operator is precompiled_user_op:
        text = run.lower(x).as_text()
        assert text.index("execute ipu 1") > text.index("execute ipu 0")
        assert "host-call" not in text


@both
@engines
def test_replicated(operator: Any, engine: Any) -> None:
    configure(2)

    def model(x: Any) -> Any:
        own = negate(x + ipu.replication_ops.replication_index(), operator)
        return ipu.cross_replica_ops.cross_replica_sum(own)

    np.testing.assert_array_equal(ipu.compile(model, engine=engine)(jnp.ones(2)), [-3, -3])


@pytest.mark.exhaustive
def test_on_several_devices(run_with_devices: RunWithDevices) -> None:
    out = run_with_devices(
        4,
        f"""
        import jax, jax.numpy as jnp
        import ipujax as ipu

        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 4
        config.configure_ipu_system()

        def negate(x, operator):
            outs = {{"output_types": [x.dtype], "output_shapes": [x.shape]}}
            return operator([x], {built("functions.cc")!r}, outs=outs, op_name="Negate")[0]

        def sharded(x, operator):
            for shard in range(4):
                with ipu.scopes.ipu_shard(shard):
                    x = 2 * negate(x + 1, operator)
            return x.sum()

        def replicated(x, operator):
            own = negate(x + ipu.replication_ops.replication_index(), operator)
            return ipu.cross_replica_ops.cross_replica_sum(own).sum()

        for operator in (ipu.custom_ops.precompiled_user_op, ipu.custom_ops.cpu_user_operation):
            for model in (sharded, replicated):
                for engine in ("fused", "replay"):
                    function = lambda x: jax.value_and_grad(lambda x: model(x, operator))(x)
                    value, gradient = ipu.compile(function, engine=engine)(jnp.ones(2))
                    print(model.__name__, value, gradient)
        """,
    )
    # 1 -> -4 -> 6 -> -14 -> 26, twice; each step has the slope -2.
    wanted = ["sharded 52.0 [16. 16.]"] * 2 + ["replicated -20.0 [-4. -4.]"] * 2
    assert out.splitlines() == wanted * 2


@pytest.mark.sampled(2)
@both
@engines
def test_in_loops_and_conditions(operator: Any, engine: Any) -> None:
    infeed = IPUInfeedQueue(lambda: iter([f32([i, 1]) for i in range(4)]))

    def scanned(x: Any) -> Any:
        step = lambda carry, x: (negate(carry, operator) + x, negate(x, operator))  # noqa: E731
        last, each = jax.lax.scan(step, jnp.zeros(2), jnp.stack([x, 2 * x, 3 * x]))
        return (last * x).sum() + each.sum()

    def model(x: Any) -> Any:
        fed = ipu.loops.repeat(4, lambda x, e: negate(x, operator) + e, [x], infeed)
        again = jax.lax.while_loop(
            lambda x: x[0] < 8, lambda x: negate(negate(2 * x, operator), operator), x + 1
        )
        chosen = jax.lax.cond(x[0] > 0, lambda: negate(x, operator), lambda: x)
        return fed, again, chosen, *jax.value_and_grad(scanned)(x)

    x = jnp.array([1.0, 2.0])
    fed, again, chosen, value, gradient = ipu.compile(model, engine=engine)(x)
    # Elements 0, 1, 2, 3 with alternating signs: x - 0 + 1 - 2 + 3, and 0 from the ones.
    np.testing.assert_array_equal(fed, [1 + 2, 2])
    np.testing.assert_array_equal(again, [8, 12])
    np.testing.assert_array_equal(chosen, [-1, -2])
    # last = x - 2x + 3x = 2x; the sum of what was sent is -6x.
    assert value == 2 * (1 + 4) - 6 * 3
    np.testing.assert_array_equal(gradient, 4 * x - 6)


@pytest.mark.sampled(2)
@both
@engines
@pytest.mark.parametrize("replicas", [1, 2])
def test_in_a_pipeline(operator: Any, engine: Any, replicas: int) -> None:
    configure(2 * replicas)
    data = np.random.default_rng(0).normal(size=(4 * replicas, 3)).astype(f32)

    def train(operation: Callable[[Any], Any], stops: Callable[[Any], Any]) -> Any:
        infeed, losses = IPUInfeedQueue(lambda: iter(data)), IPUOutfeedQueue()

        def first(w: Any, x: Any) -> Any:
            return operation(w["a"] * x)

        def second(w: Any, x: Any) -> Any:
            scaled = codelet_expression_op(lambda x: 2 * x, stops(x))
            return (operation(w["b"] * x) ** 2).sum() + (scaled * w["b"]).sum()

        def optimize(loss: Any) -> Any:
            return OptimizerFunctionOutput(optax.sgd(0.1), loss)

        def model(w: Any) -> Any:
            return pipeline(
                [first, second],
                4,
                infeed_queue=infeed,
                outfeed_queue=losses,
                optimizer_function=optimize,
                device_mapping=[0, 1],
                variables=w,
            )[0]

        return ipu.compile(model, engine=engine)({"a": jnp.ones(3), "b": jnp.full(3, 0.5)})

    found = train(lambda x: negate(x, operator), jax.lax.stop_gradient)
    wanted = train(lambda x: -x, jax.lax.stop_gradient)
    for key in "ab":
        np.testing.assert_allclose(found[key], wanted[key], rtol=1e-6)


@pytest.mark.sampled(1)
@engines
def test_logistic_regression_learns_the_same_with_a_product_of_its_own(engine: Any) -> None:
    """The original's feature example `custom_gradient/regression.py`, without its data set."""
    random = np.random.default_rng(0)
    x = random.normal(size=(32, 4)).astype(f32)
    y = (x @ f32([1, -2, 0.5, 0]) > 0).astype(f32)

    def compiled_product(w: Any, x: Any) -> Any:
        wide = jnp.broadcast_to(w, x.shape)
        (result,) = precompiled_user_op(
            [wide, x, jnp.ones_like(x)],
            built("functions.cc"),
            outs={"output_types": [x.dtype], "output_shapes": [x.shape]},
            op_name="Product3",
            separate_gradients=True,
            inputs_with_gradients=[0],
        )
        return result

    def train(product: Callable[..., Any]) -> Any:
        def loss(w: Any) -> Any:
            scores = product(w, x).sum(1)
            return optax.sigmoid_binary_cross_entropy(scores, y).mean()

        def step(w: Any, total: Any) -> Any:
            value, gradient = jax.value_and_grad(loss)(w)
            return w - 0.5 * gradient, total + value

        run = ipu.compile(lambda w: ipu.loops.repeat(100, step, [w, 0.0]), engine=engine)
        return run(jnp.full(4, 0.1))

    for found, wanted in zip(train(compiled_product), train(lambda w, x: w * x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_what_the_model_says() -> None:
    x = jnp.ones((100, 1000))

    def report(function: Callable[..., Any]) -> Any:
        return ipu.compile(jax.grad(lambda x: function(x).sum())).lower(x).report()

    kernel = report(lambda x: negate(x, precompiled_user_op))
    assert any("ipu_user_op" in step.name for step in kernel.steps)
    assert "is estimated by the general formula" in str(kernel)
    host = report(lambda x: negate(x, cpu_user_operation))
    assert any(step.kind == "host" for step in host.steps)
    assert "the host's `negate_grad` takes no time" in str(host)
    loop = report(lambda x: jax.lax.fori_loop(0, 2, lambda _, x: negate(x, cpu_user_operation), x))
    assert "what the host does in a callback takes no time" in str(loop)
    # Two iterations: x there and y back, then dy, y and x there and dx back.
    cycles = sum(step.cycles for step in loop.steps if step.kind == "host")
    chip = loop.target
    wanted = 2 * 6 * x.nbytes / chip.host_bytes_per_second * chip.clock_hz
    assert cycles == pytest.approx(wanted, rel=0.01)


def test_an_expression_is_one_vertex() -> None:
    x = jnp.ones(1000)
    report = (
        ipu.compile(lambda x: codelet_expression_op(lambda x, y: x * x + y, x, x)).lower(x).report()
    )
    assert [step.name for step in report.steps if step.kind == "compute"] == [
        "mul add/MapExpression"
    ]
    assert "general formula" not in str(report)


@both
def test_watching_for_faults(operator: Any) -> None:
    config = ipu.config.IPUConfig()
    config.floating_point_behaviour.div0 = True
    config.floating_point_behaviour.inv = True
    config.configure_ipu_system()
    run = ipu.compile(lambda x: 1 / negate(x, operator))
    np.testing.assert_array_equal(run(jnp.full(2, 2.0)), [-0.5, -0.5])
    with pytest.raises(ipu.errors.FloatingPointError):
        run(jnp.zeros(2))


@both
@engines
def test_what_xla_finds_when_a_program_runs(operator: Any, engine: Any) -> None:
    """Every custom operation of the program is named, with its library and line."""

    def run(x: Any) -> Any:
        return negate(negate(x, operator, "first").astype(jnp.bfloat16), operator, "second")

    with pytest.raises(CustomOpError, match="takes float16 and float32") as caught:
        ipu.compile(run, engine=engine)(jnp.ones(3))
    assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)
    where = [line for line in str(caught.value).splitlines() if "where: " in line]
    for name, line in zip(("first", "second"), where, strict=True):
        assert f"`{name}`, 'Negate' of {built('functions.cc')}, called at {__file__}" in line
    assert str(caught.value).startswith("`run`, which calls custom operations, failed: ")


def test_calls_on_two_lines_share_their_code() -> None:
    def text(function: Callable[..., Any]) -> str:
        return text_of(function, jnp.ones(3)).replace("other", "run")

    def run(x: Any) -> Any:
        return negate(x, precompiled_user_op)

    def other(x: Any) -> Any:
        return negate(x, precompiled_user_op)

    assert text(run) == text(other)


def test_the_failure_of_a_loop_and_of_a_gradient() -> None:
    def body(x: Any) -> Any:
        return negate(x.astype(jnp.bfloat16), precompiled_user_op).astype(f32)

    with pytest.raises(CustomOpError, match=r"(?s)takes float16.*`negate`, 'Negate'"):
        ipu.compile(lambda x: ipu.loops.repeat(3, body, [x]))(jnp.ones(3))
    with pytest.raises(CustomOpError, match=r"(?s)takes float16.*`negate_grad`, 'Negate_grad'"):
        ipu.compile(jax.grad(lambda x: body(x).sum()))(jnp.ones(3))


def test_programs_without_host_code_are_not_waited_for() -> None:
    lowered = ipu.compile(lambda x: x + 1).lower(jnp.ones(3))
    assert not lowered.execution.host_code
    lowered = ipu.compile(lambda x: negate(x, precompiled_user_op)).lower(jnp.ones(3))
    assert lowered.execution.host_code
