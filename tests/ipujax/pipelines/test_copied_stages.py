"""Stages with copies, and sequences in segments, train as the plain step does."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.pipelining_ops import StageOutput
from ipujax.schedules import ScheduleError
from tests.ipujax.pipelining import ENGINES, batched, run_pipeline, sgd

STAGES, MICRO_BATCHES = 4, 8


def in_halves(stages: int, micro_batches: int) -> dict[int, list[str]]:
    """The first half of micro-batches from the first IPU to the last, the others back."""
    half = micro_batches // 2
    orders: dict[int, list[str]] = {place: [] for place in range(stages)}
    for phase in "FB":
        for number in range(half):
            for place in orders:
                orders[place] += [
                    f"{place}{phase}{number}",
                    f"{stages - 1 - place}{phase}{half + number}",
                ]
    return orders


NAMED = {
    "chimera": [0, 1, 2, 3],
    "dualpipe": [0, 1, 2, 3],
    "dualpipe_v": [0, 1, 1, 0],
    "seq_one_f_one_b": [0, 1, 2, 3],
    "in_halves": [0, 1, 2, 3],
}


def loss_fn(weights: list[jax.Array], x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    for stage, w in enumerate(weights):
        with ipu.scopes.pipeline_stage(stage):
            x = jnp.tanh(x @ w)
    with ipu.scopes.pipeline_stage(STAGES - 1):
        return jnp.mean((x - y) ** 2), x


def sample() -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    weights = [random.normal(size=(8, 8), scale=0.5).astype(np.float32) for _ in range(STAGES)]
    x, y = (random.normal(size=(16, 8)).astype(np.float32) for _ in range(2))
    return weights, x, y


def configure(ipus: int, **options: Any) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    for name, value in options.items():
        setattr(config, name, value)
    config.configure_ipu_system()


@pytest.mark.sampled(6, 20)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kept", ["all", "inputs", "offloaded"])
@pytest.mark.parametrize("name", NAMED)
def test_gradients_are_those_of_the_plain_step(name: str, kept: str, engine: str) -> None:
    configure(max(NAMED[name]) + 1, allow_recompute=kept == "inputs")
    weights, x, y = sample()
    grad_fn = ipu.pipelining_ops.value_and_grad(
        loss_fn,
        has_aux=True,
        micro_batches=MICRO_BATCHES,
        schedule=in_halves if name == "in_halves" else name,
        device_mapping=NAMED[name],
        recompute=kept == "inputs",
        offload=kept == "offloaded",
    )
    (loss, aux), gradients = ipu.compile(grad_fn, engine=engine)(weights, x, y)
    plain = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))
    (plain_loss, plain_aux), plain_gradients = plain(weights, x, y)
    np.testing.assert_allclose(loss, plain_loss, rtol=1e-6)
    np.testing.assert_allclose(aux.reshape(16, 8), plain_aux, rtol=1e-5, atol=1e-6)
    for found, wanted in zip(gradients, plain_gradients, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())


def crossing(stages: int, micro_batches: int) -> list[list[str]]:
    """The last stage takes the micro-batches of each pair the other way round."""
    pairs = [(m, m + 1) for m in range(0, micro_batches, 2)]
    first = [f"0{phase}{m}" for pair in pairs for phase in "FB" for m in pair]
    return [first, [f"1{phase}{m}" for one, two in pairs for m in (two, one) for phase in "FB"]]


def test_micro_batches_keep_their_rows_in_any_order() -> None:
    configure(2)
    weights, x, y = sample()

    def two_stages(weights: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        with ipu.scopes.pipeline_stage(0):
            x = jnp.tanh(x @ weights[0])
        with ipu.scopes.pipeline_stage(1):
            return jnp.mean((x @ weights[1] - y) ** 2)

    grad_fn = ipu.pipelining_ops.value_and_grad(two_stages, micro_batches=4, schedule=crossing)
    loss, gradients = ipu.compile(grad_fn, engine="replay")(weights[:2], x, y)
    plain_loss, plain_gradients = jax.value_and_grad(two_stages)(weights[:2], x, y)
    np.testing.assert_allclose(loss, plain_loss, rtol=1e-6)
    for found, wanted in zip(gradients, plain_gradients, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def stage_functions() -> list[Any]:
    hidden = [lambda v, x, s=s: jnp.tanh(x @ v[s]) for s in range(STAGES - 1)]
    return [*hidden, lambda v, x: jnp.mean(jnp.tanh(x @ v[STAGES - 1]) ** 2)]


def train(schedule: Any, engine: str, **arguments: Any) -> Any:
    data = batched(lambda i: np.full(8, np.sin(i), np.float32) + np.arange(8, dtype="f4") / 9, 2)
    return run_pipeline(
        stage_functions(),
        MICRO_BATCHES,
        engine=engine,
        variables=sample()[0],
        data=data,
        optimizer_function=sgd(0.1, 0.9),
        pipeline_schedule=schedule,
        repeat_count=3,
        **arguments,
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["chimera", "dualpipe"])
def test_optimizers_get_the_sums_of_copies(name: str, engine: str) -> None:
    configure(4)
    (variables, _), losses = train(name, engine)
    (expected, _), expected_losses = train("one_f_one_b", engine)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for found, wanted in zip(variables, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_what_does_not_go_with_copies_is_said() -> None:
    configure(4)
    with pytest.raises(ScheduleError, match=r"chimera has copies of stages.* gradient sum"):
        train("chimera", "replay", reduction_method="running_mean")
    with pytest.raises(ScheduleError, match=r"in_halves runs 0F4 before 0F1, and both use"):
        train(in_halves, "replay")


def test_state_that_passes_from_micro_batch_to_micro_batch() -> None:
    configure(2)

    def first(v: Any, state: jax.Array, x: jax.Array) -> Any:
        return StageOutput(x * v[0], state + 1)

    def last(v: Any, state: jax.Array, x: jax.Array) -> Any:
        return StageOutput(jnp.mean(x * v[1]), state)

    with pytest.raises(ScheduleError, match=r"changes state for the next one"):
        run_pipeline(
            [first, last],
            4,
            variables=[jnp.ones(()), jnp.ones(())],
            untrained=jnp.zeros(()),
            data=batched(lambda i: np.full(2, i, np.float32), 2),
            optimizer_function=sgd(0.1),
            pipeline_schedule="chimera",
        )


def nodes_of_kind(node: Any, kind: str) -> list[Any]:
    own = [node] if node.kind == kind else []
    return own or [found for child in node.children for found in nodes_of_kind(child, kind)]


def test_the_model_counts_the_tasks_of_each_copy() -> None:
    """Two directions halve what 1F1B idles, and every IPU has the parameters of two stages."""
    configure(4)
    weights, x, y = sample()
    found = {}
    for name in ("one_f_one_b", "chimera"):
        grad_fn = ipu.pipelining_ops.value_and_grad(
            loss_fn, has_aux=True, micro_batches=MICRO_BATCHES, schedule=name
        )
        found[name] = ipu.compile(grad_fn).lower(weights, x, y).report()
    one, two = (found[name].pipeline for name in found)
    assert one is not None
    assert two is not None
    assert (one.ticks, two.ticks) == (22, 18)
    assert (one.stages, two.stages) == (4, 4)
    assert two.stage_ipus == ((0,), (1,), (2,), (3,), (3,), (2,), (1,), (0,))
    assert two.bubble_fraction == pytest.approx(1 - 16 / 18)
    assert two.utilisation > one.utilisation
    (pipeline,) = nodes_of_kind(found["chimera"].program, "pipeline")
    tasks = nodes_of_kind(pipeline, "task")
    assert {node.count for node in tasks} == {MICRO_BATCHES // 2}
    assert len(tasks) == 2 * 2 * STAGES


def test_comparisons_and_plans() -> None:
    configure(4)
    weights, x, y = sample()
    grad_fn = ipu.pipelining_ops.value_and_grad(loss_fn, has_aux=True, micro_batches=MICRO_BATCHES)
    compared = ipu.compare(grad_fn, (weights, x, y), schedules=["one_f_one_b", "chimera"])
    bubbles = {row.schedule: row.bubble_fraction for row in compared.rows}
    assert bubbles == {"one_f_one_b": pytest.approx(6 / 22), "chimera": pytest.approx(2 / 18)}
    with pytest.raises(ipu.errors.PlanError, match="no plan can be made for chimera"):
        ipu.plan(
            loss_fn, weights, x, y, ipus=4, micro_batches=8, has_aux=True, schedules=("chimera",)
        )


def test_saved_programs_keep_copies(tmp_path: Any) -> None:
    configure(4)
    weights, x, y = sample()
    grad_fn = ipu.pipelining_ops.value_and_grad(
        loss_fn, has_aux=True, micro_batches=MICRO_BATCHES, schedule="chimera"
    )
    compiled = ipu.compile(grad_fn, engine="replay").lower(weights, x, y).compile()
    compiled.save(tmp_path / "program")
    expected = jax.tree.leaves(compiled(weights, x, y))
    loaded = ipu.load_executable(tmp_path / "program")
    for a, b in zip(jax.tree.leaves(loaded(weights, x, y)), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_docstring_of_copies() -> None:
    schedule = schedules.build(in_halves, stages=4, micro_batches=8, training=True)
    assert schedule.copies == (schedule.ipus, schedule.ipus[::-1])
    assert [schedule.copy_of(m) for m in range(8)] == [0] * 4 + [1] * 4
