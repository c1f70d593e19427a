"""Keras models for tests of their pipeline stages, and what their traces say."""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np
from keras import layers

from ipujax.keras import get_pipeline_stage_assignment, trace_in_stages
from lowering import marks
from lowering.jaxprs import jaxpr


def two_towers() -> Any:
    """Two inputs, two towers and one shared layer on top: six calls of five layers."""
    first, second = keras.Input((32,)), keras.Input((32,))
    x = layers.Dense(4)(layers.Flatten()(first))
    y = layers.Dense(4)(layers.Flatten()(second))
    shared = layers.Dense(8)
    return keras.Model((first, second), (shared(x), shared(y)))


def traced(model: Any, *shapes: tuple[int, ...]) -> list[tuple[str, int | None]]:
    """The primitives of a model's forward pass, each with its stage, once per run of equal ones."""
    variables = [x.value for x in model.trainable_variables]
    others = [x.value for x in model.non_trainable_variables]
    inputs = [np.ones(shape, np.float32) for shape in shapes]
    with trace_in_stages(model):
        closed = jax.make_jaxpr(model.stateless_call)(
            variables, others, inputs if len(inputs) > 1 else inputs[0]
        )
    return [
        (equation.primitive.name, marks.read_marks(jaxpr.name_stack(equation)).stage)
        for equation in closed.jaxpr.eqns
    ]


def matmul_stages(model: Any, *shapes: tuple[int, ...]) -> list[int | None]:
    """The stages of a model's matrix products, in the order of the trace."""
    return [stage for name, stage in traced(model, *shapes) if name == "dot_general"]


def stage_list(assignments: list[Any]) -> list[Any]:
    """The stages of a functional or subclassed model's assignment, nested models' in lists."""
    return [
        (
            stage_list(entry.pipeline_stage_assignments)
            if getattr(entry, "is_nested_model", False)
            else getattr(entry, "pipeline_stage", entry)
        )
        for entry in assignments
    ]


def stages(model: Any) -> list[Any]:
    """The stages of a model's layers."""
    return stage_list(get_pipeline_stage_assignment(model))
