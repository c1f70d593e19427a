"""Metrics of evaluations: totals summed on the device, and values computed from them at the end."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from ipujax.ground import PyTree, check

_Totals = dict[str, jax.Array]


@check.guard
@jax.tree_util.register_dataclass
@dc.dataclass(frozen=True)
class Metric:
    """The totals that a batch adds to a metric, and the function from totals to its value.

    Attributes:
      totals: a pytree of arrays, which are added up over all steps and replicas.
      result: gives the metric's value from these sums.
    """

    totals: PyTree
    result: Callable[[PyTree], PyTree] = dc.field(metadata={"static": True})

    def __post_init__(self) -> None:
        check.require_function(self.result, "the result of a Metric")


@check.guard
def mean(
    values: PyTree,
    weights: ArrayLike | None = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """Computes the weighted mean of all values; 0 where the weights add up to 0.

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
    with check.operator_scope(name):
        return Metric(_mean_totals(_to_float32(values, "the values of mean"), weights), _safe_ratio)


@check.guard
def accuracy(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """Computes the fraction of predictions that equal their labels.

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
    with check.operator_scope(name):
        truth, guess = _match_shapes(labels, predictions, "accuracy")
        equal = guess.astype(truth.dtype) == truth
        return Metric(_mean_totals(equal.astype(jnp.float32), weights), _safe_ratio)


@check.guard
def precision(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """Computes the fraction of predicted positives that are true; 0 without positives.

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
    with check.operator_scope(name):
        truth, guess = _match_booleans(labels, predictions, "precision")
        return Metric(_hit_totals(guess & truth, guess & ~truth, weights), _hit_fraction_or_zero)


@check.guard
def recall(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """Computes the fraction of true labels that are predicted; 0 without true labels.

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
    with check.operator_scope(name):
        truth, guess = _match_booleans(labels, predictions, "recall")
        return Metric(_hit_totals(guess & truth, ~guess & truth, weights), _hit_fraction_or_zero)


@check.guard
def recall_at_k(
    labels: ArrayLike,
    predictions: ArrayLike,
    k: int,
    class_id: int | None = None,
    weights: ArrayLike | None = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """Computes the fraction of labels that are among the `k` classes predicted first.

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
    first = check.require_integer(k, "the k of recall_at_k", at_least=1)
    only = (
        None if class_id is None else check.require_integer(class_id, "the class_id of recall_at_k")
    )
    with check.operator_scope(name):
        scores, truth = _check_rows(labels, predictions, first)
        counts = _is_first_in_row(truth)
        if only is not None:
            counts &= truth == only
        chosen = lax.top_k(scores, first)[1]
        is_hit = jnp.any(truth[..., :, None] == chosen[..., None, :], axis=-1)
        hits, misses = (jnp.sum(c, axis=-1) for c in (counts & is_hit, counts & ~is_hit))
        return Metric(_hit_totals(hits, misses, weights), _hit_fraction)


@check.guard
def mean_squared_error(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """Computes the mean of squared differences.

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
    with check.operator_scope(name):
        return Metric(
            _square_error_totals(labels, predictions, weights, "mean_squared_error"), _safe_ratio
        )


@check.guard
def root_mean_squared_error(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    metrics_collections: None = None,
    updates_collections: None = None,
    name: str | None = None,
) -> Metric:
    """Computes the root of the mean of squared differences.

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
    with check.operator_scope(name):
        return Metric(_square_error_totals(labels, predictions, weights, function), _root_of_ratio)


def _safe_ratio(totals: _Totals) -> jax.Array:
    total, count = jnp.float32(totals["total"]), jnp.float32(totals["count"])
    return jnp.where(count > 0, total / jnp.where(count > 0, count, 1), 0)


def _root_of_ratio(totals: _Totals) -> jax.Array:
    return jnp.sqrt(_safe_ratio(totals))


def _hit_fraction(totals: _Totals) -> jax.Array:
    hits, misses = jnp.float32(totals["hits"]), jnp.float32(totals["misses"])
    return hits / (hits + misses)


def _hit_fraction_or_zero(totals: _Totals) -> jax.Array:
    return _safe_ratio({"total": totals["hits"], "count": totals["hits"] + totals["misses"]})


def _mean_totals(values: jax.Array, weights: ArrayLike | None) -> _Totals:
    broadcast_weights = _broadcast_weights(weights, values.shape)
    return {"total": jnp.sum(values * broadcast_weights), "count": jnp.sum(broadcast_weights)}


def _square_error_totals(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None, function: str
) -> _Totals:
    truth, guess = _match_shapes(labels, predictions, function)
    difference = _to_float32(guess, f"predictions of {function}") - _to_float32(truth, "labels")
    return _mean_totals(difference * difference, weights)


def _hit_totals(hits: jax.Array, misses: jax.Array, weights: ArrayLike | None) -> _Totals:
    broadcast_weights = _broadcast_weights(weights, hits.shape)
    return {
        "hits": jnp.sum(hits * broadcast_weights),
        "misses": jnp.sum(misses * broadcast_weights),
    }


def _broadcast_weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> jax.Array:
    """Returns float32 weights broadcast to the shape of the values."""
    weight_array = _to_float32(1.0 if weights is None else weights, "the weights of a metric")
    original_shape = weight_array.shape
    if weight_array.ndim == len(shape) + 1 and original_shape[-1] == 1:
        weight_array = weight_array[..., 0]
    elif weight_array.ndim and weight_array.ndim == len(shape) - 1:
        weight_array = weight_array[..., None]
    fits = weight_array.ndim in (0, len(shape))
    if not fits or any(
        extent not in (1, dim) for extent, dim in zip(weight_array.shape, shape, strict=False)
    ):
        raise check.value_error(
            f"the weights of a metric have shape {list(original_shape)}, and the values "
            f"{list(shape)}",
            "give a scalar, or weights of the same rank whose extents are the same or 1",
        )
    return jnp.broadcast_to(weight_array, shape)


def _match_shapes(
    labels: ArrayLike, predictions: ArrayLike, function: str
) -> tuple[jax.Array, jax.Array]:
    """Returns labels and predictions of one shape."""
    truth = check.require_array(labels, f"the labels of {function}")
    guess = check.require_array(predictions, f"the predictions of {function}")
    shapes = truth.shape, guess.shape
    if guess.ndim == truth.ndim + 1 and guess.shape[-1] == 1:
        guess = guess[..., 0]
    elif truth.ndim == guess.ndim + 1 and truth.shape[-1] == 1:
        truth = truth[..., 0]
    if truth.shape != guess.shape:
        raise check.value_error(
            f"{function} has labels of shape {list(shapes[0])} and predictions of "
            f"{list(shapes[1])}",
            "give both the same shape",
        )
    return truth, guess


def _match_booleans(
    labels: ArrayLike, predictions: ArrayLike, function: str
) -> tuple[jax.Array, jax.Array]:
    truth, guess = _match_shapes(labels, predictions, function)
    return truth.astype(bool), guess.astype(bool)


def _check_rows(labels: ArrayLike, predictions: ArrayLike, k: int) -> tuple[jax.Array, jax.Array]:
    """Returns scores `[..., classes]` and labels `[..., labels of a row]`, checked."""
    scores = check.require_array(predictions, "the predictions of recall_at_k")
    truth = check.require_array(labels, "the labels of recall_at_k")
    if not jnp.issubdtype(truth.dtype, jnp.integer):
        raise check.value_error(f"the labels of recall_at_k are {truth.dtype}", "give integers")
    if truth.ndim == scores.ndim - 1:
        truth = truth[..., None]
    if not scores.ndim or scores.shape[:-1] != truth.shape[:-1] or truth.ndim != scores.ndim:
        raise check.value_error(
            f"recall_at_k has labels of shape {list(jnp.shape(labels))} and predictions of "
            f"{list(scores.shape)}",
            "give predictions [..., classes] and labels [..., labels of a row] or [...]",
        )
    if k > scores.shape[-1]:
        raise check.value_error(
            f"the k of recall_at_k is {k}, but there are {scores.shape[-1]} classes",
            f"give at most {scores.shape[-1]}",
        )
    return scores, truth


def _is_first_in_row(labels: jax.Array) -> jax.Array:
    """Returns whether each label is the first of its value in its row."""
    same = labels[..., :, None] == labels[..., None, :]
    return ~jnp.any(jnp.tril(same, -1), axis=-1)


def _to_float32(x: ArrayLike, argument: str) -> jax.Array:
    values = check.require_array(x, argument)
    if jnp.issubdtype(values.dtype, jnp.complexfloating):
        raise check.value_error(f"{argument} are {values.dtype}", "give real numbers")
    return values.astype(jnp.float32)


def _refuse_collections(function: str, *collections: object) -> None:
    names = ("metrics_collections", "updates_collections")
    for name, value in zip(names, collections, strict=True):
        if value is not None:
            raise check.value_error(
                f"the {name} of {function} is {value!r}, but there is no graph that collects",
                "leave it out, and use what is returned",
            )
