"""The contract of pipelines: whatever the schedule, engine and options, the unpipelined numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ipujax as ipu
from ipujax import schedules
from ipujax.errors import OutOfRangeError
from ipujax.optimizers import CrossReplicaOptimizer
from ipujax.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    pipeline,
    recomputation_checkpoint,
)
from tests.ipujax.feeding import configure, infeed, outfeed
from tests.ipujax.pipelining import ENGINES, close, cross_entropy, f32, run_pipeline, sgd

engines = pytest.mark.parametrize("engine", ENGINES)


def all_forward_first(stages: int, micro_batches: int) -> list[list[str]]:
    """A user's own schedule."""
    return [[f"{s}{p}{m}" for p in "FB" for m in range(micro_batches)] for s in range(stages)]


SCHEDULES = {
    "grouped": PipelineSchedule.Grouped,
    "interleaved": PipelineSchedule.Interleaved,
    "sequential": PipelineSchedule.Sequential,
    "gpipe": schedules.gpipe,
    "1f1b": schedules.one_f_one_b,
    "interleaved-1f1b": schedules.interleaved_one_f_one_b,
    "zero-bubble": schedules.zero_bubble,
    "own": all_forward_first,
}


# --- models and what they are compared with -------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """Stages with the variables that they read."""

    stages: Sequence[Any]
    mapping: Sequence[Any]
    variables: Any
    count: int


def array(*shape: int) -> np.ndarray:
    """Values between -1/2 and 1/2 that differ."""
    return np.cos(np.arange(np.prod(shape)) * 7.0).reshape(shape).astype(f32) / 2


def dense(name: str) -> Any:
    def stage(w: Any, x: Any, label: Any) -> Any:
        kept = recomputation_checkpoint(x @ w[name]["kernel"])
        return jnp.tanh(kept + w[name]["bias"]), label

    return stage


def loss(w: Any, x: Any, label: Any) -> Any:
    return cross_entropy(x @ w["out"], label)


def layer(*shape: int) -> dict[str, np.ndarray]:
    return {"kernel": array(*shape), "bias": array(shape[-1])}


MLP = Model(
    [dense("first"), dense("second"), loss],
    [0, 1, 2],
    {"first": layer(6, 8), "second": layer(8, 8), "out": array(8, 4)},
    6,
)
SHARED = Model(
    [dense("first"), lambda w, x, label: (jnp.sin(x), label), dense("first"), loss],
    [0, 1, 0, 2],
    {"first": layer(6, 6), "out": array(6, 4)},
    8,
)
CONCURRENT = Model(
    [
        dense("first"),
        [lambda w, x, label: dense("a")(w, x, label)[0], dense("b")],
        lambda w, xa, xb, label: loss(w, xa - xb, label),
    ],
    [0, [1, 2], 3],
    {"first": layer(6, 8), "a": layer(8, 8), "b": layer(8, 8), "out": array(8, 4)},
    6,
)
TWO_EACH = Model(
    [dense("first"), dense("second"), dense("third"), loss],
    [0, 1, 0, 1],
    {"first": layer(6, 8), "second": layer(8, 8), "third": layer(8, 8), "out": array(8, 4)},
    8,
)


def elements(count: int) -> list[Any]:
    return [(array(2, 6) + k / 9, np.array([k % 4, 1], np.int32)) for k in range(count)]


def composed(stages: Sequence[Any], variables: Any, element: Any) -> Any:
    """The stages, one after the other."""
    values = element
    for entry in stages:
        functions = entry if isinstance(entry, list) else [entry]
        made = [function(variables, *values) for function in functions]
        values = [x for result in made for x in (result if isinstance(result, tuple) else [result])]
    return values[0]


