"""Stages that subclassed models give inside functional ones, and operations without layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("keras")

import keras
from keras import layers

from ipujax.config import IPUConfig
from ipujax.ipu_strategy import IPUStrategy
from ipujax.keras import PipelineStage
from ipujax.keras.model_stages import needs_trace_for_stages


class Block(keras.Model):
    """A layer in stage 0, and an operation in stage 1."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(4)

    def call(self, x: Any) -> Any:
        with PipelineStage(0):
            x = self.dense(x)
        with PipelineStage(1):
            return keras.ops.tanh(x)


def block() -> Any:
    return Block()


def graph_of_a_block() -> Any:
    return keras.Sequential([keras.Input((4,)), Block()])


def graph_of_a_graph_of_a_block() -> Any:
    first = keras.Input((4,))
    return keras.Model(first, graph_of_a_block()(first))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("build", [block, graph_of_a_block, graph_of_a_graph_of_a_block])
def test_they_train_as_a_pipeline(build: Any) -> None:
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    results: list[Any] = []
    for inside in (True, False):
        keras.utils.set_random_seed(0)
        model = build()
        assert needs_trace_for_stages(model)
        optimizer = keras.optimizers.SGD(0.5, gradient_accumulation_steps=None if inside else 4)
        model.compile(optimizer, "mse", steps_per_execution=4)
        if inside:
            with IPUStrategy().scope():
                model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
                model.fit(x, x, batch_size=1, shuffle=False, verbose=0)
                assert model.report().num_ipus == 2
        else:
            model.fit(x, x, batch_size=1, shuffle=False, verbose=0)
        results.append([variable.value for variable in model.trainable_variables])
    for got, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7)


def test_graphs_of_layers_need_no_trace() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
    assert not needs_trace_for_stages(model)
    model.add(graph_of_a_block())
    assert needs_trace_for_stages(model)
