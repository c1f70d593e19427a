"""Untrained state of pipelines: the numbers of the stages called one after the other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.errors import OutOfRangeError
from ipujax.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    RecomputationMode,
    StageOutput,
    pipeline,
)
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.pipelining import ENGINES, close, f32, run_pipeline
from tests.numbers import use_ipus

COUNT, REPEAT, SIZE = 6, 3, 4


def all_forward_first(stages: int, micro_batches: int) -> list[list[str]]:
    """A user's own schedule."""
    return [[f"{s}{p}{m}" for p in "FB" for m in range(micro_batches)] for s in range(stages)]


SCHEDULES = {
    "grouped": PipelineSchedule.Grouped,
    "interleaved": PipelineSchedule.Interleaved,
    "sequential": PipelineSchedule.Sequential,
    "gpipe": schedules.gpipe,
    "1f1b": schedules.one_f_one_b,
    "zero-bubble": schedules.zero_bubble,
    "own": all_forward_first,
}


# --- a model with all kinds of state --------------------------------------------------------------


def dropped(seed: Any, x: Any) -> Any:
    mask = jax.random.bernoulli(jax.random.fold_in(jax.random.key(7), seed), 0.7, x.shape)
    return jnp.where(mask, x / 0.7, 0)


def first(v: Any, s: Any, x: Any, y: Any) -> Any:
    h = dropped(s["seed"][0], jnp.tanh(x @ v["w"][0]))
    return StageOutput((h, y), {**s, "seed": [s["seed"][0] + 1, s["seed"][1]]})


def second(v: Any, s: Any, h: Any, y: Any) -> Any:
    """Reads the moving mean both in a product and in a function whose derivative needs it."""
    mean = h.mean(0)
    h = (h - mean) * v["scale"] + jnp.sin(s["mean"] * v["scale"])
    return StageOutput((jnp.tanh(h @ v["w"][1]), y), {**s, "mean": 0.9 * s["mean"] + 0.1 * mean})


def third(v: Any, s: Any, h: Any, y: Any) -> Any:
    """Reads what the stage before has made of the mean, and a gain that nobody changes."""
    h = dropped(s["seed"][1], h)
    loss = jnp.mean((h @ v["w"][2] - y) ** 2) + s["gain"] * jnp.sum(v["w"][2] @ s["mean"])
    seeds = [s["seed"][0], s["seed"][1] * 3 + 1]
    after = {"seed": seeds, "count": s["count"] + 1, "total": s["total"] + loss, "last": y}
    return StageOutput(loss, {**s, **after})


STAGES = [first, second, third]
RNG = np.random.default_rng(0)
VARIABLES = {
    "w": [RNG.normal(size=(SIZE, SIZE)).astype(f32) for _ in STAGES],
    "scale": np.linspace(0.5, 1, SIZE, dtype=f32),
}
STATE = {
    "seed": [np.uint32(3), np.uint32(5)],
    "mean": np.zeros(SIZE, f32),
    "count": np.int32(0),
    "total": 0.0,
    "last": np.zeros((2, SIZE), f32),
    "gain": f32(0.5),
}
ELEMENTS = [tuple(pair) for pair in RNG.normal(size=(4 * COUNT * REPEAT, 2, 2, SIZE)).astype(f32)]
OPTIMIZER = optax.sgd(0.1, 0.9)


def optimizer(loss: Any) -> OptimizerFunctionOutput:
    return OptimizerFunctionOutput(OPTIMIZER, loss)


@jax.jit
def one_after_the_other(v: Any, s: Any, x: Any, y: Any) -> Any:
    """Gradients of the loss of one micro-batch, the loss, and the state after it."""

    def loss_of(v: Any, s: Any) -> Any:
        args: Any = (x, y)
        for stage in STAGES:
            args, s = stage(v, jax.lax.stop_gradient(s), *args)
        return args, s

    (loss, state), gradients = jax.value_and_grad(loss_of, has_aux=True)(v, s)
    return gradients, loss, state


