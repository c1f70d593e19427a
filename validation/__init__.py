"""What the rows of a validation file ran, as the machine model can be asked for it.

One module per family. `predict(row)` gives a prediction, None for a row of another family, and
raises `SkipError` for one of its own that cannot be expressed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence

from validation.row import Prediction, Row, SkipError

FAMILIES = (
    "matmul",
    "vertex",
    "qr",
    "stencil_conv",
    "finite_differences",
    "stencil",
    "halo",
    "tutorial",
    "tf_sizes",
    "popliner",
    "peaks",
    "inference",
    "throughput",
)
"""Modules of this package, in the order in which they are asked."""


def predict(row: Row, families: Sequence[str] = FAMILIES) -> tuple[str, Prediction]:
    """The family of a row, and what the model says of it.

    Args:
      row: what was measured.
      families: which modules to ask.

    Raises:
      SkipError: no family can express it.
    """
    for family in families:
        prediction = importlib.import_module(f"validation.{family}").predict(row)
        if prediction is not None:
            return family, prediction
    raise SkipError(next(_reasons(row), "no workload of the model is named"))


# Rows that no family can express, and why: (word of the workload, reason).
_UNKNOWN = (
    ("sparse", "the model has no block-sparse products"),
    ("rotation2d", "a hand-written vertex without a cost formula"),
    ("siglip", "the sizes of the block are not said"),
    ("data-loading", "bound by the host, which the model does not have"),
    ("popxl", "bound by the host; sizes and batch are not said"),
    ("gps++", "the sizes of graphs and network are not said"),
    ("latency growth", "the model has no contention between tiles"),
    ("congested", "the model has no contention on links outside of exchanges"),
)


def _reasons(row: Row) -> Iterator[str]:
    return (reason for word, reason in _UNKNOWN if word in row.text)
