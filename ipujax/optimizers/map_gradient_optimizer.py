"""The optimizer that maps each gradient by a function of the user."""

from __future__ import annotations

from collections.abc import Callable

import optax

from ipujax.ground import PyTree
from ipujax.optimizers.ipu_optimizer import IpuOptimizer, check, map_gradients


@check.guard
class MapGradientOptimizer(IpuOptimizer):
    """An optimizer that applies a function to each gradient, then the wrapped optimizer.

    The function acts in `compute_gradients`: on the gradients of every mini-batch, before they
    are accumulated or averaged over replicas.

    Args:
      wrapped_optimizer: an optax transformation.
      gradient_mapping_function: `(gradient, variable) -> gradient`, for every leaf of the
        parameters; the variable is None where `update` was given no `params`. A gradient that is
        None stays None.
      name: the named scope of applying gradients.

    Raises:
      OptimizerTypeError: (a `TypeError`) no transformation, or no function.
    """

    def __init__(
        self,
        wrapped_optimizer: optax.GradientTransformation,
        gradient_mapping_function: Callable[[PyTree, PyTree], PyTree],
        name: str | None = "MapGradientOptimizer",
    ):
        super().__init__(wrapped_optimizer, name)
        argument_name = "the gradient_mapping_function of MapGradientOptimizer"
        fix = "give a function (gradient, variable) -> gradient"
        self._function = check.require_function(gradient_mapping_function, argument_name, fix)

    def compute_gradients(
        self, gradients: PyTree, variables: PyTree, *args: object, **kwargs: object
    ) -> PyTree:
        """Maps gradients by the wrapped optimizer, then leaf by leaf by the user's function."""
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
