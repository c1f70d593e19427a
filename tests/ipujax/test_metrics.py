"""Metrics, summed over batches, are what NumPy gives for all of the data at once."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipujax import metrics
from ipujax.errors import ConfigTypeError, OperatorError
from ipujax.metrics import Metric

LAST = ["weights", "metrics_collections", "updates_collections", "name"]
RATES = ("accuracy", "precision", "recall")
ERRORS = ("mean_squared_error", "root_mean_squared_error")
RANDOM = np.random.default_rng(0)
FLAGS = RANDOM.integers(0, 2, (2, 37))
NUMBERS = RANDOM.normal(size=(2, 37)).astype(np.float32)
WEIGHTS = RANDOM.uniform(0, 2, 37).astype(np.float32)


def value(metric: Metric) -> float:
    return float(metric.result(metric.totals))


def summed(batches: list[Metric]) -> float:
    totals = jax.tree.map(lambda *each: sum(each), *[batch.totals for batch in batches])
    return float(batches[0].result(totals))


def reference(name: str, labels: Any, predictions: Any, weights: Any) -> float:
    """In float64, element by element."""
    rows = list(zip(np.ravel(labels), np.ravel(predictions), np.ravel(weights), strict=True))
    if name in ERRORS:
        error = sum(w * (float(t) - float(p)) ** 2 for t, p, w in rows) / sum(weights)
        return error if name == "mean_squared_error" else float(np.sqrt(error))
    if name == "accuracy":
        return sum(w for t, p, w in rows if t == p) / sum(weights)
    hits = sum(w for t, p, w in rows if t and p)
    all_of_them = sum(w for t, p, w in rows if (p if name == "precision" else t))
    return hits / all_of_them


def recall_reference(labels: Any, scores: Any, k: int, only: Any, weights: Any) -> float:
    hits = total = 0.0
    for row, score, weight in zip(labels, scores, weights, strict=True):
        ranked = sorted(range(len(score)), key=lambda c: (-score[c], c))[:k]
        counted = {label for label in np.ravel(row) if only in (None, label)}
        hits += weight * len(counted & set(ranked))
        total += weight * len(counted)
    return hits / total if total else float("nan")


def data(name: str) -> tuple[Any, Any]:
    labels, predictions = NUMBERS if name in ERRORS else FLAGS
    return labels, predictions


@pytest.mark.parametrize("name", [*RATES, *ERRORS])
@pytest.mark.parametrize("weighted", [False, True])
def test_batches_of_any_size_add_up(name: str, weighted: bool) -> None:
    labels, predictions = data(name)
    weights = WEIGHTS if weighted else np.ones(37)
    function = getattr(metrics, name)
    wanted = reference(name, labels, predictions, weights)
    given = {"weights": weights} if weighted else {}
    assert value(function(labels, predictions, **given)) == pytest.approx(wanted, rel=1e-5)
    batches = [
        function(labels[a:b], predictions[a:b], weights[a:b] if weighted else None)
        for a, b in ((0, 1), (1, 20), (20, 20), (20, 37))
    ]
    assert summed(batches) == pytest.approx(wanted, rel=1e-5)


def test_a_mean_is_weighted() -> None:
    values = NUMBERS[0]
    assert value(metrics.mean(values)) == pytest.approx(values.mean(), rel=1e-5)
    wanted = np.average(values, weights=WEIGHTS)
    assert value(metrics.mean(values, WEIGHTS)) == pytest.approx(wanted, rel=1e-5)
    batches = [metrics.mean(values[a:b], WEIGHTS[a:b]) for a, b in ((0, 5), (5, 37))]
    assert summed(batches) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("shape", "weights"),
    [
        ((2, 3), np.float32(0.5)),
        ((2, 3), [[0.5], [2.0]]),
        ((2, 3), [[1.0, 0.0, 2.0]]),
        ((2, 3), [0.5, 2.0]),  # a missing last axis, as that of rows
        ((2,), [[0.5], [2.0]]),  # one too many
        ((), 3.0),
        ((), [3.0]),
    ],
)
def test_weights_broadcast(shape: tuple[int, ...], weights: Any) -> None:
    values = np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    each = np.asarray(weights, np.float64)
    each = each[:, None] if (values.ndim, each.ndim) == (2, 1) else each
    each = each[..., 0] if each.ndim > values.ndim else each
    wanted = np.average(values, weights=np.broadcast_to(each, shape))
    assert value(metrics.mean(values, weights)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("shape", [(3,), (3, 2), (2, 3, 1, 1), (0,)])
def test_weights_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(OperatorError, match=r"weights of a metric have shape .*\[2, 3\]"):
        metrics.mean(np.ones((2, 3)), np.ones(shape))


@pytest.mark.parametrize("name", [*RATES, *ERRORS])
def test_nothing_to_count_is_zero(name: str) -> None:
    labels, predictions = data(name)
    function = getattr(metrics, name)
    assert value(function(labels, predictions, 0.0)) == 0
    assert value(function(labels[:0], predictions[:0])) == 0
    assert value(metrics.mean(labels, np.zeros(37))) == 0
    if name not in ("accuracy", *ERRORS):
        assert value(function(np.zeros(3), np.zeros(3))) == 0


@pytest.mark.fact("estimator.eval_binary")
def test_the_rates_of_the_original() -> None:
    labels, predictions = [0, 1, 0, 1], [0, 0, 0, 1]
    found = {
        name: summed(
            [getattr(metrics, name)([t], [p]) for t, p in zip(labels, predictions, strict=True)]
        )
        for name in RATES
    }
    assert found == {"accuracy": 0.75, "precision": 1.0, "recall": 0.5}


@pytest.mark.fact("estimator.eval_host_replicated")
def test_errors_of_the_original() -> None:
    labels, predictions = np.float32([0, 1, 0, 1]), np.float32([0, 0, 0, 1])
    assert value(metrics.mean_squared_error(labels, predictions)) == 0.25
    assert value(metrics.root_mean_squared_error(labels, predictions)) == 0.5


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int32, np.uint8, np.float32, jnp.bfloat16])
@pytest.mark.parametrize("other", [bool, np.int32, np.float16])
def test_labels_and_predictions_are_of_any_dtype(dtype: Any, other: Any) -> None:
    labels, predictions = FLAGS
    for name in (*RATES, *ERRORS):
        wanted = reference(name, labels, predictions, np.ones(37))
        found = getattr(metrics, name)(labels.astype(dtype), predictions.astype(other))
        assert {total.dtype for total in jax.tree.leaves(found.totals)} == {np.dtype(np.float32)}
        assert value(found) == pytest.approx(wanted, rel=1e-5)


def test_predictions_are_cast_to_the_dtype_of_labels() -> None:
    assert value(metrics.accuracy(np.int32([0, 1, 2]), np.float32([0.9, 1.9, 1.0]))) == (
        pytest.approx(2 / 3)
    )


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_sums_are_wider_than_what_is_summed(dtype: Any) -> None:
    values = np.full(100_000, 300.0).astype(dtype)  # in itself they would be infinite, or stuck
    rounded = float(values[0])
    assert value(metrics.mean(values)) == pytest.approx(rounded, rel=1e-4)
    zeros = np.zeros(100_000).astype(dtype)
    assert value(metrics.root_mean_squared_error(zeros, values)) == pytest.approx(rounded, rel=1e-4)
    assert value(metrics.accuracy(zeros, zeros)) == 1


@pytest.mark.parametrize(("left", "right"), [((4,), (4, 1)), ((4, 1), (4,)), ((4, 1), (4, 1))])
def test_a_last_axis_of_one_may_be_missing(left: Any, right: Any) -> None:
    labels, predictions = np.reshape([0, 1, 0, 1], left), np.reshape([0, 1, 1, 1], right)
    assert value(metrics.accuracy(labels, predictions)) == 0.75
    assert value(metrics.mean_squared_error(labels, predictions)) == 0.25


@pytest.mark.parametrize(("left", "right"), [((4,), (3,)), ((4,), (4, 2)), ((4, 1, 1), (4,))])
def test_shapes_must_fit(left: Any, right: Any) -> None:
    for name in (*RATES, *ERRORS):
        with pytest.raises(OperatorError, match=f"{name} has labels of shape"):
            getattr(metrics, name)(np.zeros(left), np.zeros(right))


LABELS = np.array([[0, 3, 3], [1, 2, 4], [5, -1, 2], [9, 9, 9]])
SCORES = RANDOM.integers(0, 3, (4, 6)).astype(np.float32)  # with ties


@pytest.mark.sampled(1)
@pytest.mark.parametrize("k", [1, 2, 3, 6])
@pytest.mark.parametrize("only", [None, 0, 3, 2, 9, -1])
@pytest.mark.parametrize("weights", [None, [1.0, 0.0, 0.5, 2.0]])
def test_recall_at_k(k: int, only: Any, weights: Any) -> None:
    wanted = recall_reference(LABELS, SCORES, k, only, [1.0] * 4 if weights is None else weights)
    found = metrics.recall_at_k(LABELS, SCORES, k, class_id=only, weights=weights)
    assert value(found) == pytest.approx(wanted, nan_ok=True)
    batches = [
        metrics.recall_at_k(
            LABELS[a:b], SCORES[a:b], k, only, None if weights is None else weights[a:b]
        )
        for a, b in ((0, 1), (1, 4))
    ]
    assert summed(batches) == pytest.approx(wanted, nan_ok=True)


def test_recall_at_k_of_one_label_in_each_row() -> None:
    labels = LABELS[:, 0]
    wanted = recall_reference(labels, SCORES, 2, None, [1.0] * 4)
    assert value(metrics.recall_at_k(labels, SCORES, 2)) == pytest.approx(wanted)
    for shape in ((2, 2), (2, 2, 1)):
        scores = SCORES.reshape(2, 2, 6).astype(jnp.bfloat16)
        assert value(metrics.recall_at_k(labels.reshape(shape), scores, 2)) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("labels", "k", "what"),
    [
        (LABELS, 7, "the k of recall_at_k is 7, but there are 6 classes"),
        (LABELS, 0, "must be at least 1"),
        (LABELS[:3], 1, "labels of shape"),
        (LABELS[None], 1, "labels of shape"),
        (LABELS.astype(np.float32), 1, "the labels of recall_at_k are float32"),
    ],
)
def test_recall_at_k_checks_what_it_gets(labels: Any, k: int, what: str) -> None:
    with pytest.raises(OperatorError, match=what):
        metrics.recall_at_k(labels, SCORES, k)


def test_a_metric_crosses_jit() -> None:
    @jax.jit
    def evaluate(labels: Any, predictions: Any) -> dict[str, Metric]:
        return {
            "accuracy": metrics.accuracy(labels, predictions),
            "mse": metrics.mean_squared_error(labels, predictions),
            "top": metrics.recall_at_k(LABELS, SCORES, 3),
        }

    labels, predictions = FLAGS
    got = evaluate(labels, predictions)
    wanted = reference("accuracy", labels, predictions, np.ones(37))
    assert value(got["accuracy"]) == pytest.approx(wanted)
    evaluate(*FLAGS[::-1])
    assert evaluate._cache_size() == 1
    assert float(jax.jit(lambda metric: metric.result(metric.totals))(got["mse"])) == (
        pytest.approx(reference("mean_squared_error", labels, predictions, np.ones(37)))
    )
    with pytest.raises(AttributeError):
        got["accuracy"].totals = None


def test_sums_may_be_those_of_numpy() -> None:
    """As an estimator has them, in 64 bits."""
    for name in (*RATES, *ERRORS):
        metric = getattr(metrics, name)(*data(name))
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), metric.totals)
        assert float(metric.result(wide)) == pytest.approx(value(metric))


def test_arguments_are_those_of_the_original() -> None:
    for name in (*RATES, *ERRORS):
        given = list(inspect.signature(getattr(metrics, name)).parameters)
        assert given == ["labels", "predictions", *LAST]
    assert list(inspect.signature(metrics.mean).parameters) == ["values", *LAST]
    given = list(inspect.signature(metrics.recall_at_k).parameters)
    assert given == ["labels", "predictions", "k", "class_id", *LAST]


def test_there_is_nothing_that_collects() -> None:
    for name in ("metrics_collections", "updates_collections"):
        with pytest.raises(OperatorError, match=f"the {name} of mean is 'mine'"):
            metrics.mean([1.0], **{name: "mine"})
    named = jax.make_jaxpr(lambda x: metrics.mean(x, name="mine").totals)(1.0)
    assert "mine" in str(named.eqns[-1].source_info.name_stack)


def test_results_are_functions() -> None:
    with pytest.raises(ConfigTypeError, match="the result of a Metric is 3"):
        Metric({"total": 1}, 3)
    with pytest.raises(OperatorError, match="are complex64"):
        metrics.mean(np.complex64([1j]))
