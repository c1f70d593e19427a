"""The loss of a model of another library, as a function to plan and to differentiate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeGuard, runtime_checkable

from ipujax.ground import api_boundary
from ipujax.pipelines.pipeline_stages import Pytree
from ipujax.planner import check


@runtime_checkable
class PlannedModel(Protocol):
    """A model as plans use it: a `Model` of `ipu.frontends` is one."""

    variables: dict[str, Any]

    def apply(self, variables: Mapping[str, Any], *inputs: Any) -> tuple[Any, Any]:
        """Returns the outputs, and the variables after the call."""
        ...

    def split(self, variables: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Returns the trained variables, and the others."""
        ...


def is_model(value: object) -> TypeGuard[PlannedModel]:
    """Returns whether a value is a model, and no function."""
    return isinstance(value, PlannedModel)


@check.guard
@api_boundary
def loss_of_model(model: PlannedModel, loss: Callable[..., Pytree]) -> Callable[..., Pytree]:
    """Returns the loss of a model of another library, a function of (variables, inputs, labels).

    For example::

        plan = ipu.plan(model, loss, x, y, ipus=4, micro_batches=16)
        loss_fn = ipu.planning.loss_of_model(model, loss)
        grad_fn = ipu.pipelining_ops.value_and_grad(loss_fn, **plan.arguments)
        loss, gradients = grad_fn(model.split(model.variables)[0], x, y)

    Args:
      model: a `Model` of `ipu.frontends`. Variables that it does not train keep their values.
      loss: a function of the model's outputs and of the labels.

    Raises:
      PlanError: (a `ValueError`) no model, or no function.
    """
    check.require_instance(model, PlannedModel, "the model", "a Model of ipujax.frontends")
    check.require_function(loss, "the loss")
    fixed = model.split(model.variables)[1] or {}

    def model_loss(variables: Mapping[str, Any], inputs: Pytree, labels: Pytree) -> Pytree:
        outputs, _ = model.apply({**fixed, **variables}, *_as_tuple(inputs))
        return loss(outputs, *_as_tuple(labels))

    return model_loss


def _as_tuple(values: Pytree) -> tuple[Pytree, ...]:
    return tuple(values) if isinstance(values, (list, tuple)) else (values,)
