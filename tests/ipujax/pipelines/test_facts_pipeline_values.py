"""Conformance facts about what pipelines compute."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.optimizers import CrossReplicaOptimizer, MapGradientOptimizer
from ipujax.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    RecomputationMode,
    pipeline,
)
from ipujax.schedules import zero_bubble
from tests.ipujax.feeding import configure, executions, incr, infeed, outfeed
from tests.ipujax.pipelining import (
    ENGINES,
    SCHEDULES,
    batched,
    close,
    cross_entropy,
    f32,
    ones,
    run_pipeline,
    sgd,
)

Grouped, Interleaved, Sequential = SCHEDULES
engines = pytest.mark.parametrize("engine", ENGINES)
# As one computation, all schedules are the same: in turn.
modes = pytest.mark.parametrize(
    ("engine", "schedule"),
    [("fused", Grouped), *(("replay", schedule) for schedule in SCHEDULES)],
    ids=["fused", *(schedule.name.lower() for schedule in SCHEDULES)],
)


# --- the enum and its default ---------------------------------------------------------------------


@pytest.mark.fact("pipeline_schedule.enum")
def test_schedules_have_the_numbers_of_the_original() -> None:
    numbers = {schedule.name: schedule.value for schedule in PipelineSchedule}
    assert numbers == {"Grouped": 0, "Interleaved": 1, "Sequential": 2}


def text_of(count: int = 4, **arguments: Any) -> str:
    """The program of a training pipeline of two stages."""
    source, sink = infeed(incr(5, (2,))), outfeed()

    def model(w: Any) -> Any:
        return pipeline(
            [lambda w, x: jnp.tanh(jnp.sin(x * w) * w), lambda w, x: jnp.sin(x).sum()],
            count,
            infeed_queue=source,
            outfeed_queue=sink,
            optimizer_function=sgd(0.1),
            variables=w,
            **arguments,
        )

    return ipu.compile(model).lower(jnp.ones(2)).as_text()


@pytest.mark.fact("pipeline_schedule.default")
def test_default_schedules() -> None:
    configure(2)
    assert "pipeline: grouped," in text_of()
    configure(1)
    assert "pipeline: sequential," in text_of(batch_serialization_iterations=2)


@pytest.mark.fact("pipeline_values.recompute_defaults")
def test_default_recomputation() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = True
    config.configure_ipu_system()
    then, interleaved = (
        RecomputationMode.RecomputeThenBackpropagate,
        RecomputationMode.RecomputeAndBackpropagateInterleaved,
    )

    def text(schedule: Any, mode: Any) -> str:
        return _without_names(text_of(pipeline_schedule=schedule, recomputation_mode=mode))

    for schedule, wanted in ((Grouped, then), (Interleaved, then), (Sequential, interleaved)):
        auto = text(schedule, RecomputationMode.Auto)
        assert text(schedule, None) == auto == text(schedule, wanted)
    assert text(Grouped, interleaved) != text(Grouped, then)
    for schedule, wrong in ((Interleaved, interleaved), (Sequential, then)):
        with pytest.raises(ValueError, match=rf"{wrong}.*not with {schedule.name}") as error:
            text(schedule, wrong)
        assert "leave recomputation_mode out" in str(error.value)
        config.allow_recompute = False
        config.configure_ipu_system()
        assert text(schedule, wrong) == text(schedule, None)  # it only applies with recomputation
        config.allow_recompute = True
        config.configure_ipu_system()


def _without_names(text: str) -> str:
    """The text without the queues' generated names."""
    return re.sub(r"feed_\d+", "feed", text)


# --- inference ------------------------------------------------------------------------------------

KWARGS_RESULT = [410.01, 730.01, 650.01, 570.01, 890.01] * 2 + [410.01, 730.01]


def kwargs_elements(k: int) -> dict[str, np.ndarray]:
    x = np.full((4, 4, 2), k % 5, f32)
    return {"a": x, "b": (x + 10) / 2}


