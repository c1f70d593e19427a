"""Gradients changed by a function of the user's before they are applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipujax.optimizers.ipu_optimizer import IpuOptimizer, check, map_gradients

__all__ = ["MapGradientOptimizer"]


def __dir__() -> list[str]:
    return __all__


@check.guard
class MapGradientOptimizer(IpuOptimizer):
    """Applies a function to each gradient, then the wrapped optimizer.

    The function acts in `compute_gradients`: on the gradients of every mini-batch, before they
    are accumulated or averaged over replicas.

    Args:
      wrapped_optimizer: an optax transformation.
      gradient_mapping_function: `(gradient, variable) -> gradient`, for every leaf of the
        parameters; the variable is None where `update` was given no `params`. A gradient that is
        None is handed on.
      name: a named scope for what applying gradients computes.

    Raises:
      OptimizerTypeError: (a `TypeError`) no transformation, or no function.
    """

    def __init__(
        self,
        wrapped_optimizer: Any,
        gradient_mapping_function: Callable[[Any, Any], Any],
        name: str | None = "MapGradientOptimizer",
    ):
        super().__init__(wrapped_optimizer, name)
        what = "the gradient_mapping_function of MapGradientOptimizer"
        fix = "give a function (gradient, variable) -> gradient"
        self._function = check.function(gradient_mapping_function, what, fix)

    def compute_gradients(self, gradients: Any, variables: Any, *args: Any, **kwargs: Any) -> Any:
        """As `IpuOptimizer.compute_gradients`, then the mapping function, leaf by leaf."""
        gradients = super().compute_gradients(gradients, variables, *args, **kwargs)
        if variables is not None:
            return map_gradients(self._function, gradients, variables)
        try:
            return map_gradients(lambda gradient: self._function(gradient, None), gradients)
        except (TypeError, AttributeError) as error:
            error.add_note(
                "MapGradientOptimizer: the gradient_mapping_function got None for the variable, "
                "because `update` was called without `params`"
            )
            raise
