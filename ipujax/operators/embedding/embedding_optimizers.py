"""The optimizers of host embeddings, whose gradients the host applies."""

from __future__ import annotations

import math

from ipujax.ground import check

SGD = "SGD"
SGD_ACCUMULATED = "SGD+GA"


@check.guard
class HostEmbeddingOptimizerSpec:
    """Stochastic gradient descent, applied at once (seed 001, 18.14.12).

    Args:
      learning_rate: a row loses its gradient times this.
      optimizer_name: must be None or "SGD".

    Raises:
      OperatorError: (a `ValueError`) for a rate that is not finite, or another optimizer.
      ConfigTypeError: (a `TypeError`) for a rate that is no number.

    The original's methods that make TensorFlow instructions and slot variables have no
    counterpart: `HostEmbedding.register` and `lookup` do what they did.
    """

    def __init__(self, learning_rate: float, optimizer_name: str | None = None):
        if optimizer_name not in (None, SGD):
            raise check.value_error(
                f"host embeddings have no optimizer {optimizer_name!r}",
                f"use {SGD!r}, or HostEmbeddingSGDGAOptimizerSpec to accumulate gradients",
            )
        self._learning_rate = _check_learning_rate(learning_rate)

    @property
    def optimizer_name(self) -> str:
        """The original's name: "SGD", or "SGD+GA" where gradients of several batches add up."""
        return SGD if self.get_accumulation_factor() == 1 else SGD_ACCUMULATED

    def get_learning_rate(self) -> float:
        """Returns the learning rate."""
        return self._learning_rate

    def get_accumulation_factor(self) -> int:
        """The number of batches whose gradients are summed before they are applied: 1."""
        return 1


@check.guard
class HostEmbeddingSGDGAOptimizerSpec(HostEmbeddingOptimizerSpec):
    """Stochastic gradient descent with the summed gradients of several batches.

    Args:
      learning_rate: a row loses the sum of its gradients times this.
      accumulation_factor: batches until the gradients are applied; with 1 this is plain SGD (fact
        `host_embedding.ga_factor_one`). A batch is what one lookup reads at a time: each iteration
        of a loop and each micro-batch of a pipeline is one, or two if it looks up twice.

    Raises:
      OperatorError: (a `ValueError`) for a factor less than 1, or a rate that is not finite.
      ConfigTypeError: (a `TypeError`) for a rate that is no number, or a factor that is no int.
    """

    def __init__(self, learning_rate: float, accumulation_factor: int):
        super().__init__(learning_rate)
        argument = "the accumulation_factor of a host embedding"
        self._factor = check.require_integer(accumulation_factor, argument, 1)

    def get_accumulation_factor(self) -> int:
        """The number of batches whose gradients are summed before they are applied."""
        return self._factor


def _check_learning_rate(value: object) -> float:
    argument = "the learning_rate of a host embedding"
    rate = check.require_number(value, argument, "give a number; schedules are not supported")
    if not math.isfinite(rate):
        raise check.value_error(f"{argument} is {value}", "give a finite number")
    return rate
