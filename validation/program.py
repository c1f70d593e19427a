"""From a JAX function and abstract arguments to what the machine model says of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.optimizers import CrossReplicaOptimizer
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineStageOptions, pipeline
from ipujax.scopes import partials_type
from lowering import Options, lower, marks
from lowering.machine import ModelOptions, Profile, model
from lowering.machine.target import Target
from validation.models.variables import Shapes, Variables

# graphcore/examples: max_cross_replica_buffer_size of all applications that set it.
MERGED_BYTES = 50 * 2**20


def lowered(
    function: Callable[..., Any], args: Sequence[Any], num_ipus: int = 1, recompute: bool = False
) -> Any:
    """The program of a function for abstract arguments; nothing is compiled or run."""
    closed = jax.jit(function).trace(*args).jaxpr
    return lower(closed, Options(num_ipus=num_ipus, allow_recompute=recompute))


def as_popart(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as PopART compiles it, which runs each line's operations on their own."""

    def run(*given: Any) -> Any:
        with marks.keep_lines_apart():
            return function(*given)

    return run


def predict_program(
    function: Callable[..., Any],
    args: Sequence[Any],
    target: Target,
    num_ipus: int = 1,
    recompute: bool = False,
    **options: Any,
) -> Profile:
    """What one call of a function costs.

    Args:
      function: as `ipu.compile` takes it.
      args: `jax.ShapeDtypeStruct`s, or trees of them.
      target: the chip.
      num_ipus: of the device; what the shards leave is used for replicas.
      recompute: as `IPUConfig.allow_recompute`.
      options: more for `ModelOptions`.
    """
    return model(
        lowered(function, args, num_ipus, recompute),
        ModelOptions(target=target, merged_bytes=MERGED_BYTES, **options),
    )


def training_pipeline(
    stages: Sequence[Callable[..., Any]],
    element: tuple[jax.ShapeDtypeStruct, ...],
    micro_batches: int,
    optimizer: Any,
    *,
    dtype: Any = jnp.float16,
    devices: Sequence[int] | None = None,
    proportions: Sequence[float] | None = None,
    partials: Any = None,
    **arguments: Any,
) -> Callable[[Shapes], Any]:
    """One update of a pipeline's variables, to be lowered for their shapes.

    Args:
      stages: each is `stage(variables, *values)`; the last gives the loss.
      element: of the infeed, the arguments of the first stage.
      micro_batches: of one update.
      optimizer: an optax transformation. Gradients are averaged over the replicas before it.
      dtype: of the variables.
      devices: the IPU of each stage.
      proportions: the available memory proportion of each stage.
      partials: what sums are kept in; the variables' type by default.
      arguments: more for `pipelining_ops.pipeline`.
    """
    zeros = tuple(np.broadcast_to(np.zeros((), s.dtype), s.shape) for s in element)
    infeed = IPUInfeedQueue(lambda: itertools.repeat(zeros))
    outfeed = IPUOutfeedQueue()
    options = [_options(p) for p in proportions] if proportions else None

    def part(stage: Callable[..., Any]) -> Callable[..., Any]:
        def run(values: Any, *given: Any) -> Any:
            with partials_type(partials or dtype):
                return stage(Variables(dtype, values), *given)

        return run

    def train(variables: Shapes) -> Any:
        return pipeline(
            [part(stage) for stage in stages],
            gradient_accumulation_count=micro_batches,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: OptimizerFunctionOutput(
                CrossReplicaOptimizer(optimizer), loss
            ),
            device_mapping=devices,
            forward_propagation_stages_poplar_options=options,
            backward_propagation_stages_poplar_options=options,
            variables=variables,
            **arguments,
        )

    return train


def _options(proportion: float) -> PipelineStageOptions:
    chosen = {"availableMemoryProportion": str(proportion)}
    return PipelineStageOptions(convolution_options=chosen, matmul_options=chosen)


def device_cycles(profile: Profile) -> float:
    """Cycles of all operations of a program of one IPU, without what it exchanges with the host."""
    return sum(operation.cycles for operation in profile.operations)