def unpipelined(
    model: Model, opt: Any, updates: int, *, mean: bool = False
) -> tuple[Any, Any, list[Any]]:
    """Variables, optimizer state and losses of plain JAX."""
    variables = jax.tree.map(jnp.asarray, model.variables)
    state, losses = opt.init(variables), []
    data = elements(model.count * updates)
    step = jax.jit(jax.value_and_grad(lambda w, element: composed(model.stages, w, element)))
    for update in range(updates):
        group = data[update * model.count : (update + 1) * model.count]
        pairs = [step(variables, element) for element in group]
        losses += [loss for loss, _ in pairs]
        gradient = jax.tree.map(lambda *leaves: sum(leaves), *(g for _, g in pairs))
        if mean:
            gradient = jax.tree.map(lambda leaf: leaf / model.count, gradient)
        moved, state = opt.update(gradient, state, variables)
        variables = optax.apply_updates(variables, moved)
    return variables, state, losses


def agrees(
    model: Model,
    opt: Any,
    *,
    engine: str,
    updates: int = 2,
    mean: bool = False,
    ipus: int = 4,
    recompute: bool = False,
    **arguments: Any,
) -> None:
    """Fails unless a pipeline gives the losses, variables and state of the unpipelined step."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.allow_recompute = recompute
    config.configure_ipu_system()
    (variables, state), [losses] = run_pipeline(
        model.stages,
        model.count,
        engine=engine,
        repeat_count=updates,
        variables=model.variables,
        data=elements(model.count * updates),
        optimizer_function=lambda loss: OptimizerFunctionOutput(opt, loss),
        device_mapping=model.mapping,
        **arguments,
    )
    wanted = unpipelined(model, opt, updates, mean=mean)
    close(losses, jnp.stack(wanted[2]))
    assert jax.tree.structure((variables, state)) == jax.tree.structure(wanted[:2])
    jax.tree.map(close, (variables, state), wanted[:2])


# --- schedules ------------------------------------------------------------------------------------

MOMENTUM = optax.sgd(0.1, momentum=0.9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_trains_as_if_there_were_no_pipeline(name: str) -> None:
    model, ipus = (TWO_EACH, 2) if name == "interleaved-1f1b" else (MLP, 4)
    agrees(model, MOMENTUM, engine="replay", ipus=ipus, pipeline_schedule=SCHEDULES[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["grouped", "zero-bubble", "own"])
def test_so_does_one_computation(name: str) -> None:
    agrees(MLP, optax.adam(0.05), engine="fused", pipeline_schedule=SCHEDULES[name])


@pytest.mark.sampled(1)
@engines
@pytest.mark.parametrize("name", ["grouped", "sequential", "gpipe"])
def test_stages_that_share_variables(engine: str, name: str) -> None:
    agrees(SHARED, MOMENTUM, engine=engine, pipeline_schedule=SCHEDULES[name])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["grouped", "interleaved", "1f1b", "zero-bubble"])
def test_concurrent_functions(name: str) -> None:
    agrees(CONCURRENT, optax.adam(0.05), engine="replay", pipeline_schedule=SCHEDULES[name])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "zero-bubble"])
def test_every_schedule_infers(name: str) -> None:
    configure(4)
    stages = [jnp.sin, jnp.cos, lambda x: x + 1, lambda x: x * x]
    mapping = [0, 1, 0, 1] if name == "interleaved-1f1b" else [0, 1, 2, 3]
    if name == "interleaved-1f1b":
        configure(2)
    schedule = SCHEDULES[name]
    if name == "own":
        schedule = lambda stages, micro_batches: [  # noqa: E731
            [f"{s}F{m}" for m in range(micro_batches)] for s in range(stages)
        ]
    xs = [f32(k) for k in range(8)]
    _, [sent] = run_pipeline(
        stages,
        4,
        engine="replay",
        repeat_count=2,
        data=xs,
        device_mapping=mapping,
        pipeline_schedule=schedule,
    )
    close(sent, (np.cos(np.sin(np.stack(xs))) + 1) ** 2)


# --- options --------------------------------------------------------------------------------------

STORAGE = {
    "offload_activations": r"store ipu \d to streaming memory",
    "offload_weight_update_variables": r"store ipu \d to streaming memory",
    "replicated_optimizer_state_sharding": r"store ipu \d to streaming memory sharded",
    "offload_gradient_accumulation_buffers": r"store ipu \d to streaming memory",
    "replicated_weight_sharding": r"load ipu \d sharded",
    "offload_weights": r"load ipu \d from streaming memory",
}


def text_of(recompute: bool = False, model: Model = MLP, **arguments: Any) -> str:
    """The program of a model's training pipeline, without the queues' generated names."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.allow_recompute = recompute
    config.configure_ipu_system()
    source, sink = infeed(elements(1)), outfeed()
    if not arguments.get("replicated_optimizer_state_sharding"):  # which chooses by itself
        arguments = {"offload_weight_update_variables": False, **arguments}

    def function(variables: Any) -> Any:
        return pipeline(
            model.stages,
            model.count,
            infeed_queue=source,
            outfeed_queue=sink,
            optimizer_function=sgd(0.1, 0.9),
            device_mapping=model.mapping,
            variables=variables,
            **arguments,
        )

    text = ipu.compile(function).lower(model.variables).as_text()
    return re.sub(r"feed_\d+", "feed", text)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("option", STORAGE)
