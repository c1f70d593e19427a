"""Clipping gradients by the norm that those of several weights have together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from ipujax.doors.graphs.optimizers import joint_norm
from ipujax.popart.checks import check

Named = Mapping[str, jax.Array]


@check.guard
class ClipNormSettings:
    """Clips the gradients of some weights to a norm.

    Args:
      weightIds: the weights.
      maxNorm: the greatest norm that all of them together may have; above 0.

    Attributes:
      weightIds: the weights; none of them for all that are trained.
      maxNorm: as given.
    """

    def __init__(self, weightIds: Sequence[str], maxNorm: float):
        self.weightIds = [
            check.text(name, "a weight") for name in check.iterable(weightIds, "weightIds", "names")
        ]
        fix = "give a number above 0"
        self.maxNorm = check.number(maxNorm, "maxNorm", fix)
        if not self.maxNorm > 0:
            raise check.refuse(f"maxNorm is {maxNorm}", fix)
        self._is_for_all = False

    @staticmethod
    def clipWeights(weightIds: Sequence[str], maxNorm: float) -> ClipNormSettings:
        """Clips the gradients of some weights."""
        return ClipNormSettings(weightIds, maxNorm)

    @staticmethod
    def clipAllWeights(maxNorm: float) -> ClipNormSettings:
        """Clips those of all weights."""
        settings = ClipNormSettings([], maxNorm)
        settings._is_for_all = True
        return settings

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClipNormSettings):
            return NotImplemented
        return vars(self) == vars(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def clipped(self, gradients: Named) -> dict[str, jax.Array]:
        """Returns the gradients of all weights in float32, after clipping.

        Raises:
          PopARTError: (a `ValueError`) a weight that is not trained.
        """
        names = list(gradients) if self._is_for_all else self.weightIds
        if other := [name for name in names if name not in gradients]:
            raise check.refuse(
                f"ClipNormSettings name {other}, which are not trained",
                f"the weights are {list(gradients)}",
            )
        norm = joint_norm(gradients[name] for name in names)
        factor = self.maxNorm / jnp.maximum(norm, self.maxNorm)
        clipped = {name: gradients[name] * factor for name in names}
        return {**gradients, **clipped}
