"""The anchors that weight updates change: accumulated gradients and updated weights."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Collection, Mapping

import numpy as np

from ipujax.doors.graphs import GRADIENT, UPDATED
from ipujax.popart.popart_checks import check

ACCUMULATED = "Accum___"
"""The prefix of a weight's gradients accumulated over the micro-batches of a weight update."""

Array = np.ndarray


@dc.dataclass(frozen=True)
class DerivedAnchors:
    """The anchors whose values are computed from other tensors that a step returns.

    A weight is anchored after its batch; if a weight update has several micro-batches, before the
    batch, since the update comes after them.

    Attributes:
      weights: the names of the trained weights.
      accumulation: the number of micro-batches of a weight update.
      is_mean: whether the accumulator holds the mean of the gradients so far, not their sum.
    """

    weights: Collection[str]
    accumulation: int
    is_mean: bool

    def source_of_anchor(self, name: str) -> str:
        """Returns the tensor that a step returns for an anchor.

        Raises:
          PopARTError: (a `ValueError`) a tensor beside a weight that is not trained, or a sum of
            gradients where there is only one.
        """
        for prefix, source_prefix in ((ACCUMULATED, GRADIENT), (UPDATED, "")):
            if not name.startswith(prefix):
                continue
            weight = name.removeprefix(prefix)
            if weight not in self.weights:
                raise check.value_error(
                    f"the anchor {name!r} belongs to {weight!r}, which is not trained",
                    f"the weights are {sorted(self.weights)}",
                )
            if prefix == ACCUMULATED and self.accumulation == 1:
                raise check.value_error(
                    f"there is no tensor {name!r} without gradient accumulation",
                    f"anchor {GRADIENT + weight!r}",
                )
            return source_prefix + weight
        return name

    def compute_anchor(
        self, name: str, source_values: Array, final_weights: Mapping[str, object]
    ) -> Array:
        """Computes the values of an anchor, `[batches, accumulation, replicas, ...]`.

        Args:
          name: the name of the anchor.
          source_values: the values of its source, in the same shape.
          final_weights: the weights after the step.
        """
        if name.startswith(ACCUMULATED):
            sums = np.cumsum(source_values, 1, dtype=source_values.dtype)
            counts = np.arange(1, self.accumulation + 1, dtype=source_values.dtype)
            return sums / counts.reshape(-1, *[1] * (sums.ndim - 2)) if self.is_mean else sums
        weight = name.removeprefix(UPDATED)
        if weight not in self.weights or (weight == name and self.accumulation > 1):
            return source_values
        last = np.broadcast_to(np.asarray(final_weights[weight]), source_values[:1].shape)
        return np.concatenate(
            [np.broadcast_to(source_values[1:, :1], source_values[1:].shape), last]
        )