def test_storage_changes_the_program_and_no_number(option: str) -> None:
    arguments = {option: True}
    assert not re.search(STORAGE[option], text_of())
    assert re.search(STORAGE[option], text_of(**arguments))
    agrees(MLP, MOMENTUM, engine="replay", **arguments)


def test_sharded_state_can_stay_on_the_tiles() -> None:
    text = text_of(replicated_optimizer_state_sharding="on_tiles")
    assert re.search(r"store ipu \d sharded", text)
    assert "streaming memory" not in text


@pytest.mark.sampled(1)
@engines
def test_all_storage_options_at_once(engine: str) -> None:
    agrees(MLP, optax.adam(0.05), engine=engine, recompute=True, **dict.fromkeys(STORAGE, True))


def test_small_tensors_stay_where_they_are() -> None:
    moved = re.findall(
        r"load ipu \d from streaming memory: %\d+ float32(\[.*?\])", text_of(offload_weights=True)
    )
    assert {"[6,8]", "[8,8]", "[8,4]"} == set(moved)  # biases have 32 bytes


def fifos(text: str) -> dict[int, tuple[int, int]]:
    """For each stage, the depth of its FIFO and the number of values in it."""
    found = re.findall(r"fifo ipu \d: stage (\d), depth (\d+): (.*)", text)
    return {int(stage): (int(depth), line.count("%")) for stage, depth, line in found}


@pytest.mark.parametrize(
    ("schedule", "factor"),
    [
        (PipelineSchedule.Grouped, 2),
        (PipelineSchedule.Interleaved, 1),
        (PipelineSchedule.Sequential, 0),
    ],
)
def test_how_long_activations_wait(schedule: PipelineSchedule, factor: int) -> None:
    depths = {
        stage: depth for stage, (depth, _) in fifos(text_of(pipeline_schedule=schedule)).items()
    }
    assert depths == {0: 2 * factor, 1: factor, 2: 0}


def test_recomputation_leaves_the_inputs_only() -> None:
    assert fifos(text_of())[0] == (4, 2)
    then = RecomputationMode.RecomputeThenBackpropagate
    text = text_of(recompute=True, recomputation_mode=then)
    assert "task recompute 0" in text
    assert fifos(text)[0] == (4, 1)
    # Checkpoints count where both are one kernel.
    both = RecomputationMode.RecomputeAndBackpropagateInterleaved
    text = text_of(recompute=True, recomputation_mode=both)
    assert "task recompute" not in text
    assert fifos(text)[0] == (4, 2)


@pytest.mark.sampled(2)
@engines
@pytest.mark.parametrize("mode", RecomputationMode)
def test_recomputation_changes_no_number(engine: str, mode: RecomputationMode) -> None:
    agrees(MLP, MOMENTUM, engine=engine, recompute=True, recomputation_mode=mode)


