"""The loops on the device that train a graph or run it, and the results that they return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax

from ipujax.distribution import broadcast_from_process
from ipujax.doors.graphs.forward import Forward
from ipujax.pipelines import OptimizerFunctionOutput
from ipujax.training import Inference, Training, TrainState, drop_weak_types


def build_training(
    forward: Forward,
    optimizer: optax.GradientTransformation,
    pipeline_options: Mapping[str, Any],
    **options: Any,
) -> Training:
    """Builds the training of a graph, as a pipeline if the graph is one.

    Args:
      forward: the forward pass of the graph.
      optimizer: the optimizer of the graph's variables.
      pipeline_options: the options of the pipeline.
      options: the arguments of `Training`.
    """
    if not forward.placement.is_pipelined:
        return Training(forward.forward_for_training, optimizer, **options)

    def build_optimizer_output(loss: jax.Array, *_: Any) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(optimizer, loss)

    return Training(forward.build_pipeline(**pipeline_options), build_optimizer_output, **options)


def build_inference(forward: Forward, count: int, **options: Any) -> Inference:
    """Builds the inference of a graph; a pipeline takes `count` micro-batches at once."""
    if not forward.placement.is_pipelined:
        return Inference(forward, **options)
    return Inference(forward.build_pipeline(), accumulation=count, **options)


def broadcast_train_state(state: TrainState, root: int) -> TrainState:
    """Returns the state of process `root`, in all processes that call this."""
    parts = state.variables, state.optimizer_state, state.state
    variables, optimizer_state, untrained = drop_weak_types(broadcast_from_process(root, parts))
    return TrainState(variables, optimizer_state, untrained, state.step)


def select_results(results: np.ndarray, mode: str, period: int) -> np.ndarray:
    """Selects or sums the results of some micro-batches, and returns `[selected, ...]`.

    Args:
      results: `[micro-batch, ...]`.
      mode: `"All"`, `"EveryN"`, `"Final"` for the last one alone, or `"Sum"`.
      period: the period of `"EveryN"`.
    """
    match mode:
        case "EveryN":
            return results[period - 1 :: period]
        case "Final":
            return results[-1:]
        case "Sum":
            return results.sum(0, keepdims=True, dtype=results.dtype)
        case _:
            return results
