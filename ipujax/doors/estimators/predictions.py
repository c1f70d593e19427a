"""The selection of a model's predictions for the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from ipujax.doors.estimators.estimator_checks import check
from ipujax.doors.estimators.metric_totals import unstack_tree
from ipujax.training import Tree


def select_features(element: Tree) -> Tree:
    """Returns the features of an element that may have labels."""
    if isinstance(element, (tuple, list)) and len(element) in (1, 2):
        return element[0]
    return element


def select_predictions_by_key(predictions: Tree, keys: Sequence[str] | None) -> Tree:
    """Returns the predictions with some keys from a dict; all of them for None."""
    if keys is None:
        return predictions
    if not isinstance(predictions, dict):
        raise check.value_error(
            "predict_keys is given, but the predictions are no dict", "leave predict_keys out"
        )
    selected = {name: value for name, value in predictions.items() if name in keys}
    if not selected:
        raise check.value_error(
            f"predict_keys {list(keys)} are none of the predictions {sorted(predictions)}",
            "give names that the model predicts",
        )
    return selected


def split_into_examples(batch: Tree) -> Iterator[Tree]:
    """Yields the examples of a batch, along its first axis."""
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
    if len(sizes) != 1 or () in sizes:
        raise check.value_error(
            f"the predictions of a batch have the first axes {sorted(sizes)}, and cannot be taken "
            "apart into examples",
            "predict arrays of one first axis, or use yield_single_examples=False",
        )
    yield from unstack_tree(batch, 1)
