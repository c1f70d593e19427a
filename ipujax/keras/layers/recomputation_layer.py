"""A layer that keeps a value which recomputation would otherwise compute again."""

from __future__ import annotations

from typing import Any

from ipujax.ground import PyTree
from ipujax.keras.keras_checks import check
from ipujax.keras.layers.shared import Layer, serializable
from ipujax.pipelines import pipelining as pipelining_ops


@check.guard
@serializable
class RecomputationCheckpoint(Layer):
    """A layer that returns its inputs, from which recomputation starts.

    Seed 001, 18.13; on `pipelining_ops.recomputation_checkpoint`. Acts in stages of training
    pipelines with `RecomputationMode.RecomputeAndBackpropagateInterleaved` where
    `IPUConfig.allow_recompute` is set; anywhere else it does nothing.

    Args:
      **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: PyTree, training: bool | None = None) -> PyTree:
        """Returns the inputs, a tensor or a structure of tensors; `training` changes nothing."""
        return pipelining_ops.recomputation_checkpoint(inputs, self.name)
