"""The effects of a session's options on its program: configuration, reductions, synthetic data."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ipujax.doors.onnx import ConvertedGraph
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.options import (
    MeanReductionStrategy,
    ReductionType,
    SessionOptions,
    SyntheticDataMode,
)
from ipujax.popart.popart_checks import check
from ipujax.popart.tensor_info import to_data_type
from ipujax.system import IPUConfig
from ipujax.training import TrainState, drop_weak_types

Array = np.ndarray


def build_session_config(options: SessionOptions) -> IPUConfig:
    """Builds the configuration of the virtual system that the options ask for."""
    config = IPUConfig()
    behaviour = config.floating_point_behaviour
    if options.enableFloatingPointChecks:
        behaviour.inv = behaviour.div0 = behaviour.oflo = True
    if options.enableStochasticRounding:
        behaviour.esr = True
    return config


def choose_gradient_reduction(options: SessionOptions) -> str:
    """Returns the reduction of the gradients of several micro-batches."""
    if options.accumulationAndReplicationReductionType is ReductionType.Sum:
        return "SUM"
    strategy = options.meanAccumulationAndReplicationReductionStrategy
    return "RUNNING_MEAN" if strategy is MeanReductionStrategy.Running else "MEAN"


def compute_optimizer_scalars(
    optimizer: Optimizer | None, model: ConvertedGraph, loss: str | None, options: SessionOptions
) -> dict[str, Array]:
    """Computes the scalars of an optimizer in the original's programs, float32 by name."""
    if optimizer is None or loss is None:
        return {}
    kinds = {name: to_data_type(value.dtype).name for name, value in model.variables.items()}
    is_mean = choose_gradient_reduction(options) == "MEAN"
    count = options.accumulation * options.getGlobalReplicationFactor() if is_mean else 1
    values = optimizer.compute_scalars(kinds, to_data_type(model.avals[loss].dtype).name, count)
    return {name: np.asarray(value, np.float32) for name, value in values.items()}


def check_loss_tensor(model: ConvertedGraph, loss: object) -> None:
    """Checks that a loss is a scalar that the model computes."""
    name = check.require_text(loss, "the loss")
    if name not in model.avals:
        raise check.value_error(
            f"the loss {name!r} is no tensor that the model computes",
            "name the result of a node, such as builder.aiGraphcore.identityloss([x])",
        )
    if (aval := model.avals[name]).size != 1:
        raise check.value_error(
            f"the loss {name!r} has shape {aval.shape}, and must be a scalar",
            "reduce it: builder.aiGraphcore.identityloss([x], reduction=ReductionType.Mean)",
        )


def split_random_keys(options: SessionOptions, seed: int, count: int) -> Array:
    """Splits a seed into random keys of this process's micro-batches: `uint32[count, 2]`."""
    instances, offset, replicas = options.instances, options.globalReplicaOffset, options.replicas
    all_keys = jax.random.split(jax.random.key(seed), count * instances)
    data = np.asarray(jax.random.key_data(all_keys))
    rows = data.reshape(-1, replicas * instances, data.shape[-1])
    return rows[:, offset : offset + replicas].reshape(count, data.shape[-1])


def generate_synthetic_data(
    mode: SyntheticDataMode, shapes: Sequence[tuple[Any, Any]]
) -> list[Array]:
    """Generates data that replace a user's, the same in each step."""
    generator = np.random.default_rng(0)
    arrays: list[Array] = []
    for shape, dtype in shapes:
        is_number = np.issubdtype(dtype, np.floating)
        if mode is SyntheticDataMode.Zeros or not is_number:
            arrays.append(np.zeros(shape, dtype))
        elif mode is SyntheticDataMode.RandomNormal:
            arrays.append(generator.standard_normal(shape).astype(dtype))
        else:
            arrays.append(generator.random(shape).astype(dtype))
    return arrays


def replace_session_hyperparameters(state: TrainState, hyper: Mapping[str, object]) -> TrainState:
    """Returns the state with other hyperparameters."""
    return dc.replace(
        state, optimizer_state=drop_weak_types({**state.optimizer_state, "hyper": dict(hyper)})
    )
