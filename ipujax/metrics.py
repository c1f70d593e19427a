"""Metrics of evaluations: what is summed up on the device, and what the sums say at the end.

    metric = ipu.metrics.accuracy(labels, predictions)     # of a batch, in a model
    totals = jax.tree.map(jnp.add, totals, metric.totals)   # over steps, and over replicas
    metric.result(totals)                                  # of all of them

Estimators do the summing. The functions are called as those of `tf.metrics`; sums are float32, and
values are, whatever the dtypes of labels and predictions. Source: TensorFlow 1.15 API, tf.metrics.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.checks.arrays import check

__all__ = [
    "Metric",
    "accuracy",
    "mean",
    "mean_squared_error",
    "precision",
    "recall",
    "recall_at_k",
    "root_mean_squared_error",
]


def __dir__() -> list[str]:
    return __all__


_Totals = dict[str, jax.Array]


@check.guard
@jax.tree_util.register_dataclass
@dc.dataclass(frozen=True)
class Metric:
    """What a batch adds to a metric; a pytree, whose `result` is static.

    Attributes:
      totals: a pytree of arrays, which are added up over all steps and replicas.
      result: gives the metric's value from these sums.
    """

    totals: Any
    result: Callable[[Any], Any] = dc.field(metadata={"static": True})

    def __post_init__(self) -> None:
        check.function(self.result, "the result of a Metric")


@check.guard
def mean(
    values: Any,
    weights: Any = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """The weighted mean of all values; 0 where the weights add up to 0.

    Args:
      values: of any shape.
      weights: a scalar, or of the rank of `values` with extents that are the same or 1; a last
        axis of extent 1 may be missing, or too many. 1 if not given.
      metrics_collections: must be None, and so must `updates_collections`: there is no graph that
        could collect; a metric is what this returns.
      updates_collections: see `metrics_collections`.
      name: of the operations, in reports.

    Raises:
      OperatorError: (a `ValueError`) shapes that do not fit.
      ConfigTypeError: (a `TypeError`) what is no array of numbers.
    """
    _refuse_collections("mean", metrics_collections, updates_collections)
    with check.scope(name):
        return Metric(_mean_totals(_floats(values, "the values of mean"), weights), _ratio)


@check.guard
def accuracy(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """How often predictions are equal to labels.

    Args:
      labels: the truth.
      predictions: of the same shape, but that either may have a last axis of extent 1 more; they
        are cast to the dtype of the labels, floats to integers by leaving out what is behind the
        point.
      weights: as in `mean`.
      metrics_collections: as in `mean`.
      updates_collections: as in `mean`.
      name: as in `mean`.

    Raises:
      OperatorError: (a `ValueError`) shapes that do not fit.
      ConfigTypeError: (a `TypeError`) what is no array of numbers.
    """
    _refuse_collections("accuracy", metrics_collections, updates_collections)
    with check.scope(name):
        truth, guess = _pair(labels, predictions, "accuracy")
        equal = guess.astype(truth.dtype) == truth
        return Metric(_mean_totals(equal.astype(jnp.float32), weights), _ratio)


@check.guard
def precision(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """The share of what is predicted that is true; 0 where nothing is predicted.

    Args:
      labels: cast to bools: all but 0 is true.
      predictions: likewise; shapes as in `accuracy`.
      weights: as in `mean`.
      metrics_collections: as in `mean`.
      updates_collections: as in `mean`.
      name: as in `mean`.

    Raises:
      OperatorError: (a `ValueError`) shapes that do not fit.
      ConfigTypeError: (a `TypeError`) what is no array of numbers.
    """
    _refuse_collections("precision", metrics_collections, updates_collections)
    with check.scope(name):
        truth, guess = _bools(labels, predictions, "precision")
        return Metric(_hits(guess & truth, guess & ~truth, weights), _safe_share)


@check.guard
def recall(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """The share of what is true that is predicted; 0 where nothing is true.

    Args:
      labels: as in `precision`.
      predictions: as in `precision`.
      weights: as in `mean`.
      metrics_collections: as in `mean`.
      updates_collections: as in `mean`.
      name: as in `mean`.

    Raises:
      OperatorError: (a `ValueError`) shapes that do not fit.
      ConfigTypeError: (a `TypeError`) what is no array of numbers.
    """
    _refuse_collections("recall", metrics_collections, updates_collections)
    with check.scope(name):
        truth, guess = _bools(labels, predictions, "recall")
        return Metric(_hits(guess & truth, ~guess & truth, weights), _safe_share)


@check.guard
def recall_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """The share of labels that are among the `k` classes predicted first.

    A label that a row has twice counts once, one that is no class as not predicted.

    Args:
      labels: integers `[..., labels of a row]`, or `[...]` for one label in each.
      predictions: how likely each class is, `[..., classes]`; of equal ones the first counts more.
      k: how many classes.
      class_id: look at labels of this class alone.
      weights: a scalar, or broadcast to `[...]` as in `mean`.
      metrics_collections: as in `mean`.
      updates_collections: as in `mean`.
      name: as in `mean`.

    Returns:
      Its value is NaN where no label counts, as in `tf.metrics`.

    Raises:
      OperatorError: (a `ValueError`) shapes that do not fit, a `k` that is more than the classes,
        labels that are no integers.
      ConfigTypeError: (a `TypeError`) what is no array of numbers, a `k` or class that is no int.
    """
    _refuse_collections("recall_at_k", metrics_collections, updates_collections)
    first = check.integer(k, "the k of recall_at_k", at_least=1)
    only = None if class_id is None else check.integer(class_id, "the class_id of recall_at_k")
    with check.scope(name):
        scores, truth = _rows(labels, predictions, first)
        counts = _is_first(truth)
        if only is not None:
            counts &= truth == only
        chosen = lax.top_k(scores, first)[1]
        found = jnp.any(truth[..., :, None] == chosen[..., None, :], axis=-1)
        hits, misses = (jnp.sum(c, axis=-1) for c in (counts & found, counts & ~found))
        return Metric(_hits(hits, misses, weights), _share)


@check.guard
def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """The mean of squared differences.

    Args:
      labels: the truth.
      predictions: shapes as in `accuracy`.
      weights: as in `mean`.
      metrics_collections: as in `mean`.
      updates_collections: as in `mean`.
      name: as in `mean`.

    Raises:
      OperatorError: (a `ValueError`) shapes that do not fit.
      ConfigTypeError: (a `TypeError`) what is no array of numbers.
    """
    _refuse_collections("mean_squared_error", metrics_collections, updates_collections)
    with check.scope(name):
        return Metric(_squared_totals(labels, predictions, weights, "mean_squared_error"), _ratio)


@check.guard
def root_mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """The root of the mean of squared differences.

    Args:
      labels: the truth.
      predictions: shapes as in `accuracy`.
      weights: as in `mean`.
      metrics_collections: as in `mean`.
      updates_collections: as in `mean`.
      name: as in `mean`.

    Raises:
      OperatorError: (a `ValueError`) shapes that do not fit.
      ConfigTypeError: (a `TypeError`) what is no array of numbers.
    """
    function = "root_mean_squared_error"
    _refuse_collections(function, metrics_collections, updates_collections)
    with check.scope(name):
        return Metric(_squared_totals(labels, predictions, weights, function), _root_of_ratio)


def _ratio(totals: _Totals) -> jax.Array:
    total, count = jnp.float32(totals["total"]), jnp.float32(totals["count"])
    return jnp.where(count > 0, total / jnp.where(count > 0, count, 1), 0)


def _root_of_ratio(totals: _Totals) -> jax.Array:
    return jnp.sqrt(_ratio(totals))


def _share(totals: _Totals) -> jax.Array:
    hits, misses = jnp.float32(totals["hits"]), jnp.float32(totals["misses"])
    return hits / (hits + misses)


def _safe_share(totals: _Totals) -> jax.Array:
    return _ratio({"total": totals["hits"], "count": totals["hits"] + totals["misses"]})


def _mean_totals(values: jax.Array, weights: Any) -> _Totals:
    each = _weights(weights, values.shape)
    return {"total": jnp.sum(values * each), "count": jnp.sum(each)}


def _squared_totals(labels: Any, predictions: Any, weights: Any, function: str) -> _Totals:
    truth, guess = _pair(labels, predictions, function)
    difference = _floats(guess, f"predictions of {function}") - _floats(truth, "labels")
    return _mean_totals(difference * difference, weights)


def _hits(hits: jax.Array, misses: jax.Array, weights: Any) -> _Totals:
    each = _weights(weights, hits.shape)
    return {"hits": jnp.sum(hits * each), "misses": jnp.sum(misses * each)}


def _weights(weights: Any, shape: tuple[int, ...]) -> jax.Array:
    """Weights for values of a shape, float32."""
    each = _floats(1.0 if weights is None else weights, "the weights of a metric")
    given = each.shape
    if each.ndim == len(shape) + 1 and given[-1] == 1:
        each = each[..., 0]
    elif each.ndim and each.ndim == len(shape) - 1:
        each = each[..., None]
    fits = each.ndim in (0, len(shape))
    if not fits or any(own not in (1, dim) for own, dim in zip(each.shape, shape, strict=False)):
        raise check.refuse(
            f"the weights of a metric have shape {list(given)}, and the values {list(shape)}",
            "give a scalar, or weights of the same rank whose extents are the same or 1",
        )
    return jnp.broadcast_to(each, shape)


def _pair(labels: Any, predictions: Any, function: str) -> tuple[jax.Array, jax.Array]:
    """Labels and predictions of one shape."""
    truth = check.array(labels, f"the labels of {function}")
    guess = check.array(predictions, f"the predictions of {function}")
    shapes = truth.shape, guess.shape
    if guess.ndim == truth.ndim + 1 and guess.shape[-1] == 1:
        guess = guess[..., 0]
    elif truth.ndim == guess.ndim + 1 and truth.shape[-1] == 1:
        truth = truth[..., 0]
    if truth.shape != guess.shape:
        raise check.refuse(
            f"{function} has labels of shape {list(shapes[0])} and predictions of "
            f"{list(shapes[1])}",
            "give both the same shape",
        )
    return truth, guess


def _bools(labels: Any, predictions: Any, function: str) -> tuple[jax.Array, jax.Array]:
    truth, guess = _pair(labels, predictions, function)
    return truth.astype(bool), guess.astype(bool)


def _rows(labels: Any, predictions: Any, k: int) -> tuple[jax.Array, jax.Array]:
    """Scores `[..., classes]` and labels `[..., labels of a row]`."""
    scores = check.array(predictions, "the predictions of recall_at_k")
    truth = check.array(labels, "the labels of recall_at_k")
    if not jnp.issubdtype(truth.dtype, jnp.integer):
        raise check.refuse(f"the labels of recall_at_k are {truth.dtype}", "give integers")
    if truth.ndim == scores.ndim - 1:
        truth = truth[..., None]
    if not scores.ndim or scores.shape[:-1] != truth.shape[:-1] or truth.ndim != scores.ndim:
        raise check.refuse(
            f"recall_at_k has labels of shape {list(jnp.shape(labels))} and predictions of "
            f"{list(scores.shape)}",
            "give predictions [..., classes] and labels [..., labels of a row] or [...]",
        )
    if k > scores.shape[-1]:
        raise check.refuse(
            f"the k of recall_at_k is {k}, but there are {scores.shape[-1]} classes",
            f"give at most {scores.shape[-1]}",
        )
    return scores, truth


def _is_first(labels: jax.Array) -> jax.Array:
    """Which labels of a row are there for the first time."""
    same = labels[..., :, None] == labels[..., None, :]
    return ~jnp.any(jnp.tril(same, -1), axis=-1)


def _floats(x: Any, what: str) -> jax.Array:
    values = check.array(x, what)
    if jnp.issubdtype(values.dtype, jnp.complexfloating):
        raise check.refuse(f"{what} are {values.dtype}", "give real numbers")
    return values.astype(jnp.float32)


def _refuse_collections(function: str, *collections: Any) -> None:
    names = ("metrics_collections", "updates_collections")
    for name, value in zip(names, collections, strict=True):
        if value is not None:
            raise check.refuse(
                f"the {name} of {function} is {value!r}, but there is no graph that collects",
                "leave it out, and use what is returned",
            )