def test_options_of_stages_are_in_the_program() -> None:
    options = PipelineStageOptions({"a": 1}, {"availableMemoryProportion": 0.3})
    plain = [PipelineStageOptions(), None]
    text = text_of(
        forward_propagation_stages_poplar_options=[options, *plain],
        backward_propagation_stages_poplar_options=[*plain, options],
        weight_update_poplar_options=options,
    )
    for task in ("forward 0", "backward 2", "update"):
        assert re.search(
            rf"task {task}\n +convolution_options a=1\n +matmul_options availableMemory.*=0\.3",
            text,
        )
    assert text.count("convolution_options") == 3


def test_the_name_is_in_the_program() -> None:
    assert "pipeline pipeline: grouped" in text_of()
    assert "pipeline nets: grouped" in text_of(name="nets")


@pytest.mark.sampled(1)
@engines
@pytest.mark.parametrize("method", ["MEAN", "RUNNING_MEAN"])
def test_means_of_gradients(engine: str, method: str) -> None:
    agrees(MLP, MOMENTUM, engine=engine, mean=True, reduction_method=method)


@engines
def test_a_running_mean_never_overflows(engine: str) -> None:
    configure(2)
    for method, finite in (("RUNNING_MEAN", True), ("SUM", False)):
        (w, _), _ = run_pipeline(
            [lambda w, x: w * x, lambda w, x: x],
            4,
            engine=engine,
            variables=np.float16(0),
            data=[np.float16(60000)] * 4,
            optimizer_function=sgd(1e-4),
            reduction_method=method,
        )
        assert bool(np.isfinite(w)) == finite


@pytest.mark.sampled(1)
@engines
def test_serialized_batches(engine: str) -> None:
    configure(1)
    model = Model(MLP.stages, [0, 0, 0], MLP.variables, 6)
    (variables, _), [losses] = run_pipeline(
        MLP.stages,
        3,
        engine=engine,
        repeat_count=2,
        batch_serialization_iterations=2,
        variables=MLP.variables,
        data=elements(12),
        optimizer_function=sgd(0.1, 0.9),
    )
    wanted = unpipelined(model, MOMENTUM, 2)
    close(losses, jnp.stack(wanted[2]))
    jax.tree.map(close, variables, wanted[0])


# --- optimizers -----------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@engines
def test_the_global_norm_of_all_ipus(engine: str) -> None:
    agrees(MLP, optax.chain(optax.clip_by_global_norm(0.1), optax.adam(0.1)), engine=engine)


def test_injected_hyperparameters() -> None:
    agrees(MLP, optax.inject_hyperparams(optax.sgd)(learning_rate=0.1), engine="replay")


@engines
def test_a_learning_rate_that_goes_through_the_stages(engine: str) -> None:
    configure(2)

    def optimizer(rate: Any, loss: Any) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(optax.sgd(rate, 0.9), loss)

    stages = [lambda w, rate, x: (rate, w * x), lambda w, rate, x: (rate, x)]
    (w, state), [rates, losses] = run_pipeline(
        stages,
        4,
        engine=engine,
        repeat_count=2,
        inputs=[0.1],
        variables=f32(2),
        data=[f32(k) for k in range(8)],
        optimizer_function=optimizer,
    )
    close(rates, np.full(8, 0.1))
    close(losses, np.array([0, 2, 4, 6, 5.6, 7, 8.4, 9.8]))
    close(w, f32(2 - 0.6 - 0.1 * (0.9 * 6 + 22)))
    close(state[0].trace, f32(0.9 * 6 + 22))


def test_a_state_that_goes_in_and_comes_out() -> None:
    configure(2)
    opt, source, sink = optax.adam(0.1), infeed([f32(k) for k in range(8)]), outfeed()

    def model(w: Any, state: Any) -> Any:
        return pipeline(
            [lambda w, x: w * x, lambda w, x: jnp.cos(x)],
            4,
            infeed_queue=source,
            outfeed_queue=sink,
            optimizer_function=lambda loss: OptimizerFunctionOutput(opt, loss),
            variables=w,
            optimizer_state=state,
        )

    run = ipu.compile(model)
    once = run(f32(1), opt.init(jnp.float32(1)))
    w, state = run(*once)
    gradient = jax.grad(lambda w, xs: jnp.cos(w * xs).sum())
    expected, wanted = jnp.float32(1), opt.init(jnp.float32(1))
    for xs in np.arange(8, dtype=f32).reshape(2, 4):
        moved, wanted = opt.update(gradient(expected, xs), wanted)
        expected = expected + moved
    close(w, expected)
    jax.tree.map(close, state, wanted)


