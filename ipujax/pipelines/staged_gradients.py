"""`value_and_grad` with stages: the loss and the gradients of a pipeline over micro-batches."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.ground import api_boundary
from ipujax.pipelines.hoisted_slices import assemble_gradients
from ipujax.pipelines.micro_batch_arguments import (
    ArgumentLeaf,
    MicroBatchArguments,
    Role,
    resolve_argnums,
)
from ipujax.pipelines.pipeline_stages import Pytree, name_definition_line
from ipujax.pipelines.run_staged_model import run_staged_model
from ipujax.pipelines.schedule_names import ScheduleOrName
from ipujax.pipelines.single_argument_checks import check
from ipujax.pipelines.staged_settings import StagedSettings, list_argnums
from ipujax.pipelines.traced_function import trace_micro_batch

_REDUCTIONS = ("mean", "sum")


@check.guard
class ValueAndGrad:
    """A function that returns the loss over all micro-batches, and its gradients.

    Args:
      settings: the loss function, and how it runs as a pipeline.
      argnums: the positions of the arguments to differentiate.
      has_aux: whether the loss function returns `(loss, aux)`.
      reduction: "mean" or "sum" of losses and gradients over the micro-batches.
    """

    def __init__(
        self, settings: StagedSettings, argnums: int | Sequence[int], has_aux: bool, reduction: str
    ):
        self.settings, self.argnums = settings, argnums
        self.has_aux = check.require_flag(has_aux, "has_aux")
        self.reduction = check.require_one_of(reduction, _REDUCTIONS, "reduction")
        self._numbers = list_argnums(argnums, "argnums")
        functools.update_wrapper(self, settings.function, updated=())

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns `(loss, gradients)`, or `((loss, aux), gradients)`, for these arguments."""
        loss_function = self.settings.function
        with name_definition_line(loss_function):
            positions = self.differentiated_positions(args)
            arguments = self.list_arguments(args, kwargs)
            function = trace_micro_batch(
                loss_function, arguments, has_loss=True, has_aux=self.has_aux
            )
            results = run_staged_model(self.settings.build_model(function, differentiates=True))
        loss = self._reduce(results.losses[0], function.closed.out_avals[0].dtype)
        sums = assemble_gradients(results.gradients)
        gradients = {leaf: self._reduce(total, leaf.value.dtype) for leaf, total in sums.items()}
        trees = _gradient_trees(arguments, gradients)
        chosen = tuple(trees[i] for i in positions)
        gradient_tree = chosen if isinstance(self.argnums, (list, tuple)) else chosen[0]
        if not self.has_aux:
            return loss, gradient_tree
        return (loss, function.rebuild_outputs(results.outputs)), gradient_tree

    def differentiated_positions(self, args: Sequence[Any]) -> tuple[int, ...]:
        """Returns the positions of the arguments that are differentiated, from 0 on."""
        return resolve_argnums(self._numbers, len(args), "argnums")

    def list_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> MicroBatchArguments:
        """Returns the arguments of a call, flat and with their roles."""
        positions = self.differentiated_positions(args)
        return self.settings.assign_roles(args, kwargs, positions, positions)

    def with_schedule(self, schedule: ScheduleOrName) -> ValueAndGrad:
        """Returns the same function with another schedule."""
        settings = dc.replace(self.settings, schedule=schedule)
        return ValueAndGrad(settings, self.argnums, self.has_aux, self.reduction)

    def _reduce(self, total: jax.Array, dtype: Any) -> jax.Array:
        """Returns the mean or sum over the micro-batches, rounded once."""
        if self.reduction == "mean":
            total = total / self.settings.micro_batches
        return total.astype(dtype)


def _gradient_trees(
    arguments: MicroBatchArguments, gradients: dict[ArgumentLeaf, jax.Array]
) -> tuple[Pytree, ...]:
    """Returns the positional arguments with gradients in the place of differentiated leaves."""
    leaves: list[Any] = []
    for leaf in arguments.leaves:
        gradient = gradients.get(leaf)
        if gradient is None and leaf.role is Role.DIFFERENTIATED:
            gradient = jnp.zeros(leaf.value.shape, leaf.value.dtype)
        leaves.append(gradient)
    return arguments.structure.unflatten(leaves)[0]


