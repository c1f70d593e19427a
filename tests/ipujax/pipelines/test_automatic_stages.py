"""Functions without marks, cut into stages by the machine model's cycles."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import ipujax as ipu
from ipujax.errors import PipelineError
from ipujax.pipelines import automatic_stages
from ipujax.pipelining_ops import value_and_grad
from tests.ipujax.feeding import configure
from tests.ipujax.staged_models import WIDTH, squared_error, xy
from tests.ipujax.staging import mlp_batch, mlp_loss, mlp_params, normal, relative_distance

LAYERS = 6


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.data())
def test_the_costliest_part_costs_least(costs: list[int], data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, len(costs)))

    def costliest(starts: Any) -> int:
        ends = (*starts[1:], len(costs))
        return max(sum(costs[a:b]) for a, b in zip(starts, ends, strict=True))

    every = [(0, *rest) for rest in itertools.combinations(range(1, len(costs)), parts - 1)]
    starts = automatic_stages.balance(costs, parts)
    assert tuple(starts) in every
    assert costliest(starts) == min(map(costliest, every))


@given(
    st.lists(st.integers(1, 9), min_size=0, max_size=3),
    st.integers(2, 6),
    st.lists(st.integers(1, 9), min_size=0, max_size=3),
    st.data(),
)
def test_layers_are_shared_evenly_where_that_costs_little(
    before: list[int], layers: int, after: list[int], data: st.DataObject
) -> None:
    costs = [*before, *[3] * layers, *after]
    parts = data.draw(st.integers(1, len(costs)))
    numbers = range(len(before), len(before) + layers)

    def costliest(starts: Any) -> int:
        ends = (*starts[1:], len(costs))
        return max(sum(costs[a:b]) for a, b in zip(starts, ends, strict=True))

    def is_even(starts: Any) -> bool:
        ends = (*starts[1:], len(costs))
        counts = [len(set(range(a, b)) & set(numbers)) for a, b in zip(starts, ends, strict=True)]
        return len(set(counts) - {0}) == 1 and max(counts) < layers

    every = [(0, *rest) for rest in itertools.combinations(range(1, len(costs)), parts - 1)]
    cheapest = min(map(costliest, every))
    even = min((costliest(starts) for starts in every if is_even(starts)), default=1e9)
    starts = automatic_stages.balance_with_equal_layers(costs, numbers, parts)
    assert tuple(starts) in every
    assert costliest(starts) == (even if even <= 1.5 * cheapest else cheapest)
    assert is_even(starts) or even > 1.5 * cheapest


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=7), st.data())
def test_parameters_stay_whole_where_that_costs_little(
    segments: list[tuple[int, int]], data: st.DataObject
) -> None:
    costs, split = (list(column) for column in zip(*segments, strict=True))
    split[0], parts = 0, data.draw(st.integers(1, len(costs)))

    def costliest(starts: Any) -> int:
        ends = (*starts[1:], len(costs))
        return max(sum(costs[a:b]) for a, b in zip(starts, ends, strict=True))

    every = [(0, *rest) for rest in itertools.combinations(range(1, len(costs)), parts - 1)]
    cheapest = min(map(costliest, every))
    within = [starts for starts in every if costliest(starts) <= 1.25 * cheapest]
    freely = automatic_stages.balance(costs, parts)
    starts = automatic_stages.balance_with_whole_parameters(costs, split, 20, parts)
    splits = [sum(split[start] for start in each) for each in (starts, freely, *within)]
    costlier = costliest(starts) / cheapest - 1
    assert starts == freely or (
        splits[0] == min(splits) and costlier <= (splits[1] - splits[0]) / 20
    )
    least = min((s, costliest(each)) for s, each in zip(splits[2:], within, strict=True))
    is_worth_it = least[0] < splits[1] and least[1] / cheapest - 1 <= (splits[1] - least[0]) / 20
    assert (splits[0], costliest(starts)) == least or not is_worth_it


def two_layers_over_time(params: Any, batch: Any) -> Any:
    """A recurrent layer that reads rows one by one, and one that writes fewer."""

    def layer(weights: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            state = jnp.tanh(state @ weights["h"] + row @ weights["x"])
            return state, state

        return step

    x = batch["x"].reshape(-1, 2, WIDTH // 2).transpose(1, 0, 2)
    x = jnp.concatenate([x, 2 * x, 3 * x])
    state, _ = lax.scan(layer(params["encoder"]), jnp.zeros((x.shape[1], WIDTH)), x)
    _, rows = lax.scan(layer(params["decoder"]), state, x[:4])
    return squared_error(rows[-1], batch)


def test_each_recurrent_layer_stays_on_one_ipu() -> None:
    weights = {"h": normal(1, WIDTH, WIDTH) / 3, "x": normal(2, WIDTH // 2, WIDTH) / 3}
    params, batch = {"encoder": weights, "decoder": weights}, xy(8)
    configure(2)
    grad_fn = value_and_grad(two_layers_over_time, micro_batches=2, stages=2)
    text = ipu.compile(grad_fn).lower(params, batch).as_text()
    sums = [line for line in text.splitlines() if f"float32[{WIDTH},{WIDTH}]" in line]
    assert [line.split(":")[0].strip() for line in sums if "carry" in line] == [
        "carry ipu 0",
        "carry ipu 1",
    ]


def test_stages_that_keep_no_parameters_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    weights = {"h": normal(1, WIDTH, WIDTH) / 3, "x": normal(2, WIDTH // 2, WIDTH) / 3}
    configure(4)
    grad_fn = value_and_grad(two_layers_over_time, micro_batches=2, stages=4)
    ipu.compile(grad_fn).lower({"encoder": weights, "decoder": weights}, xy(8))
    (message,) = {text for text in caplog.messages if "cut within a layer" in text}
    assert "all parameters of the stages 1, 3 are" in message


def layers() -> Any:
    weights = {"w": normal(2, LAYERS, WIDTH, WIDTH) / 3, "b": normal(3, LAYERS, WIDTH)}
    return {"in": normal(1, WIDTH, WIDTH) / 3, "layers": weights}


def unrolled_loss(params: Any, batch: Any) -> Any:
    x = batch["x"] @ params["in"]
    for i in range(LAYERS):
        x = jnp.tanh(x @ params["layers"]["w"][i] + params["layers"]["b"][i])
    return squared_error(x @ params["in"].T, batch)


def scanned_loss(params: Any, batch: Any, *, reverse: bool = False) -> Any:
    def layer(x: Any, weights: Any) -> Any:
        x = jnp.tanh(x @ weights["w"] + weights["b"])
        return x, jnp.sum(x)

    x, sums = lax.scan(layer, batch["x"] @ params["in"], params["layers"], reverse=reverse)
    return squared_error(x @ params["in"].T, batch) + 1e-3 * jnp.sum(sums * jnp.arange(LAYERS))


def reversed_loss(params: Any, batch: Any) -> Any:
    return scanned_loss(params, batch, reverse=True)


def mean_loss(loss: Any) -> Any:
    """The mean over two micro-batches, since the scanned loss is no mean over rows."""
    half = len(xy()["x"]) // 2
    first, second = (
        {k: v[rows] for k, v in xy().items()} for rows in (slice(half), slice(half, None))
    )
    return jax.value_and_grad(lambda p: (loss(p, first) + loss(p, second)) / 2)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("stages", [1, 2, 4, [2, 4, 5]], ids=str)
@pytest.mark.parametrize("loss", [unrolled_loss, scanned_loss, reversed_loss])
def test_a_cut_function_has_the_same_numbers(loss: Any, stages: Any) -> None:
    configure(4)
    step = value_and_grad(loss, micro_batches=2, stages=stages)
    result = ipu.compile(step, engine="replay", replicas=1)(layers(), xy())
    assert relative_distance(result, jax.jit(mean_loss(loss))(layers())) < 1e-6


def test_each_stage_gets_its_slice_of_stacked_layers() -> None:
    configure(4)
    step = value_and_grad(scanned_loss, micro_batches=2, stages=4)
    text = ipu.compile(step).lower(layers(), xy()).as_text()
    tasks = text.split("    task ")[1:]
    assert len(tasks) == 8
    carried = [line for line in text.splitlines() if "carry ipu" in line]
    assert not [line for line in carried if f"[{LAYERS},{WIDTH},{WIDTH}]" in line]  # no whole leaf


def test_more_stages_than_products_are_an_error() -> None:
    with pytest.raises(
        PipelineError, match=r"`unrolled_loss` cannot be cut into 9 stages.*8 parts"
    ):
        value_and_grad(unrolled_loss, micro_batches=2, stages=9)(layers(), xy())


def test_a_checkpoint_around_all_layers_is_named() -> None:
    step = value_and_grad(jax.checkpoint(unrolled_loss), micro_batches=2, stages=2)
    with pytest.raises(PipelineError, match=r"it has 1 part (.|\n)*jax.checkpoint.*each layer"):
        ipu.compile(step)(layers(), xy())


def test_a_number_must_agree_with_the_marks() -> None:
    step = value_and_grad(mlp_loss, micro_batches=2, stages=3)
    with pytest.raises(
        PipelineError, match="asks for 3 stages, and the marks in `mlp_loss` name 2"
    ):
        step(mlp_params(), mlp_batch())
    step = value_and_grad(mlp_loss, micro_batches=2, stages=2)
    jax.make_jaxpr(step)(mlp_params(), mlp_batch())


def test_cut_points_ascend() -> None:
    with pytest.raises(PipelineError, match="are no cut points"):
        value_and_grad(unrolled_loss, micro_batches=2, stages=[3, 2])(layers(), xy())
