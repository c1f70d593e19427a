"""The clipping of gradients by the joint norm of several weights' gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import joint_norm
from ipujax.popart.popart_checks import check

Named = Mapping[str, jax.Array]


@check.guard
class ClipNormSettings:
    """The settings of clipping the gradients of some weights to a joint norm.

    Args:
      weightIds: the names of the weights.
      maxNorm: the greatest joint norm of their gradients; above 0.

    Attributes:
      weightIds: the names of the weights; empty for all trained weights.
      maxNorm: the greatest joint norm.
    """

    def __init__(self, weightIds: Sequence[str], maxNorm: float):
        self.weightIds = [
            check.require_text(name, "a weight")
            for name in check.require_iterable(weightIds, "weightIds", "names")
        ]
        fix = "give a number above 0"
        self.maxNorm = check.require_number(maxNorm, "maxNorm", fix)
        if not self.maxNorm > 0:
            raise check.value_error(f"maxNorm is {maxNorm}", fix)
        self._is_for_all = False

    @staticmethod
    def clipWeights(weightIds: Sequence[str], maxNorm: float) -> ClipNormSettings:
        """Returns settings that clip the gradients of some weights."""
        return ClipNormSettings(weightIds, maxNorm)

    @staticmethod
    def clipAllWeights(maxNorm: float) -> ClipNormSettings:
        """Returns settings that clip the gradients of all weights."""
        settings = ClipNormSettings([], maxNorm)
        settings._is_for_all = True
        return settings

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClipNormSettings):
            return NotImplemented
        return vars(self) == vars(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def clip_gradients(self, gradients: Named) -> dict[str, jax.Array]:
        """Clips the gradients of the settings' weights; the norm is computed in float32.

        Raises:
          PopARTError: (a `ValueError`) a weight that is not trained.
        """
        names = list(gradients) if self._is_for_all else self.weightIds
        if untrained_names := [name for name in names if name not in gradients]:
            raise check.value_error(
                f"ClipNormSettings name {untrained_names}, which are not trained",
                f"the weights are {list(gradients)}",
            )
        norm = joint_norm(gradients[name] for name in names)
        factor = self.maxNorm / jnp.maximum(norm, self.maxNorm)
        clipped = {name: gradients[name] * factor for name in names}
        return {**gradients, **clipped}