def expected(elements: Any, repeat: int = REPEAT, count: int = COUNT) -> Any:
    """(variables, optimizer state, state), and the losses."""
    v, s, losses = jax.tree.map(jnp.asarray, VARIABLES), jax.tree.map(jnp.asarray, STATE), []
    opt, rows = OPTIMIZER.init(v), iter(elements)
    for _ in range(repeat):
        total = jax.tree.map(jnp.zeros_like, v)
        for _ in range(count):
            gradients, loss, s = one_after_the_other(v, s, *next(rows))
            losses.append(loss)
            total = jax.tree.map(jnp.add, total, gradients)
        updates, opt = OPTIMIZER.update(total, opt, v)
        v = optax.apply_updates(v, updates)
    return (v, opt, s), np.array(losses)


def trained(engine: str, **options: Any) -> tuple[Any, Any]:
    """What the pipeline returns, and what it sends."""
    sink = options.pop("outfeed_queue", None) or outfeed()
    source = infeed(options.pop("elements", ELEMENTS))
    given = {"repeat_count": REPEAT, "optimizer_function": optimizer} | options
    count = given.pop("count", COUNT)

    def fn(variables: Any, state: Any) -> Any:
        return pipeline(
            STAGES,
            count,
            infeed_queue=source,
            outfeed_queue=sink,
            variables=variables,
            state=state,
            **given,
        )

    return ipu.compile(fn, engine=engine)(VARIABLES, STATE), sink.dequeue()[0]


def all_close(mine: Any, theirs: Any) -> None:
    assert jax.tree.structure(mine) == jax.tree.structure(theirs)
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert one.dtype == other.dtype
        close(one, other, 2e-5)


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_gives_the_numbers_of_the_stages_one_after_the_other(
    schedule: str, engine: str
) -> None:
    use_ipus(4)
    all_close(trained(engine, pipeline_schedule=SCHEDULES[schedule]), expected(ELEMENTS))


@pytest.mark.exhaustive
@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("mode", list(RecomputationMode)[1:])
def test_recomputation_finds_the_state_that_the_forward_task_found(
    mode: RecomputationMode, offload: bool
) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.allow_recompute = True
    config.configure_ipu_system()
    got = trained("replay", recomputation_mode=mode, offload_activations=offload)
    all_close(got, expected(ELEMENTS))


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ENGINES)
def test_serialized_batches(engine: str) -> None:
    use_ipus(1)
    got = trained(engine, count=2, batch_serialization_iterations=3)
    all_close(got, expected(ELEMENTS))


def test_plain_jit_gives_the_same() -> None:
    def fn(v: Any, s: Any, x: Any, y: Any) -> Any:
        return pipeline(
            [*STAGES[:2], lambda v, s, *h: StageOutput((), third(v, s, *h).state)],
            COUNT,
            inputs=[x, y],
            variables=v,
            state=s,
        )

    (state,) = jax.jit(fn)(VARIABLES, STATE, *ELEMENTS[0])
    (_, _, wanted), _ = expected(ELEMENTS[:1] * COUNT, repeat=1)
    all_close(state, wanted)


