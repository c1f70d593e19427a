"""What a step returns of tensors that weight updates change, and that they are made of."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ipujax.doors.graphs import GRADIENT, UPDATED
from ipujax.popart.checks import check

ACCUMULATED = "Accum___"
"""Of the sum of a weight's gradients so far, over the micro-batches of a weight update."""

Array = np.ndarray[Any, Any]


@dc.dataclass(frozen=True)
class Changing:
    """Anchors that follow from what each micro-batch sends.

    A weight is anchored as the batch leaves it; where a weight update has several micro-batches,
    as they find it, since the update comes after them.

    Attributes:
      weights: those that are trained.
      accumulation: micro-batches of a weight update.
      is_mean: whether the accumulator holds the mean of the gradients so far, not their sum.
    """

    weights: Collection[str]
    accumulation: int
    is_mean: bool

    def source(self, name: str) -> str:
        """The tensor whose values are sent for an anchor.

        Raises:
          PopARTError: (a `ValueError`) a tensor beside a weight that is not trained, or a sum of
            gradients where there is only one.
        """
        for prefix, sent in ((ACCUMULATED, GRADIENT), (UPDATED, "")):
            if not name.startswith(prefix):
                continue
            weight = name.removeprefix(prefix)
            if weight not in self.weights:
                raise check.refuse(
                    f"the anchor {name!r} belongs to {weight!r}, which is not trained",
                    f"the weights are {sorted(self.weights)}",
                )
            if prefix == ACCUMULATED and self.accumulation == 1:
                raise check.refuse(
                    f"there is no tensor {name!r} without gradient accumulation",
                    f"anchor {GRADIENT + weight!r}",
                )
            return sent + weight
        return name

    def value(self, name: str, sent: Array, after: Mapping[str, Any]) -> Array:
        """The values of an anchor, `[batches, accumulation, replicas, ...]`.

        Args:
          name: the anchor.
          sent: those of its source, in the same shape.
          after: the weights after the step.
        """
        if name.startswith(ACCUMULATED):
            sums = np.cumsum(sent, 1, dtype=sent.dtype)
            counts = np.arange(1, self.accumulation + 1, dtype=sent.dtype)
            return sums / counts.reshape(-1, *[1] * (sums.ndim - 2)) if self.is_mean else sums
        weight = name.removeprefix(UPDATED)
        if weight not in self.weights or (weight == name and self.accumulation > 1):
            return sent
        last = np.broadcast_to(np.asarray(after[weight]), sent[:1].shape)
        return np.concatenate([np.broadcast_to(sent[1:, :1], sent[1:].shape), last])