@pytest.mark.sampled(2)
@engines
@pytest.mark.parametrize("opt", [optax.sgd(0.1, 0.9), optax.adamw(0.1)], ids=["sgd", "adamw"])
def test_leaves_that_are_not_trained(engine: str, opt: Any) -> None:
    configure(2)
    variables = {"w": f32(2), "n": np.int32(3), "unused": np.ones(3, f32)}
    (new, state), [losses] = run_pipeline(
        [lambda w, x: w["w"] * x + w["n"], lambda w, x: x],
        4,
        engine=engine,
        repeat_count=2,
        variables=variables,
        data=[f32(k) for k in range(8)],
        optimizer_function=lambda loss: OptimizerFunctionOutput(opt, loss),
    )
    assert (new["n"].dtype, int(new["n"])) == (jnp.int32, 3)
    close(losses[:4], np.array([3, 5, 7, 9]))
    assert float(new["w"]) < 2
    before = jax.tree.map(
        lambda x: (x.shape, x.dtype), opt.init(jax.tree.map(jnp.asarray, variables))
    )
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == before


@pytest.mark.sampled(1)
@engines
def test_sharded_state_on_replicas(engine: str) -> None:
    configure(4)
    data = elements(2 * 2 * 4)
    options = dict.fromkeys(("replicated_optimizer_state_sharding", "offload_weights"), True)
    (variables, state), [losses] = run_pipeline(
        [dense("first"), loss],
        4,
        engine=engine,
        repeat_count=2,
        variables={"first": layer(6, 8), "out": array(8, 4)},
        data=data,
        optimizer_function=lambda loss: OptimizerFunctionOutput(
            CrossReplicaOptimizer(MOMENTUM), loss
        ),
        replicated_weight_sharding=True,
        **options,
    )
    model = Model([dense("first"), loss], [0, 1], {"first": layer(6, 8), "out": array(8, 4)}, 8)
    halved = optax.chain(optax.scale(0.5), MOMENTUM)
    wanted, wanted_state, wanted_losses = unpipelined(model, halved, 2)
    jax.tree.map(close, variables, wanted)
    jax.tree.map(close, state, wanted_state[1])
    close(losses, jnp.stack(wanted_losses).reshape(8, 2))


# --- what stages take and give --------------------------------------------------------------------


@pytest.mark.sampled(6)
@engines
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda w, x: [w * x, x], lambda w, y, x: (y,)),
        (lambda w, x: (w * x,), lambda w, y: [y]),
        (lambda w, x: {"y": w * x, "n": 3}, lambda w, d: d["y"]),
        (lambda w, x: (w * x, 3, True), lambda w, y, three, true: y),
        (lambda w, x: ({"a": [w * x]}, None), lambda w, tree, none: tree["a"][0]),
    ],
    ids=["list", "tuple", "dict", "numbers", "nested"],
)
def test_kinds_of_outputs(engine: str, first: Any, second: Any) -> None:
    configure(2)
    (w, _), [losses] = run_pipeline(
        [first, second],
        4,
        engine=engine,
        variables=f32(2),
        data=[f32(k) for k in range(4)],
        optimizer_function=sgd(0.1),
    )
    close(w, f32(1.4))
    close(losses, np.array([0, 2, 4, 6]))


def test_nothing_between_stages_and_a_dict_at_the_end() -> None:
    configure(2)
    stages = [lambda x: None, lambda: {"n": 3, "x": 0.5}]
    _, [sent] = run_pipeline(stages, 4, data=[f32(0)] * 4)
    np.testing.assert_array_equal(sent["n"], [3] * 4)
    np.testing.assert_array_equal(sent["x"], [0.5] * 4)


