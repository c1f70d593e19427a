"""Training steps by which modelling speed is measured: functions and their abstract arguments."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from validation.models import bert, resnet
from validation.models.variables import Variables, shapes, stage_shapes, struct
from validation.program import training_pipeline

HALF, I32 = jnp.float16, jnp.int32


class Step(NamedTuple):
    """A training step.

    Attributes:
      function: one step, as `ipu.compile` takes it.
      args: its arguments' shapes.
      num_ipus: that it needs.
    """

    function: Callable[..., Any]
    args: Sequence[Any]
    num_ipus: int


def resnext101(batch: int = 4) -> Step:
    """ResNeXt-101 (32x4d) with momentum, on one IPU."""
    return _image_step(resnet.RESNEXT101.loss, batch)


def _image_step(loss: Callable[..., Any], batch: int) -> Step:
    data = [struct(HALF, batch, 224, 224, 4), struct(I32, batch)]
    variables = shapes(loss, HALF, *data)
    optimizer = optax.sgd(0.1, 0.9)
    state = jax.eval_shape(optimizer.init, variables)

    def step(values: Any, state: Any, *data: Any) -> Any:
        grads = jax.grad(lambda v: loss(Variables(HALF, v), *data))(values)
        changes, state = optimizer.update(grads, state)
        return optax.apply_updates(values, changes), state

    return Step(step, [variables, state, *data], 1)


def resnet50(batch: int = 4, micro_batches: int = 8) -> Step:
    """ResNet-50 over two IPUs, cut after the second stage's blocks."""
    parts = resnet.RESNET50.parts()

    def front(v: Variables, x: Any, labels: Any) -> Any:
        for part in parts[:8]:
            x = part(v, x)
        return x, labels

    def back(v: Variables, x: Any, labels: Any) -> Any:
        for part in parts[8:]:
            x = part(v, x)
        return optax.softmax_cross_entropy_with_integer_labels(x, labels).mean()

    element = (struct(HALF, batch, 224, 224, 4), struct(I32, batch))
    return _pipeline([front, back], element, micro_batches, optax.sgd(0.1, 0.9), 2)


def bert_large(
    layers: int = 24, batch: int = 2, micro_batches: int = 20, ipus: int = 4, **arguments: Any
) -> Step:
    """BERT-Large, sequences of 128, LAMB, over some IPUs; the loss is on the first.

    `arguments` are more for `pipelining_ops.pipeline`.
    """
    sizes = dc.replace(bert.LARGE, layers=layers)
    split = [layers * (number + 1) // ipus - layers * number // ipus for number in range(ipus)]
    labels = (struct(I32, batch, sizes.masked), struct(I32, batch))
    return _pipeline(
        sizes.stages(split, sizes.pretraining_loss),
        (struct(I32, batch, sizes.length), *labels),
        micro_batches,
        optax.lamb(1e-3),
        ipus,
        devices=[*range(ipus), 0],
        **arguments,
    )


def many(ipus: int = 64, micro_batches: int = 1024, width: int = 256) -> Step:
    """A dense layer on each of many IPUs."""

    def layer(number: int) -> Callable[..., Any]:
        def stage(v: Variables, x: Any) -> Any:
            x = jax.nn.relu(x @ v(f"layer{number}", width, width))
            return x if number < ipus - 1 else x.astype(jnp.float32).mean()

        return stage

    element = (struct(HALF, 8, width),)
    stages = [layer(number) for number in range(ipus)]
    return _pipeline(stages, element, micro_batches, optax.sgd(0.1), ipus)


def _pipeline(
    stages: list[Callable[..., Any]],
    element: tuple[jax.ShapeDtypeStruct, ...],
    micro_batches: int,
    optimizer: Any,
    ipus: int,
    **arguments: Any,
) -> Step:
    train = training_pipeline(stages, element, micro_batches, optimizer, **arguments)
    return Step(train, [stage_shapes(stages, HALF, *element)], ipus)
