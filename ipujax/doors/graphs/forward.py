"""The forward pass of a graph on a micro-batch, as training and inference take it."""

from __future__ import annotations

import abc
import dataclasses as dc
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs.gradient_counting import GradientCounting
from ipujax.doors.graphs.operators import Operators
from ipujax.doors.graphs.placement import Placement
from ipujax.ground import PyTree
from ipujax.training import Pipeline, SelfDifferentiating, StageOutput, StepOutput

Named = dict[str, jax.Array]
"""Arrays by the names of variables, or of values of a graph."""

FINAL_SCALE = "finalLossScale"
"""The name under which the factor of the loss can be sent."""
GRADIENT = "Gradient___"
"""The beginning of the name of a gradient, before that of the value that it is of."""
UPDATED = "UpdatedVar___"
"""The beginning of the name of a variable after a weight update, before its own."""


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class Forward(abc.ABC):
    """The forward pass of a graph on a micro-batch, as `Training` and `Inference` take models.

    It takes variables, the untrained state, and an element: the factor of the loss, the inputs, and
    the data of a key. It sends values by their names, and in training gradients.

    Attributes:
      placement: where the nodes run.
      loss: the name of the loss; None in inference.
      sent: names of the values that are sent.
      gradients_of: names of the variables, or values, whose gradients are sent after the values.
      counting: how gradients are counted for automatic loss scaling, by factors that are among the
        variables; None without it.
      is_scaled: whether the element begins with a factor of the loss.
    """

    placement: Placement
    loss: str | None = None
    sent: tuple[str, ...] = ()
    gradients_of: tuple[str, ...] = ()
    counting: GradientCounting | None = None
    is_scaled: bool = True

    # --- what front ends say ----------------------------------------------------------------------

    @abc.abstractmethod
    def evaluate(
        self, variables: Named, added: Named, inputs: tuple[object, ...], key: jax.Array
    ) -> tuple[Named, Mapping[str, jax.Array]]:
        """Returns the values of the graph, and those that variables have after it.

        Args:
          variables: the trained ones, the untrained ones, and the factors of the loss.
          added: zeros that are added to values, to differentiate by them.
          inputs: of the micro-batch.
          key: of random numbers.
        """

    def perturbations(self) -> Named:
        """Returns zeros for the values, other than variables, whose gradients are sent."""
        return {}

    @property
    def policy(self) -> Callable[..., bool] | None:
        """The policy of `jax.checkpoint` for what stages keep; None keeps what they need."""
        return None

    # --- what runs --------------------------------------------------------------------------------

    def __call__(self, variables: Named, state: Named, *element: object) -> StepOutput:
        """Computes loss, outputs and state of a micro-batch; the last element is a key's data."""
        return self._compute_output(variables, state, {}, *element)

    def differentiate(
        self, variables: Named, optimizer_state: PyTree, state: Named, *element: object
    ) -> tuple[Named, StepOutput]:
        """Returns gradients of the variables, and what `__call__` gives with the sent gradients."""
        del optimizer_state

        def compute_loss(variables: Named, added: Named) -> tuple[PyTree, StepOutput]:
            output = self._compute_output(variables, state, added, *element)
            return output.loss, output

        differentiate = jax.grad(compute_loss, (0, 1), has_aux=True)
        (gradients, perturbation_gradients), output = differentiate(variables, self.perturbations())
        gradient_of_name = {**gradients, **perturbation_gradients}
        send = (*output.send, *(gradient_of_name[name] for name in self.gradients_of))
        return gradients, output._replace(send=send)

    @property
    def forward_for_training(self) -> Forward | SelfDifferentiating:
        """The forward pass for `Training`: it computes its own gradients if some are anchors."""
        return SelfDifferentiating(self.differentiate) if self.gradients_of else self

    def compute_stage_output(self, variables: Named, state: Named, *element: object) -> StageOutput:
        """Computes the output for `Pipeline`, which splits the function; the loss comes first."""
        output = self(variables, state, *element)
        loss = [] if output.loss is None else [output.loss]
        return StageOutput([*loss, output.send], output.state)

    def build_pipeline(self, **options: Any) -> Pipeline:
        """Builds a pipeline of the stages; in training with an update's micro-batches."""
        options = {**self.placement.pipeline_options(), **options}
        if self.loss is not None and self.sent:
            options["outfeed_mask"] = [True, False]  # it is for the optimizer
        count, policy = len(self.placement.ipus), self.policy
        return Pipeline(self.compute_stage_output, options, count, policy, shares_variables=True)

    def count_gradients_of(self, operators: Operators, variables: Named) -> Operators:
        """Returns a table of operators that counts gradients, if they are to be counted."""
        return operators if self.counting is None else self.counting.count(operators, variables)

    def _compute_output(
        self, variables: Named, state: Named, perturbations: Named, *element: Any
    ) -> StepOutput:
        scale, element = (element[0], element[1:]) if self.is_scaled else (1.0, element)
        *inputs, data = element
        key = jax.random.wrap_key_data(data)
        results, new_value_of_name = self.evaluate(
            {**variables, **state}, perturbations, tuple(inputs), key
        )
        if self.counting is not None:
            scale = self.counting.factors.multiplier_of_loss(scale, variables)
        results[FINAL_SCALE] = jnp.asarray(scale, "float32")
        loss = None
        if self.loss is not None:
            loss = results[self.loss]
            if self.counting is not None:
                loss = self.counting.factors.count_loss_gradient(loss, variables)
            loss = loss.astype("float32")
            loss = (loss.reshape(()) if loss.ndim else loss) * scale
        state = {name: new_value_of_name.get(name, value) for name, value in state.items()}
        return StepOutput(loss, tuple(results[name] for name in self.sent), state)