def kwargs_stage1(w: Any, c: Any, a: Any, b: Any) -> Any:
    return a @ w + b, c


def kwargs_stage2(w: Any, x: Any, c: Any) -> Any:
    return jnp.sum(x) + c


def kwargs_stage3(w: Any, x: Any) -> Any:
    return x


@pytest.mark.sampled(5)
@pytest.mark.fact(
    "pipeline_values.kwargs_interleaved",
    "pipeline_values.kwargs_grouped",
    "pipeline_values.mapping_permuted",
)
@modes
@pytest.mark.parametrize("mapping", [None, [2, 0, 1]])
def test_inputs_come_first_and_dicts_go_by_keyword(
    engine: str, schedule: PipelineSchedule, mapping: Any
) -> None:
    configure(4)
    result, sent = run_pipeline(
        [kwargs_stage1, kwargs_stage2, kwargs_stage3],
        12,
        engine=engine,
        variables=ones(2, 2),
        inputs=[10.01],
        data=batched(kwargs_elements, 2),
        device_mapping=mapping,
        pipeline_schedule=schedule,
    )
    assert result == ()
    assert isinstance(sent, list)
    np.testing.assert_allclose(sent, [KWARGS_RESULT], rtol=1e-6)


@pytest.mark.fact("pipeline_values.mapping_permuted")
def test_stages_run_where_the_mapping_says() -> None:
    configure(4)
    sink = outfeed()

    def model(x: Any) -> Any:
        return pipeline(
            [jnp.sin, jnp.cos, jnp.tan],
            6,
            inputs=[x],
            outfeed_queue=sink,
            device_mapping=[2, 0, 1],
        )

    text = ipu.compile(model).lower(f32(1)).as_text()
    for stage, ipu_number in enumerate([2, 0, 1]):
        task = text.split(f"task forward {stage}")[1].split("task forward")[0]
        assert f"execute ipu {ipu_number}:" in task


@pytest.mark.fact("pipeline_values.duplicate_io")
@modes
def test_values_passed_on_twice(engine: str, schedule: PipelineSchedule) -> None:
    configure(4)
    x, y = np.ones((1, 4, 4, 2), f32), np.ones((1, 2), f32)
    _, sent = run_pipeline(
        [
            lambda x, y: (x, y, y, x),
            lambda x, y, y2, x2: (x, y, y2, x2),
            lambda x, y, y2, x2: (x2, y2),
        ],
        12,
        engine=engine,
        inputs=[x, y],
        pipeline_schedule=schedule,
    )
    np.testing.assert_array_equal(sent[0], np.ones((12, 1, 4, 4, 2)))
    np.testing.assert_array_equal(sent[1], np.ones((12, 1, 2)))


@pytest.mark.fact("pipeline_values.no_variables")
@modes
def test_stages_without_variables(engine: str, schedule: PipelineSchedule) -> None:
    configure(4)
    _, sent = run_pipeline(
        [lambda x: x * x, lambda x: x + x, lambda x: x],
        6,
        engine=engine,
        data=incr(5, (1,)),
        pipeline_schedule=schedule,
    )
    np.testing.assert_array_equal(sent, [[[0], [2], [8], [18], [32], [0]]])


@pytest.mark.fact("pipeline_values.constant_input")
@modes
def test_a_constant_input(engine: str, schedule: PipelineSchedule) -> None:
    configure(4)
    add = lambda x: x + 1  # noqa: E731
    sink = outfeed()

    def model() -> Any:
        stages = [lambda x: 2 * x, add, add, add]
        return pipeline(stages, 8, inputs=[42.0], outfeed_queue=sink, pipeline_schedule=schedule)

    assert ipu.compile(model, engine=engine)() == ()
    np.testing.assert_array_equal(sink.dequeue()[0], [87.0] * 8)


