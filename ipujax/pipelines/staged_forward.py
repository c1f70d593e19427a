"""`forward` with stages: the outputs of a pipeline over the micro-batches of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from ipujax.ground import api_boundary
from ipujax.pipelines.pipeline_stages import Pytree, name_definition_line
from ipujax.pipelines.run_staged_model import run_staged_model
from ipujax.pipelines.schedule_names import ScheduleOrName
from ipujax.pipelines.single_argument_checks import check
from ipujax.pipelines.staged_settings import StagedSettings
from ipujax.pipelines.traced_function import trace_micro_batch


@check.guard
class Forward:
    """A function that returns the outputs over all micro-batches.

    Args:
      settings: the function of one micro-batch, and how it runs as a pipeline.
    """

    def __init__(self, settings: StagedSettings):
        self.settings = settings
        functools.update_wrapper(self, settings.function, updated=())

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the outputs of the function for all micro-batches."""
        with name_definition_line(self.settings.function):
            arguments = self.settings.assign_roles(args, kwargs, differentiated=(), whole=(0,))
            function = trace_micro_batch(self.settings.function, arguments, has_loss=False)
            results = run_staged_model(self.settings.build_model(function, differentiates=False))
        outputs = function.rebuild_outputs(results.outputs)
        return jax.tree.map(_join_micro_batches, outputs)


def _join_micro_batches(stacked: jax.Array) -> jax.Array:
    """Joins an output of all micro-batches along axis 0; scalars stay stacked."""
    if stacked.ndim < 2:
        return stacked
    count, size, *others = stacked.shape
    return stacked.reshape(count * size, *others)


@check.guard
@api_boundary
def forward(
    fun: Callable[..., Pytree],
    *,
    micro_batches: int,
    stages: int | Sequence[int] | None = None,
    schedule: ScheduleOrName = "one_f_one_b",
    batch_argnums: int | Sequence[int] | None = None,
    batch_argnames: str | Iterable[str] | None = None,
    device_mapping: Sequence[int] | None = None,
) -> Forward:
    """Returns a function like `fun` that runs as a pipeline of stages, for inference.

    For example:

        >>> import jax.numpy as jnp
        >>> import ipujax as ipu
        >>> def predict(weights, x):
        ...     for stage, w in enumerate(weights):
        ...         with ipu.scopes.pipeline_stage(stage):
        ...             x = jnp.tanh(x @ w)
        ...     return x
        >>> run = ipu.compile(ipu.pipelining_ops.forward(predict, micro_batches=4))
        >>> print(run([jnp.ones((2, 2)), jnp.ones((2, 3))], jnp.ones((8, 2))).shape)
        (8, 3)

    Args:
      fun: the function of one micro-batch. Its code is marked as for `value_and_grad`.
      micro_batches: the number of micro-batches.
      stages: as for `value_and_grad`.
      schedule: as for `value_and_grad`.
      batch_argnums: the positional arguments to split along axis 0 into `micro_batches` equal
        parts; None for all but the first. Scalars and keys in them are as for `value_and_grad`.
      batch_argnames: the keyword arguments to split; the others go whole.
      device_mapping: the IPU of each stage; by default stage i is on IPU i.

    Returns:
      A function of the arguments of `fun` that returns its outputs: those of the micro-batches
      concatenated along axis 0, scalar ones stacked.

    Raises:
      PipelineError: (a `ValueError`) as for `value_and_grad`.
      PipelineTypeError: (a `TypeError`) as for `value_and_grad`.
    """
    settings = StagedSettings(
        function=fun,
        micro_batches=micro_batches,
        stages=stages,
        schedule=schedule,
        batch_argnums=batch_argnums,
        batch_argnames=batch_argnames,
        device_mapping=device_mapping,
    )
    return Forward(settings)
