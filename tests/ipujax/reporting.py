"""What tests of reports share: configurations, and a pipeline whose numbers are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.ipujax.feeding import infeed, outfeed

f32 = np.float32


def struct(*shape: int, dtype: Any = f32) -> jax.ShapeDtypeStruct:
    """An argument without data."""
    return jax.ShapeDtypeStruct(shape, dtype)


def configured(ipus: int = 1, **options: Any) -> None:
    """Configures one device; `a__b=x` sets the attribute `a.b`."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    for name, value in options.items():
        *path, last = name.split("__")
        node: Any = config
        for part in path:
            node = getattr(node, part)
        setattr(node, last, value)
    config.configure_ipu_system()


def zeros(*shape: int) -> Callable[[], Any]:
    """An endless data set of pairs of zeros."""
    return lambda: itertools.repeat((np.zeros(shape, f32), np.zeros(shape, f32)))


def training(
    stages: int, micro_batches: int, *, width: int = 16, batch: int = 8, **arguments: Any
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A pipeline with a square matrix for each stage, trained by Adam; and its arguments.

    The optimizer's state is on the tiles unless `arguments` say otherwise.
    """
    arguments = {"offload_weight_update_variables": False, **arguments}

    def stage(number: int) -> Callable[..., Any]:
        return lambda weights, x, y: (jnp.tanh(x @ weights[number]), y)

    def last(weights: Any, x: Any, y: Any) -> Any:
        return jnp.mean((x @ weights[stages - 1] - y) ** 2)

    elements, losses = infeed(zeros(batch, width)), outfeed()

    def train(weights: Any, **more: Any) -> Any:
        return pipeline(
            [*map(stage, range(stages - 1)), last],
            micro_batches,
            infeed_queue=elements,
            outfeed_queue=losses,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optax.adam(0.1), loss),
            variables=weights,
            **arguments,
            **more,
        )

    return train, ([struct(width, width)] * stages,)
