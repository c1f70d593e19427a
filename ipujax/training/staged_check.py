"""Compares a `value_and_grad` of stages with `jax.value_and_grad`, micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.driver import compile as ipu_compile
from ipujax.optimizers import GradientAccumulationReductionMethod as Reduction
from ipujax.pipelines import MicroBatchArguments, ScheduleOrName, ValueAndGrad
from ipujax.training.pipeline_differences import (
    Pair,
    PipelineCheck,
    compare_pairs,
    schedule_name,
)
from ipujax.training.recorded_gradients import gradient_in_64_bits


def check_value_and_grad(
    step: ValueAndGrad,
    args: Sequence[Any],
    schedules: Sequence[ScheduleOrName] | None,
    engine: str,
    tolerances: tuple[float, float],
) -> PipelineCheck:
    """Runs a function of stages both ways, for the same arguments.

    Args:
      step: the function.
      args: its positional arguments.
      schedules: the schedules to check; None for its own.
      engine: of `ipu.compile`.
      tolerances: the relative and the absolute one, as for `check_pipeline`.
    """
    arguments = step.list_arguments(args, {})
    expected = _run_unpipelined(step, arguments, step.differentiated_positions(args))
    rows = []
    for schedule in schedules or [step.settings.schedule]:
        pairs = _pair_arrays(_run_pipelined(step, schedule, engine, arguments), expected)
        rows += compare_pairs(schedule_name(schedule), pairs, *tolerances)
    reduction = Reduction.SUM if step.reduction == "sum" else Reduction.MEAN
    return PipelineCheck(tuple(rows), step.settings.micro_batches, 1, reduction, *tolerances)


def _run_pipelined(
    step: ValueAndGrad, schedule: ScheduleOrName, engine: str, arguments: MicroBatchArguments
) -> Any:
    """Runs the pipeline with a schedule; returns `((loss, aux), gradients)`."""
    scheduled = step.with_schedule(schedule)

    def run_pipeline(*arrays: jax.Array) -> Any:
        args, kwargs = arguments.rebuild_call(arrays)
        return scheduled(*args, **kwargs)

    arrays = [leaf.value for leaf in arguments.arrays]
    value, gradients = ipu_compile(run_pipeline, engine=engine, replicas=1)(*arrays)
    return value if step.has_aux else (value, None), gradients


def _run_unpipelined(
    step: ValueAndGrad, arguments: MicroBatchArguments, positions: tuple[int, ...]
) -> Any:
    """Runs `jax.value_and_grad` on each micro-batch; adds up the results in 64 bits."""
    argnums = positions if isinstance(step.argnums, (list, tuple)) else positions[0]
    of_jax = jax.value_and_grad(step.settings.function, argnums, has_aux=step.has_aux)

    @jax.jit
    def run_micro_batch(*arrays: jax.Array) -> Any:
        args, kwargs = arguments.rebuild_call(arrays)
        value, gradients = of_jax(*args, **kwargs)
        return value if step.has_aux else (value, None), gradients

    count = step.settings.micro_batches
    results = [run_micro_batch(*arguments.take_micro_batch(i)) for i in range(count)]
    divisor = 1 if step.reduction == "sum" else count

    def reduce_micro_batches(*parts: jax.Array) -> np.ndarray:
        return np.sum([gradient_in_64_bits(part) for part in parts], axis=0) / divisor

    loss = reduce_micro_batches(*(value[0] for value, _ in results))
    aux = jax.tree.map(_stack_arrays, *(value[1] for value, _ in results))
    return (loss, aux), jax.tree.map(reduce_micro_batches, *(grads for _, grads in results))


def _stack_arrays(*parts: jax.Array) -> np.ndarray:
    return np.stack([np.asarray(_without_key_type(part)) for part in parts])


def _without_key_type(array: Any) -> Any:
    is_key = jnp.issubdtype(jax.typeof(array).dtype, jax.dtypes.prng_key)
    return jax.random.key_data(array) if is_key else array


def _pair_arrays(result: Any, expected: Any) -> list[Pair]:
    """Returns each array of the pipeline with that of the reference, and its name."""
    (loss, aux), gradients = result
    (expected_loss, expected_aux), expected_gradients = expected
    pairs: list[Pair] = [("loss", np.asarray(loss), np.asarray(expected_loss))]
    for name, tree, reference in (
        ("output aux", aux, expected_aux),
        ("gradient ", gradients, expected_gradients),
    ):
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        for (path, array), other in zip(leaves, jax.tree.leaves(reference), strict=True):
            array = np.asarray(_without_key_type(array))
            pairs.append((f"{name}{jax.tree_util.keystr(path)}", array, other))
    return pairs