@check.guard
@api_boundary
def value_and_grad(
    fun: Callable[..., Pytree],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    micro_batches: int,
    stages: int | Sequence[int] | None = None,
    schedule: ScheduleOrName = "one_f_one_b",
    recompute: bool = False,
    reduction: str = "mean",
    batch_argnums: int | Sequence[int] | None = None,
    batch_argnames: str | Iterable[str] | None = None,
    device_mapping: Sequence[int] | None = None,
    offload: bool = False,
) -> ValueAndGrad:
    """Returns a function like `jax.value_and_grad(fun)` that runs as a pipeline of stages.

    In `ipu.compile` its micro-batches pass through the stages by the schedule, each stage on an
    IPU; under plain `jax.jit` it is a loop that accumulates the same numbers. What follows on it,
    such as an optimizer's update, runs where each gradient is. For example:

        >>> import jax.numpy as jnp
        >>> import ipujax as ipu
        >>> def loss_fn(params, x):
        ...     with ipu.scopes.pipeline_stage(0):
        ...         x = jnp.tanh(x @ params["first"])
        ...     with ipu.scopes.pipeline_stage(1):
        ...         return jnp.mean((x @ params["second"]) ** 2)
        >>> params = {"first": jnp.ones((2, 2)), "second": jnp.ones((2, 1))}
        >>> grad_fn = ipu.pipelining_ops.value_and_grad(loss_fn, micro_batches=4)
        >>> loss, grads = ipu.compile(grad_fn)(params, jnp.ones((8, 2)))
        >>> print(f"{loss:.3f}", grads["second"].shape)
        3.717 (2, 1)

    Args:
      fun: the loss of one micro-batch, a real scalar; or `(loss, aux)`. Its code is marked with
        `ipu.scopes.pipeline_stage`; what is not marked goes where its operands are.
      argnums: the positional arguments to differentiate, as for `jax.value_and_grad`.
      has_aux: whether `fun` returns `(loss, aux)`. `aux` is stacked along a new axis 0, one entry
        per micro-batch.
      micro_batches: the number of micro-batches.
      stages: None for those that the marks name. An integer cuts a function without marks into so
        many stages of about as many cycles, between its products, and a `lax.scan` over stacked
        layers between its iterations. A list has the segments at which later stages begin.
      schedule: the name of a schedule of `ipujax.schedules`, a `Schedule`, a function that builds
        one, or a `PipelineSchedule`.
      recompute: whether a stage keeps only what enters it until its backward pass, and computes
        the rest again.
      reduction: "mean" or "sum" over the micro-batches, of the loss and the gradients.
      batch_argnums: the positional arguments to split along axis 0 into `micro_batches` equal
        parts; None for all but `argnums`. Scalars and None in them go whole to every micro-batch;
        a scalar typed key is folded with the micro-batch's number.
      batch_argnames: the keyword arguments to split; the others go whole.
      device_mapping: the IPU of each stage; by default stage i is on IPU i.
      offload: whether what waits for a stage's backward pass goes to streaming memory meanwhile,
        where more than one micro-batch does.

    Returns:
      A function of the arguments of `fun` that returns `(loss, gradients)`, or
      `((loss, aux), gradients)`. Gradients of bfloat16 and float16 are summed in float32.

    Raises:
      PipelineError: (a `ValueError`) arguments with wrong values; when called, an array that does
        not divide into the micro-batches, or marks that do not make stages.
      PipelineTypeError: (a `TypeError`) arguments of a wrong type; when called, a loss or a
        differentiated argument that is not made of real floats.
    """
    settings = StagedSettings(
        function=fun,
        micro_batches=micro_batches,
        stages=stages,
        schedule=schedule,
        recompute=recompute,
        batch_argnums=batch_argnums,
        batch_argnames=batch_argnames,
        device_mapping=device_mapping,
        offload=offload,
    )
    return ValueAndGrad(settings, argnums, has_aux, reduction)