@pytest.mark.fact("pipeline_errors.interleaved_same_device_inference")
@engines
def test_interleaved_inference_on_one_ipu(engine: str) -> None:
    configure(4)
    _, sent = run_pipeline(
        [kwargs_stage1, kwargs_stage2, kwargs_stage3],
        12,
        engine=engine,
        variables=ones(2, 2),
        inputs=[10.01],
        data=batched(kwargs_elements, 2),
        device_mapping=[2, 2, 2],
        pipeline_schedule=Interleaved,
    )
    np.testing.assert_allclose(sent, [KWARGS_RESULT], rtol=1e-6)


# --- training: the model that the original compares schedules with --------------------------------


def compare1_elements(k: int) -> np.ndarray:
    return np.full((4, 4, 2), k % 7, f32)


def compare1_data() -> Any:
    batches = batched(compare1_elements, 2)
    return lambda: ((x / f32(7), x[0, 0, 0, 0]) for x in batches())


def compare1_stages() -> list[Any]:
    def stage1(w: Any, c: Any, img: Any, label: Any) -> Any:
        kernel = w["conv"]["kernel"]
        y = jax.lax.conv_general_dilated(
            img, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return y + w["conv"]["bias"], c, label

    def stage2(w: Any, x: Any, c: Any, label: Any) -> Any:
        return x * 20, c, label

    def stage3(w: Any, x: Any, c: Any, label: Any) -> Any:
        return x @ w["dense1"]["kernel"] + w["dense1"]["bias"], c, label

    def stage4(w: Any, x: Any, c: Any, label: Any) -> Any:
        return jnp.sum(x @ w["dense2"]["kernel"] + w["dense2"]["bias"]) + c + label

    return [stage1, stage2, stage3, stage4]


def compare1_variables() -> Any:
    def layer(*shape: int) -> dict[str, jax.Array]:
        return {"kernel": jnp.full(shape, 0.5), "bias": jnp.full(2, 0.5)}

    return {"conv": layer(1, 1, 2, 2), "dense1": layer(2, 2), "dense2": layer(2, 2)}


def compare1(
    engine: str, count: int, rate: float, stages: Any = None, ipus: int = 4, **arguments: Any
) -> Any:
    configure(ipus)
    return run_pipeline(
        stages or compare1_stages(),
        count,
        engine=engine,
        variables=compare1_variables(),
        inputs=[10.01],
        data=compare1_data(),
        optimizer_function=sgd(rate),
        **arguments,
    )


FIRST_LOSSES = [805.43857, 1173.1529, 1540.8671, 1268.581, 989.2957, 1357.01, 1724.724, 805.43857]
MEAN24 = [161.9968, 124.3578, 169.8765, 215.3953]


@pytest.mark.sampled(1)
@pytest.mark.fact("pipeline_values.compare1_first")
@modes
def test_losses_before_any_update(engine: str, schedule: PipelineSchedule) -> None:
    _, [losses] = compare1(engine, 16, 0.01, pipeline_schedule=schedule)
    assert losses.shape == (16,)
    np.testing.assert_allclose(losses[:8], FIRST_LOSSES, rtol=1e-5)


@pytest.mark.sampled(1)
@pytest.mark.fact("pipeline_values.compare1_mean24", "pipeline_schedule.weight_updates")
@modes
def test_losses_after_an_update(engine: str, schedule: PipelineSchedule) -> None:
    arguments = {"pipeline_schedule": schedule, "repeat_count": 2}
    _, [losses] = compare1(engine, 24, 0.0005, reduction_method="mean", **arguments)
    assert losses.shape == (48,)
    np.testing.assert_allclose(losses[24:28], MEAN24, rtol=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.fact("pipeline_schedule.update_rule")
@modes
def test_gradients_are_summed(engine: str, schedule: PipelineSchedule) -> None:
    arguments = {"pipeline_schedule": schedule, "repeat_count": 2}
    _, [losses] = compare1(engine, 24, 0.0005 / 24, **arguments)
    np.testing.assert_allclose(losses[24:28], MEAN24, rtol=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.fact("pipeline_values.compare1_mean20")
@engines
def test_losses_and_variables_after_two_updates(engine: str) -> None:
    (variables, _), [losses] = compare1(
        engine,
        20,
        0.01 / 20,
        repeat_count=2,
        reduction_method=ipu.gradient_accumulation.GradientAccumulationReductionMethod.MEAN,
        pipeline_schedule=Interleaved,
    )
    wanted = [221.0194, 103.2431, 150.3536, 197.4641]
    np.testing.assert_allclose(losses[20:24], wanted, rtol=1e-4)
    np.testing.assert_allclose(variables["conv"]["kernel"], 0.345814, rtol=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.fact("pipeline_values.multi_ipu_stage")
@engines
@pytest.mark.parametrize("schedule", [Grouped, Sequential])
def test_a_stage_that_spans_all_ipus(engine: str, schedule: PipelineSchedule) -> None:
    one, two, three, four = compare1_stages()

    def spanning(w: Any, *args: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            made = one(w, *args)
        with ipu.scopes.ipu_shard(1):
            return two(w, *made)

    arguments = {"pipeline_schedule": schedule, "device_mapping": [-1, 0, 1]}
    _, [losses] = compare1(
        engine, 24, 0.0005 / 24, [spanning, three, four], ipus=2, repeat_count=2, **arguments
    )
    np.testing.assert_allclose(losses[:8], FIRST_LOSSES, rtol=1e-5)
    np.testing.assert_allclose(losses[24:28], MEAN24, rtol=1e-4)


# --- shared variables -----------------------------------------------------------------------------


def shared_element(k: int) -> tuple[np.ndarray, Any]:
    return np.full((4, 4), k % 7, f32), np.int32(k % 7 % 4)


def shared(engine: str, stages: list[Any], mapping: list[int], names: str, **arguments: Any) -> Any:
    configure(4)
    _, [losses] = run_pipeline(
        [*stages[:-1], lambda w, x, y: cross_entropy(stages[-1](w, x, y)[0].mean(1), y)],
        20,
        engine=engine,
        repeat_count=2,
        variables={name: ones(4, 4) for name in names.split()},
        data=batched(shared_element, 2),
        optimizer_function=sgd(0.01, 0.98),
        device_mapping=mapping,
        **arguments,
    )
    return losses


def product(name: str) -> Any:
    return lambda w, x, y: (x @ w[name], y)


@pytest.mark.sampled(1)
@pytest.mark.fact("pipeline_values.shared1")
@engines
def test_the_first_and_the_last_stage_share_a_variable(engine: str) -> None:
    stages = [product(name) for name in ("w0", "w1", "w2", "w3", "w0")]
    losses = shared(engine, stages, [0, 1, 2, 3, 0], "w0 w1 w2 w3", reduction_method="MEAN")
    np.testing.assert_allclose(losses[:3], [1.3862944] * 3, rtol=1e-4)
    np.testing.assert_allclose(losses[20:23], [1802.24, 361.14115, 2359.296], rtol=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.fact("pipeline_values.shared3", "pipeline_schedule.update_rule")
@engines
@pytest.mark.parametrize(
    ("method", "wanted"),
    [("MEAN", [7.0400004, 2.1358929, 9.217947]), ("SUM", [140.8, 28.853147, 184.32])],
)
def test_three_stages_share_a_variable(engine: str, method: str, wanted: list[float]) -> None:
    def relu(w: Any, x: Any, y: Any) -> Any:
        return jax.nn.relu(x), y

    stages = [product("w0"), relu, lambda w, x, y: (jax.nn.relu(x @ w["w0"]), y), relu]
    losses = shared(
        engine, [*stages, product("w0")], [0, 1, 0, 2, 0], "w0", reduction_method=method
    )
    np.testing.assert_allclose(losses[20:23], wanted, rtol=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.fact("pipeline_values.tied_embedding")
@engines
def test_a_tied_embedding_in_half_precision(engine: str) -> None:
    configure(2)
    table = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.float16)
    tokens = np.arange(8, dtype=np.int32) % 6

    def loss_of(table: Any, hidden: Any) -> Any:
        return jnp.mean((hidden @ table.T).astype(jnp.float32) ** 2)

    def optimizer(loss: Any) -> OptimizerFunctionOutput:
        cast = optax.stateless(lambda g, p: optax.tree_utils.tree_cast(g, jnp.float16))
        return OptimizerFunctionOutput(optax.chain(cast, optax.sgd(0.25)), loss)

    (trained, _), _ = run_pipeline(
        [lambda w, token: w[token], lambda w, x: 2 * x, lambda w, x: x + 1, loss_of],
        8,
        engine=engine,
        variables=table,
        data=list(tokens),
        optimizer_function=optimizer,
        device_mapping=[0, 1, 1, 0],
        gradient_accumulation_dtype=jnp.float32,
    )
    gradient_of = jax.grad(lambda table, token: loss_of(table, 2 * table[token] + 1))
    gradient = sum(gradient_of(table, token).astype(jnp.float32) for token in tokens)
    assert trained.dtype == jnp.float16
    np.testing.assert_allclose(trained, table - 0.25 * gradient, rtol=5e-3, atol=5e-3)


# --- gradients ------------------------------------------------------------------------------------


@jax.custom_vjp
def squared(x: jax.Array) -> jax.Array:
    return x * x


squared.defvjp(lambda x: (x * x, x), lambda x, dy: (dy * (x * x),))


@pytest.mark.fact("pipeline_values.custom_gradient")
@engines
def test_a_custom_gradient(engine: str) -> None:
    configure(2)

    def element(k: int) -> tuple[np.ndarray, Any]:
        return np.full(4, k % 10, f32), np.int32(0)

    _, [losses] = run_pipeline(
        [
            lambda w, x, y: (x @ w, y),
            lambda w, x, y: cross_entropy(squared(x), y),
        ],
        24,
        engine=engine,
        repeat_count=2,
        variables=ones(4, 4),
        data=batched(element, 4),
        optimizer_function=sgd(0.01),
        reduction_method="MEAN",
        pipeline_schedule=Grouped,
    )
    np.testing.assert_allclose(losses[:3], [1.3862944] * 3, rtol=1e-6)
    np.testing.assert_allclose(losses[24:30], [0, 0.3465736, 0, 0.3465736, 0, 0], rtol=1e-5)


@pytest.mark.fact("pipeline_values.map_grad_per_microbatch")
@modes
def test_gradients_are_mapped_before_they_are_added(
    engine: str, schedule: PipelineSchedule
) -> None:
    configure(2)

    def optimizer(loss: Any) -> OptimizerFunctionOutput:
        opt = MapGradientOptimizer(optax.sgd(1.0), lambda g, v: g * g + v)
        return OptimizerFunctionOutput(opt, loss)

    (w, _), _ = run_pipeline(
        [lambda w, x: w * x, lambda w, x: x],
        4,
        engine=engine,
        variables=f32(2),
        data=incr(4, ()),
        optimizer_function=optimizer,
        pipeline_schedule=schedule,
    )
    assert float(w) == 2 - sum(x * x + 2 for x in range(4))


@pytest.mark.fact("pipeline_values.grad_shape")
@engines
def test_gradients_have_the_shape_of_the_variable(engine: str) -> None:
    configure(2)
    seen: list[Any] = []

    def update(gradients: Any, state: Any, params: Any = None) -> Any:
        seen.append([leaf.shape for leaf in jax.tree.leaves(gradients)])
        return gradients, state

    opt = optax.GradientTransformation(lambda params: (), update)
    run_pipeline(
        [lambda w, x: x * w, lambda w, x: x.sum()],
        4,
        engine=engine,
        variables=ones(1, 2, 3),
        inputs=[1.0],
        optimizer_function=lambda loss: OptimizerFunctionOutput(opt, loss),
    )
    assert seen
    assert all(shapes == [(1, 2, 3)] for shapes in seen)


@pytest.mark.sampled(4)
@pytest.mark.fact("pipeline_values.ga_dtype")
@engines
@pytest.mark.parametrize("dtype", [jnp.float32, "float32", lambda variable: jnp.float32])
@pytest.mark.parametrize(("method", "wanted"), [("SUM", 524032), ("MEAN", 65504)])
def test_the_dtype_of_the_accumulators(engine: str, dtype: Any, method: str, wanted: float) -> None:
    configure(2)

    def update(gradients: Any, state: Any, params: Any = None) -> Any:
        return optax.tree_utils.tree_zeros_like(params), gradients

    opt = optax.GradientTransformation(lambda params: jnp.zeros((), jnp.float32), update)
    (w, gradient), _ = run_pipeline(
        [lambda w, x: x * w, lambda w, x: x],
        8,
        engine=engine,
        variables=np.float16(1),
        data=lambda: iter([np.float16(65504)] * 8),
        optimizer_function=lambda loss: OptimizerFunctionOutput(opt, loss),
        gradient_accumulation_dtype=dtype,
        reduction_method=method,
    )
    assert (w.dtype, gradient.dtype) == (jnp.float16, jnp.float32)
    assert float(gradient) == wanted


# --- what is sent ---------------------------------------------------------------------------------


def outfed(engine: str, x: Any, w: Any = 1.0, **arguments: Any) -> Any:
    """Dequeues what the facts' pipeline of w * x and three identities sent."""
    configure(4)
    identity = lambda w, x: x  # noqa: E731
    dtype = np.asarray(x).dtype if np.asarray(x).dtype == np.float16 else f32

    def optimizer(x: Any) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(optax.sgd(0.01), x + 1)

    _, sent = run_pipeline(
        [lambda w, _, x: w["w"] * x, identity, identity, identity],
        8,
        engine=engine,
        variables={"w": np.asarray(w, dtype)},
        inputs=[10, np.asarray(x, dtype)],
        optimizer_function=optimizer,
        **arguments,
    )
    return sent


@pytest.mark.fact("pipeline_values.outfeed_loss")
@modes
def test_the_loss_alone_is_sent(engine: str, schedule: PipelineSchedule) -> None:
    sent = outfed(engine, 0.0, outfeed_loss=True, pipeline_schedule=schedule)
    assert isinstance(sent, np.ndarray)
    np.testing.assert_array_equal(sent, np.ones(8))


@pytest.mark.fact("pipeline_values.outfeed_loss_accumulated")
@modes
@pytest.mark.parametrize("method", ["SUM", "MEAN"])
def test_the_sum_of_the_losses_is_sent(
    engine: str, schedule: PipelineSchedule, method: str
) -> None:
    arguments = {"pipeline_schedule": schedule, "reduction_method": method}
    sent = outfed(engine, 0.0, outfeed_loss=True, accumulate_outfeed=True, **arguments)
    assert isinstance(sent, np.ndarray)
    np.testing.assert_array_equal(sent, [8])


@pytest.mark.fact("pipeline_values.outfeed_acc_training")
@modes
def test_the_sum_of_the_outputs_is_sent(engine: str, schedule: PipelineSchedule) -> None:
    sent = outfed(engine, 1.0, accumulate_outfeed=True, pipeline_schedule=schedule)
    np.testing.assert_array_equal(sent, [[8]])


@pytest.mark.sampled(3)
@pytest.mark.fact("pipeline_values.outfeed_acc_dtype32")
@engines
@pytest.mark.parametrize("dtype", [jnp.float32, np.float32, "float32", lambda x: jnp.float32])
def test_sums_of_another_dtype(engine: str, dtype: Any) -> None:
    arguments: dict[str, Any] = {"accumulate_outfeed": True, "outfeed_loss": True}
    x = np.float16(30000)
    sent = outfed(engine, x, accumulate_outfeed_dtype=dtype, **arguments)
    assert sent.dtype == np.float32
    # The loss itself is rounded to half precision: 30001 is 30000 there.
    np.testing.assert_allclose(sent, [240008], rtol=1e-4)
    assert not np.isfinite(outfed(engine, x, **arguments)).any()


@pytest.mark.fact("pipeline_values.outfeed_acc_inference", "pipeline_values.outfeed_acc_inf_two")
@engines
@pytest.mark.parametrize("inputs", [[1.0], [1.0, 2.0]])
def test_sums_in_inference(engine: str, inputs: list[float]) -> None:
    configure(4)
    identity = lambda *xs: xs  # noqa: E731
    _, sent = run_pipeline([identity] * 4, 8, engine=engine, inputs=inputs, accumulate_outfeed=True)
    np.testing.assert_array_equal(sent, [[8 * x] for x in inputs])


# --- concurrent functions -------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.fact("pipeline_values.concurrent_stages")
@engines
@pytest.mark.parametrize("schedule", [Grouped, Sequential])
def test_concurrent_functions(engine: str, schedule: PipelineSchedule) -> None:
    configure(2)
    stages = [
        lambda w, x, label: (x * w["a"], label),
        [lambda w, x, label: x * w["b"], lambda w, x, label: (jnp.sin(x), label)],
        lambda w, xa, xb, label: xa - 2 * xb + label,
    ]

    def loss(w: Any, x: Any, label: Any) -> Any:
        return x * w["a"] * w["b"] - 2 * jnp.sin(x * w["a"]) + label

    w = {"a": f32(1.5), "b": f32(2)}
    xs = [(f32(k), f32(k % 3)) for k in range(12)]
    (trained, _), [losses] = run_pipeline(
        stages,
        12,
        engine=engine,
        variables=w,
        data=xs,
        optimizer_function=sgd(0.01),
        device_mapping=[0, [0, 1], 1],
        pipeline_schedule=schedule,
    )
    np.testing.assert_allclose(losses, [loss(w, *x) for x in xs], rtol=1e-5)
    gradient = jax.grad(lambda w: sum(loss(w, *x) for x in xs))(w)
    for name in w:
        close(trained[name], w[name] - 0.01 * gradient[name])


@pytest.mark.fact("pipeline_values.concurrent_infeed")
@engines
@pytest.mark.parametrize("schedule", [Grouped, Sequential])
def test_concurrent_functions_read_one_element(engine: str, schedule: PipelineSchedule) -> None:
    configure(2)
    _, sent = run_pipeline(
        [[lambda x, y: x + y, lambda x, y: (x, y)], lambda s, x, y: (s * x, y), lambda a, y: a - y],
        6,
        engine=engine,
        data=[(f32(k), f32(10 * k)) for k in range(6)],
        device_mapping=[[0, 1], 0, 1],
        pipeline_schedule=schedule,
    )
    np.testing.assert_array_equal(sent, [[11 * k * k - 10 * k for k in range(6)]])


# --- recomputation --------------------------------------------------------------------------------


def dropped(w: Any, x: Any, key: Any) -> Any:
    key, own = jax.random.split(key)
    return jnp.where(jax.random.bernoulli(own, 0.5, x.shape), jnp.tanh(x @ w["w"]), 0), key


def dropped_again(w: Any, x: Any, key: Any) -> Any:
    mask = jax.random.bernoulli(key, 0.5, x.shape)
    return jnp.sum(x * w["v"] * mask), mask


def with_dropout(engine: str, schedule: Any, mode: RecomputationMode | None) -> Any:
    """What a pipeline returns and sends; `mode` is None without recomputation."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = mode is not None
    config.configure_ipu_system()
    return run_pipeline(
        [dropped, dropped_again],
        4,
        engine=engine,
        repeat_count=2,
        variables={"w": jnp.eye(3) / 2, "v": ones(3)},
        data=[(np.full((2, 3), k, f32), np.array([k, 7], np.uint32)) for k in range(8)],
        optimizer_function=lambda loss, _: OptimizerFunctionOutput(optax.sgd(0.1), loss),
        pipeline_schedule=schedule,
        recomputation_mode=mode,
    )


@functools.cache
def without_recomputation() -> Any:
    return with_dropout("fused", Grouped, None)


@pytest.mark.sampled(2)
@pytest.mark.fact("pipeline_values.recompute_equal")
@pytest.mark.parametrize(
    ("engine", "schedule"),
    [("fused", Grouped), *(("replay", schedule) for schedule in (*SCHEDULES, zero_bubble))],
)
@pytest.mark.parametrize("mode", list(RecomputationMode)[1:])
def test_recomputation_changes_no_number(
    engine: str, schedule: Any, mode: RecomputationMode
) -> None:
    wanted = without_recomputation()
    assert 0 < wanted[1][1].mean() < 1
    jax.tree.map(close, with_dropout(engine, schedule, mode), wanted)


# --- replicas -------------------------------------------------------------------------------------


@pytest.mark.fact("pipeline_values.replicated_pipeline_outfeed")
@engines
def test_shapes_of_what_replicas_send(engine: str) -> None:
    configure(4)
    _, sent = run_pipeline(
        [lambda x: x, lambda x: (x, x + 1, x[0], x[None], x.sum())],
        20,
        engine=engine,
        repeat_count=2,
        data=incr(100, (3,)),
    )
    assert [x.shape for x in sent] == [(40, 2, *rest) for rest in [(3,), (3,), (), (1, 3), ()]]
    np.testing.assert_array_equal(sent[2], np.arange(80).reshape(40, 2))


@pytest.mark.fact("pipeline_values.replicated_training")
@engines
@pytest.mark.parametrize("averaged", [True, False])
def test_replicas_are_averaged_only_when_asked(engine: str, averaged: bool) -> None:
    configure(4)

    def optimizer(loss: Any, *rest: Any) -> OptimizerFunctionOutput:
        opt = optax.sgd(1.0)
        return OptimizerFunctionOutput(CrossReplicaOptimizer(opt) if averaged else opt, loss)

    (w, _), [losses, _] = run_pipeline(
        [lambda w, x: w * x, lambda w, x: (x, x)],
        4,
        engine=engine,
        repeat_count=2,
        variables=f32(0),
        data=incr(100, ()),
        optimizer_function=optimizer,
    )
    # Replica r reads elements r, r + 2, ...; the first update sums four of them.
    first = [-12.0, -16.0]
    after = [sum(first) / 2] * 2 if averaged else first
    elements = np.arange(16).reshape(8, 2)
    np.testing.assert_array_equal(losses[:4], np.zeros((4, 2)))
    np.testing.assert_array_equal(losses[4:], elements[4:] * np.array(after))
    second = [-44.0, -48.0]
    final = after[0] + (sum(second) / 2 if averaged else second[0])
    assert float(w) == final


@pytest.mark.fact("pipeline_schedule.weight_updates")
@modes
def test_one_weight_update_per_repetition(engine: str, schedule: PipelineSchedule) -> None:
    configure(2)
    opt = optax.sgd(optax.constant_schedule(0.1))  # counts its steps
    with ipu.events.record() as trace:
        (_, state), sent = run_pipeline(
            [lambda w, x: w * x, lambda w, x: x],
            4,
            engine=engine,
            repeat_count=3,
            variables=f32(1),
            data=incr(4, ()),
            optimizer_function=lambda loss: OptimizerFunctionOutput(opt, loss),
            pipeline_schedule=schedule,
        )
    assert [int(x) for x in jax.tree.leaves(state)] == [3]
    assert sent[0].shape == (12,)
    assert executions(trace) == 1