@engines
def test_masked_outputs(engine: str) -> None:
    configure(2)
    arguments: dict[str, Any] = {
        "engine": engine,
        "variables": f32(2),
        "optimizer_function": lambda loss, *_: OptimizerFunctionOutput(optax.sgd(0.1), loss),
    }
    stages = [lambda w, x: (w * x, x), lambda w, y, x: (y, x, x + 1)]
    data = [f32(k) for k in range(4)]
    _, sent = run_pipeline(stages, 4, data=data, outfeed_mask=[True, False, False], **arguments)
    np.testing.assert_array_equal(sent, [[0, 1, 2, 3], [1, 2, 3, 4]])
    _, sent = run_pipeline(
        stages,
        4,
        data=data,
        outfeed_mask=[False, True, True],
        accumulate_outfeed=True,
        **arguments,
    )
    np.testing.assert_array_equal(sent, [[12]])


# --- where pipelines may be -----------------------------------------------------------------------


def training(w: Any, source: Any, sink: Any, **arguments: Any) -> Any:
    return pipeline(
        [lambda w, x: w * x, lambda w, x: x],
        4,
        infeed_queue=source,
        outfeed_queue=sink,
        optimizer_function=sgd(0.1, 0.9),
        variables=w,
        **arguments,
    )


WANTED = [2.0, 1.4, -1.34, -7.606]  # after 0, 1, 2 and 3 updates with the elements 0, 1, ...


def numbers(count: int) -> Any:
    return infeed([f32(k) for k in range(count)])


@engines
def test_several_pipelines_in_a_function(engine: str) -> None:
    configure(2)
    sources, sinks = [numbers(4), infeed([f32(k) for k in range(4, 8)])], [outfeed(), outfeed()]

    def model(w: Any) -> Any:
        once = training(w, sources[0], sinks[0])
        return training(once[0], sources[1], sinks[1], optimizer_state=once[1])

    w, _ = ipu.compile(model, engine=engine)(f32(2))
    close(w, f32(WANTED[2]))
    close(sinks[1].dequeue()[0], WANTED[1] * np.arange(4, 8))


@engines
def test_a_pipeline_in_a_loop(engine: str) -> None:
    configure(2)
    source, sink = numbers(12), outfeed()

    def model(w: Any) -> Any:
        def body(w: Any, state: Any) -> Any:
            return training(w, source, sink, optimizer_state=state)

        return ipu.loops.repeat(3, body, [w, MOMENTUM.init(w)])

    w, _ = ipu.compile(model, engine=engine)(f32(2))
    close(w, f32(WANTED[3]))
    assert sink.dequeue()[0].shape == (12,)


@pytest.mark.parametrize("transform", [jax.jit, lambda f: f, ipu.compile])
def test_a_pipeline_under_other_compilers(transform: Callable[..., Any]) -> None:
    configure(2)
    source, sink = numbers(12), outfeed()
    w, _ = transform(lambda w: training(w, source, sink, repeat_count=3))(f32(2))
    close(w, f32(WANTED[3]))
    assert sink.dequeue()[0].shape == (12,)


def test_the_original_form_of_compiling() -> None:
    configure(2)
    source, sink = numbers(12), outfeed()
    model = lambda w: training(w, source, sink, repeat_count=3)  # noqa: E731
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        w, _ = ipu.ipu_compiler.compile(model, inputs=[f32(2)])
    close(w, f32(WANTED[3]))


