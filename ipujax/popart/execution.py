"""How options of a session act on the program."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ipujax.config import IPUConfig
from ipujax.frontends.onnx.model import Converted
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.options import (
    MeanReductionStrategy,
    ReductionType,
    SessionOptions,
    SyntheticDataMode,
)
from ipujax.popart.tensor_info import data_type_of
from ipujax.training import TrainState
from ipujax.training.state import on_device

Array = np.ndarray[Any, Any]


def config_of(options: SessionOptions) -> IPUConfig:
    """The configuration of a system that nobody else has configured."""
    config = IPUConfig()
    behaviour = config.floating_point_behaviour
    if options.enableFloatingPointChecks:
        behaviour.inv = behaviour.div0 = behaviour.oflo = True
    if options.enableStochasticRounding:
        behaviour.esr = True
    return config


def reduction_of(options: SessionOptions) -> str:
    """What becomes of the gradients of several micro-batches."""
    if options.accumulationAndReplicationReductionType is ReductionType.Sum:
        return "SUM"
    strategy = options.meanAccumulationAndReplicationReductionStrategy
    return "RUNNING_MEAN" if strategy is MeanReductionStrategy.Running else "MEAN"


def scalars(
    optimizer: Optimizer | None, model: Converted, loss: str | None, options: SessionOptions
) -> dict[str, Array]:
    """What an optimizer's hyperparameters are in the original's programs, float32 by name."""
    if optimizer is None or loss is None:
        return {}
    kinds = {name: data_type_of(value.dtype).name for name, value in model.variables.items()}
    is_mean = reduction_of(options) == "MEAN"
    count = options.accumulation * options.getGlobalReplicationFactor() if is_mean else 1
    found = optimizer.scalars(kinds, data_type_of(model.avals[loss].dtype).name, count)
    return {name: np.asarray(value, np.float32) for name, value in found.items()}


def synthetic(mode: SyntheticDataMode, shapes: Sequence[tuple[Any, Any]]) -> list[Array]:
    """Data that take the place of a user's, the same in each step."""
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


def with_hyper(state: TrainState, hyper: Mapping[str, Any]) -> TrainState:
    """The state with other hyperparameters."""
    return dc.replace(
        state, optimizer_state=on_device({**state.optimizer_state, "hyper": dict(hyper)})
    )
