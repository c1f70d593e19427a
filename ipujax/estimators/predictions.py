"""What of a model's predictions the user gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from ipujax.estimators.checks import check
from ipujax.estimators.scores import unstacked
from ipujax.training.state import Tree


def features_of(element: Tree) -> Tree:
    """What a model predicts from, of an element that may have labels."""
    if isinstance(element, (tuple, list)) and len(element) in (1, 2):
        return element[0]
    return element


def of_keys(predictions: Tree, keys: Sequence[str] | None) -> Tree:
    """Those of a dict of predictions that are asked for; None for all."""
    if keys is None:
        return predictions
    if not isinstance(predictions, dict):
        raise check.refuse(
            "predict_keys is given, but the predictions are no dict", "leave predict_keys out"
        )
    chosen = {name: value for name, value in predictions.items() if name in keys}
    if not chosen:
        raise check.refuse(
            f"predict_keys {list(keys)} are none of the predictions {sorted(predictions)}",
            "give names that the model predicts",
        )
    return chosen


def examples(batch: Tree) -> Iterator[Tree]:
    """The examples of a batch, along its first axis."""
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
    if len(sizes) != 1 or () in sizes:
        raise check.refuse(
            f"the predictions of a batch have the first axes {sorted(sizes)}, and cannot be taken "
            "apart into examples",
            "predict arrays of one first axis, or use yield_single_examples=False",
        )
    yield from unstacked(batch, 1)