@pytest.mark.parametrize("engine", ENGINES)
def test_inference_gives_the_state_alone(engine: str) -> None:
    use_ipus(4)
    sink, source = outfeed(), infeed(ELEMENTS)

    def fn(variables: Any, state: Any) -> Any:
        return pipeline(
            STAGES,
            COUNT,
            repeat_count=REPEAT,
            infeed_queue=source,
            outfeed_queue=sink,
            variables=variables,
            state=state,
        )

    (state,) = ipu.compile(fn, engine=engine)(VARIABLES, STATE)
    s, losses = STATE, []
    for element in ELEMENTS[: COUNT * REPEAT]:
        _, loss, s = one_after_the_other(VARIABLES, s, *element)
        losses.append(loss)
    all_close((state, sink.dequeue()[0]), (s, np.array(losses)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ENGINES)
def test_each_replica_has_a_state_of_its_own(engine: str) -> None:
    use_ipus(8)
    (_, _, state), losses = trained(engine, elements=ELEMENTS)
    (_, _, wanted), first_losses = expected(ELEMENTS[::2])
    all_close(state, wanted)  # which is that of the first replica
    _, second_losses = expected(ELEMENTS[1::2])
    close(losses, np.stack([first_losses, second_losses], 1), 2e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_where_the_data_end_the_error_has_the_last_complete_update(engine: str) -> None:
    use_ipus(4)
    with pytest.raises(OutOfRangeError) as caught:
        trained(engine, elements=ELEMENTS[: 2 * COUNT + 1])
    all_close(caught.value.carried, expected(ELEMENTS, repeat=2)[0])


# --- who changes what -----------------------------------------------------------------------------


def test_concurrent_functions_change_leaves_of_their_own() -> None:
    use_ipus(4)

    def left(s: Any, x: Any) -> Any:
        return StageOutput(x + s["left"], {**s, "left": s["left"] + x.sum()})

    def right(s: Any, x: Any) -> Any:
        return StageOutput(x * s["right"], {**s, "right": 2 * s["right"]})

    stages = [lambda s, x: x, [left, right], lambda s, a, b: a + b + s["left"]]
    (state,), (sent,) = run_pipeline(
        stages,
        6,
        engine="replay",
        data=[np.full(2, k, f32) for k in range(6)],
        device_mapping=[0, [1, 2], 3],
        untrained={"left": f32(0), "right": f32(1)},
    )
    before = np.cumsum([0, *(2 * np.arange(6))])
    assert (float(state["left"]), float(state["right"])) == (before[-1], 64)
    rows = np.arange(6) + before[:-1] + np.arange(6) * 2.0 ** np.arange(6) + before[1:]
    close(sent, np.stack([rows, rows], 1))


def test_values_of_any_origin_become_state() -> None:
    """An argument, another leaf, a variable and a number, without an operation in between."""
    use_ipus(2)
    s = {"x": np.int32(7), "y": np.int32(8), "z": np.int32(9), "one": np.int32(5)}

    def swap(v: Any, s: Any, k: Any) -> Any:
        return StageOutput((k, s["y"]), {**s, "x": s["y"], "y": k, "z": v})

    def last(v: Any, s: Any, k: Any, y: Any) -> Any:
        return StageOutput((s["x"], s["y"], s["z"], y, s["one"]), {**s, "one": 1})

    (state,), sent = run_pipeline(
        [swap, last], 4, engine="replay", data=list(np.arange(4, dtype=np.int32)),
        variables=np.int32(3), untrained=s,
    )  # fmt: skip
    assert jax.tree.map(int, state) == {"x": 2, "y": 3, "z": 3, "one": 1}
    before = [8, 0, 1, 2]
    np.testing.assert_array_equal(sent, [before, range(4), [3] * 4, before, [5, 1, 1, 1]])


# --- errors ---------------------------------------------------------------------------------------


def refused(stages: Any, state: Any, **more: Any) -> str:
    use_ipus(4)
    with pytest.raises(ipu.errors.PipelineError) as caught:
        run_pipeline(stages, 6, inputs=[f32(1)], untrained=state, **more)
    return str(caught.value)


def same_value(s: Any, x: Any) -> Any:
    return x


def changing(s: Any, x: Any) -> Any:
    return StageOutput(x, {**s, "count": s["count"] + 1})


def reading(s: Any, x: Any) -> Any:
    return x + s["count"]


COUNTER = {"count": f32(0)}


def test_stages_that_cannot_share_a_leaf_are_refused() -> None:
    text = refused([changing, changing], COUNTER)
    assert "state ['count'] is changed by stage 0 (`changing`) and by stage 1 (`changing`)" in text
    text = refused([reading, changing], COUNTER)
    assert "state ['count'] is read by stage 0 (`reading`) and changed by stage 1" in text
    text = refused([reading, reading], COUNTER)
    assert "state ['count'] is read by stage 0 (`reading`) on IPU 0 and by stage 1" in text
    text = refused([same_value, [changing, changing]], COUNTER, device_mapping=[0, [1, 2]])
    assert "two functions of stage 1 change state['count']" in text


def test_a_state_of_another_form_is_refused() -> None:
    text = refused([lambda s, x: StageOutput(x, {}), same_value], COUNTER)
    assert "stage 0 (`<lambda>`) returns a state of another structure" in text
    text = refused([lambda s, x: StageOutput(x, {"count": 1}), same_value], COUNTER)
    assert "turns state['count'] from float32[] into int32[]" in text
    text = refused([lambda x: StageOutput(x, None), lambda x: x], None)
    assert "stage 0 (`<lambda>`) returns a StageOutput, but the pipeline has no" in text
    text = refused([lambda x: x, same_value], COUNTER)
    assert "given: the state, then `inputs` and the infeed's element" in text