@pytest.mark.sampled(2)
@engines
@pytest.mark.parametrize("schedule", PipelineSchedule)
def test_a_data_set_that_ends_too_soon(engine: str, schedule: PipelineSchedule) -> None:
    configure(2)
    data = [f32(k) for k in range(10)]
    source, sink = infeed(data), outfeed()

    def model(w: Any) -> Any:
        return training(w, source, sink, repeat_count=3, pipeline_schedule=schedule)

    run = ipu.compile(model, engine=engine)
    with pytest.raises(
        OutOfRangeError, match=r"12 elements were asked for, .* ended after 10"
    ) as e:
        run(f32(2))
    assert (e.value.requested, e.value.available) == (12, 10)
    w, state = e.value.carried
    close(w, f32(WANTED[2]))
    assert jax.tree.structure(state) == jax.tree.structure(MOMENTUM.init(w))
    sent = sink.dequeue()[0]
    assert 8 <= len(sent) <= 10
    # Afterwards everything works.
    again, sink = numbers(12), outfeed()
    w, _ = ipu.compile(lambda w: training(w, again, sink, repeat_count=3), engine=engine)(f32(2))
    close(w, f32(WANTED[3]))


@engines
def test_queues_of_the_user_in_a_stage(engine: str) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = True
    config.configure_ipu_system()
    own = outfeed()

    def stage(w: Any, x: Any) -> Any:
        own.enqueue({"x": x})
        return w * jnp.sin(x)

    for schedule in (PipelineSchedule.Grouped, schedules.zero_bubble):
        run_pipeline(
            [stage, lambda w, x: jnp.sin(x)],
            4,
            engine=engine,
            variables=f32(2),
            data=[f32(k) for k in range(4)],
            optimizer_function=sgd(0.1),
            pipeline_schedule=schedule,
        )
        np.testing.assert_array_equal(own.dequeue()["x"], [0, 1, 2, 3])


# --- properties -----------------------------------------------------------------------------------


@settings(max_examples=8)
@given(
    mapping=st.lists(st.integers(0, 3), min_size=2, max_size=4),
    times=st.integers(1, 2),
    name=st.sampled_from(["grouped", "sequential"]),
)
def test_any_mapping(mapping: list[int], times: int, name: str) -> None:
    stages: list[Any] = [lambda w, x: w * x, *[lambda w, x: jnp.sin(x) + 1] * (len(mapping) - 1)]
    count = 2 * len(mapping) * times

    def loss(w: Any, x: Any) -> Any:
        for stage in stages:
            x = stage(w, x)
        return x

    configure(1 << max(mapping).bit_length())
    xs = np.arange(count, dtype=f32) / count
    (w, _), [losses] = run_pipeline(
        stages,
        count,
        engine="replay",
        variables=f32(1.5),
        data=list(xs),
        optimizer_function=sgd(0.1),
        device_mapping=mapping,
        pipeline_schedule=SCHEDULES[name],
    )
    close(losses, jax.vmap(lambda x: loss(1.5, x))(xs))
    close(w, 1.5 - 0.1 * jax.grad(lambda w: jax.vmap(lambda x: loss(w, x))(xs).sum())(1.5))


@engines
@pytest.mark.parametrize("device_mapping", [[0, 1], [0, 0]])
def test_a_variable_may_be_handed_on_unchanged(device_mapping: list[int], engine: str) -> None:
    configure(len(set(device_mapping)))
    weights = [f32(0.5), f32(2.0)]
    data = [f32(0.1 * i) for i in range(8)]

    def first(w: Any, x: jax.Array) -> Any:
        return w[0], jnp.sin(w[0]) * x

    def last(w: Any, passed: jax.Array, y: jax.Array) -> jax.Array:
        return passed * y * w[1]

    (trained, _), losses = run_pipeline(
        [first, last],
        4,
        engine=engine,
        variables=weights,
        data=data,
        repeat_count=2,
        device_mapping=device_mapping,
        optimizer_function=sgd(0.1),
    )

    def loss(w: Any, x: Any) -> Any:
        return last(w, *first(w, x))

    for batch in (data[:4], data[4:]):
        slopes = [jax.grad(loss)(weights, x) for x in batch]
        weights = [w - 0.1 * sum(s[i] for s in slopes) for i, w in enumerate(weights)]
    assert np.size(losses[0]) == 8
    for mine, theirs in zip(trained, weights, strict=True):
        close(mine, theirs)
