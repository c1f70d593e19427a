"""Pipelines: models split into stages that work on several micro-batches at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.ground import api_boundary
from ipujax.host import IPUInfeedQueue, IPUOutfeedQueue
from ipujax.optimizers import GradientAccumulationReductionMethod
from ipujax.pipelines.optimizer_functions import OptimizerOrFunction
from ipujax.pipelines.pipeline_arguments import (
    PipelineStageOptions,
    RecomputationMode,
)
from ipujax.pipelines.pipeline_stages import Pytree
from ipujax.pipelines.request import AskedDtype, PipelineRequest, StageFunction
from ipujax.pipelines.schedule_names import ScheduleOrName
from ipujax.pipelines.single_argument_checks import StateSharding, check
from ipujax.pipelines.trace_pipeline import trace_requested_pipeline
from lowering import pipelines


@check.guard
@api_boundary
def pipeline(
    computational_stages: Sequence[StageFunction | Sequence[StageFunction]],
    gradient_accumulation_count: int | None = None,
    gradient_accumulation_dtype: AskedDtype = None,
    repeat_count: int = 1,
    batch_serialization_iterations: int = 1,
    inputs: Sequence[Pytree] | None = None,
    infeed_queue: IPUInfeedQueue | None = None,
    outfeed_queue: IPUOutfeedQueue | None = None,
    optimizer_function: OptimizerOrFunction = None,
    device_mapping: Sequence[int | Sequence[int]] | None = None,
    pipeline_schedule: ScheduleOrName = None,
    recomputation_mode: RecomputationMode | None = None,
    forward_propagation_stages_poplar_options: Sequence[PipelineStageOptions | None] | None = None,
    backward_propagation_stages_poplar_options: Sequence[PipelineStageOptions | None] | None = None,
    weight_update_poplar_options: PipelineStageOptions | None = None,
    offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: StateSharding = False,
    offload_activations: bool | None = None,
    offload_gradient_accumulation_buffers: bool | None = None,
    replicated_weight_sharding: bool | None = None,
    offload_weights: bool | None = None,
    continuous_weight_updates: bool = False,
    outfeed_loss: bool = False,
    accumulate_outfeed: bool = False,
    accumulate_outfeed_dtype: AskedDtype = None,
    outfeed_mask: Sequence[bool] | None = None,
    name: str | None = None,
    *,
    reduction_method: GradientAccumulationReductionMethod | str = (
        GradientAccumulationReductionMethod.SUM
    ),
    variables: Pytree = None,
    optimizer_state: Pytree = None,
    state: Pytree = None,
) -> Any:
    """Runs a pipeline of stages; works anywhere inside `ipu.compile`, and under plain `jax.jit`.

    For example, two stages that are trained on three times four micro-batches:

        >>> import jax.numpy as jnp
        >>> import optax
        >>> import ipujax as ipu
        >>> config = ipu.config.IPUConfig()
        >>> config.auto_select_ipus = 2
        >>> config.configure_ipu_system()
        >>> elements = [(jnp.ones((8, 2)), jnp.ones((8, 1)))] * 12
        >>> infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements)
        >>> outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        >>> def first(params, x, y):  # all variables, and an element of the infeed
        ...     return jnp.tanh(x @ params["first"]), y
        >>> def second(params, x, y):  # all variables, and what the first stage returned
        ...     return jnp.mean((x @ params["second"] - y) ** 2)
        >>> @ipu.compile
        ... def train(params, opt_state):
        ...     return ipu.pipelining_ops.pipeline(
        ...         [first, second], gradient_accumulation_count=4, repeat_count=3,
        ...         infeed_queue=infeed, outfeed_queue=outfeed, reduction_method="MEAN",
        ...         optimizer_function=optax.sgd(0.1), variables=params, optimizer_state=opt_state,
        ...     )
        >>> params = {"first": jnp.ones((2, 2)), "second": jnp.ones((2, 1))}
        >>> params, opt_state = train(params, optax.sgd(0.1).init(params))
        >>> losses = outfeed.dequeue()[0]
        >>> print(losses.shape, bool(losses[-1] < losses[0]))
        (12,) True

    Args:
      computational_stages: at least two functions. Each takes the variables and the state (if there
        are any), then what the one before returned: the entries of a tuple or list as separate
        arguments, None for none, anything else as one. An entry may be a list of functions that
        run concurrently: they take the same arguments, and their outputs are concatenated.
      gradient_accumulation_count: micro-batches per weight update (per execution, in inference).
        The schedule may ask for a multiple of some number; the error says which.
      gradient_accumulation_dtype: dtype of the accumulators: None for the variables' own, a
        dtype, or a function from a variable (its shape and dtype) to one. The optimizer sees
        gradients of this dtype.
      repeat_count: weight updates (executions).
      batch_serialization_iterations: micro-batches that each stage works on in a row before the
        next stage does; with the Sequential schedule, all stages on one IPU. So many times
        more micro-batches make up one weight update.
      inputs: first arguments of the first stage, the same for all micro-batches.
      infeed_queue: gives the first stage an element per micro-batch: after `inputs`, or by keyword
        for a dict.
      outfeed_queue: is sent the last stage's outputs of every micro-batch, as a list.
      optimizer_function: takes the last stage's outputs, returns an `OptimizerFunctionOutput`; or
        the optimizer itself, where the last stage returns the loss alone.
        Makes the pipeline a training pipeline. Values that the optimizer reads are those of the
        last micro-batch.
      device_mapping: the IPU of each stage, -1 for one that spans all (its own `ipu_shard` says
        where), a list for concurrent functions. Stage i on IPU i by default.
      pipeline_schedule: a `PipelineSchedule`, a function or `Schedule` as `ipujax.schedules` has
        them, or the name of one, such as "one_f_one_b" or "1F1B". Grouped by default, Sequential
        with batch serialization.
      recomputation_mode: acts where `IPUConfig.allow_recompute` is set.
      forward_propagation_stages_poplar_options: one `PipelineStageOptions` (or None) per stage;
        recorded in the program's forward tasks, for the machine model.
      backward_propagation_stages_poplar_options: the same for backward tasks.
      weight_update_poplar_options: the same for the weight update.
      offload_weight_update_variables: keep the optimizer's state in streaming memory between
        updates; None does so where the system has any, as the original does; on JAX's own device it
        then stays where it is. Whatever the argument, arrays under
        `IPUConfig.optimizations.minimum_remote_tensor_size` bytes are not offloaded or sharded.
      replicated_optimizer_state_sharding: each replica keeps an equal part of that state, which
        must be the same on all of them, as with a `CrossReplicaOptimizer`: in streaming memory, or
        with "on_tiles" on the tiles of its IPU.
      offload_activations: keep what waits between forward and backward passes in streaming memory.
      offload_gradient_accumulation_buffers: keep the accumulators there.
      replicated_weight_sharding: each replica keeps an equal part of the variables, which are
        gathered wherever they are read. They must be equal on all replicas, as a
        `CrossReplicaOptimizer` keeps them. None means only with batch serialization, and only
        where that is known.
      offload_weights: keep the variables in streaming memory between uses.
      continuous_weight_updates: not implemented, as in the original.
      outfeed_loss: send the loss, bare, in the place of the outputs.
      accumulate_outfeed: send the sum over the micro-batches, once per weight update.
      accumulate_outfeed_dtype: as `gradient_accumulation_dtype`, for those sums.
      outfeed_mask: for each output of the last stage, whether to keep it from being sent.
      name: names the pipeline in the program's text.
      reduction_method: SUM (the original's), MEAN or RUNNING_MEAN of the micro-batches' gradients.
      variables: the parameters, one pytree that all stages are given whole. A leaf lives on the IPU
        of the stages that read it. Leaves that are neither of float nor of
        complex are not trained, and no optimizer sees them.
      optimizer_state: of the optimizer, None for `opt.init(variables)`.
      state: what stages change without its being trained, such as moving statistics, counters or
        seeds: a pytree of arrays that all stages are given whole. A stage that changes some of it
        returns a `StageOutput`. For every micro-batch, stages find what they would if all
        micro-batches went through all stages one after the other; no gradients flow through it. One
        stage only may change a leaf, and none in front of that one may read it.

    Returns:
      `(variables, optimizer_state)` after the last update, `()` in inference; with `state`, that
      comes last: `(variables, optimizer_state, state)`, or `(state,)`.

    Raises:
      PipelineError: (a `ValueError`) stages or arguments that do not fit together.
      PipelineTypeError: (a `TypeError`) an argument of a wrong type.
      PipelineNotImplementedError: (a `NotImplementedError`) see the arguments.
      ScheduleError: (a `ValueError`) when lowered, a schedule that cannot run, or a number of
        micro-batches that it cannot take.
      OptimizerError: (a `ValueError`) when replayed, if replicas have different values of what is
        to be sharded over them.
      OutOfRangeError: when run, if the data set ends too soon; `error.carried` then is
        what would have been returned after the last complete update.
    """
    request = PipelineRequest(
        computational_stages=computational_stages,
        gradient_accumulation_count=gradient_accumulation_count,
        gradient_accumulation_dtype=gradient_accumulation_dtype, repeat_count=repeat_count,
        batch_serialization_iterations=batch_serialization_iterations, infeed_queue=infeed_queue,
        outfeed_queue=outfeed_queue, optimizer_function=optimizer_function,
        device_mapping=device_mapping, pipeline_schedule=pipeline_schedule,
        recomputation_mode=recomputation_mode,
        forward_propagation_stages_poplar_options=forward_propagation_stages_poplar_options,
        backward_propagation_stages_poplar_options=backward_propagation_stages_poplar_options,
        weight_update_poplar_options=weight_update_poplar_options,
        offload_weight_update_variables=offload_weight_update_variables,
        replicated_optimizer_state_sharding=replicated_optimizer_state_sharding,
        offload_activations=offload_activations,
        offload_gradient_accumulation_buffers=offload_gradient_accumulation_buffers,
        replicated_weight_sharding=replicated_weight_sharding, offload_weights=offload_weights,
        continuous_weight_updates=continuous_weight_updates, outfeed_loss=outfeed_loss,
        accumulate_outfeed=accumulate_outfeed, accumulate_outfeed_dtype=accumulate_outfeed_dtype,
        outfeed_mask=outfeed_mask, name=name, reduction_method=reduction_method,
    )  # fmt: skip
    first = check.require_sequence([] if inputs is None else inputs, "inputs")
    return trace_requested_pipeline(request, variables, optimizer_state, first, state)


@check.guard
def recomputation_checkpoint(tensors: Pytree, name: str | None = None) -> Any:
    """Keeps values that recomputation would otherwise compute again.

    Acts in stages of training pipelines with `RecomputeAndBackpropagateInterleaved` where
    `IPUConfig.allow_recompute` is set; anywhere else it does nothing. For example, a stage of two
    layers that keeps what is between them, and computes the rest again:

        >>> import jax.numpy as jnp
        >>> import ipujax as ipu
        >>> def stage(params, x):
        ...     x = jnp.tanh(x @ params["first"])
        ...     x = ipu.pipelining_ops.recomputation_checkpoint(x)
        ...     return jnp.tanh(x @ params["second"])
        >>> params = {"first": jnp.ones((2, 2)), "second": jnp.ones((2, 3))}
        >>> print(ipu.compile(stage)(params, jnp.ones((8, 2))).shape)
        (8, 3)

    Args:
      tensors: a pytree of arrays.
      name: a scope for the operation.

    Returns:
      The same pytree.
    """
    check.require_array_leaves(tensors, "recomputation_checkpoint")
    with check.operator_scope(name or "recomputation_checkpoint"):
        return jax.tree.map(
            lambda x: pipelines.mark_recomputation_checkpoint(jnp.asarray(x)), tensors
        )
