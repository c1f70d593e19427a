"""Variables of models: asked for by name, recorded when a model is first looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

Shapes = dict[str, jax.ShapeDtypeStruct]


class Variables:
    """What a model reads: `v("kernel", 3, 4)`, and `v / "name"` for a part of it.

    Without values it gives zeros and remembers what was asked for.
    """

    def __init__(self, dtype: Any, values: Mapping[str, Any] | None = None, path: str = ""):
        self.dtype, self.path = dtype, path
        self.values = values
        self.asked: Shapes = {}

    def __truediv__(self, name: str) -> Variables:
        part = Variables(self.dtype, self.values, f"{self.path}{name}/")
        part.asked = self.asked
        return part

    def __call__(self, name: str, *shape: int) -> Any:
        key = self.path + name
        if self.values is not None:
            return self.values[key]
        self.asked[key] = jax.ShapeDtypeStruct(shape, self.dtype)
        return jnp.zeros(shape, self.dtype)


def shapes(model: Callable[..., Any], dtype: Any, *args: Any) -> Shapes:
    """The variables of `model(variables, *args)`, traced with abstract arguments."""
    variables = Variables(dtype)
    jax.eval_shape(lambda *given: model(variables, *given), *args)
    return variables.asked


def stage_shapes(stages: list[Callable[..., Any]], dtype: Any, *args: Any) -> Shapes:
    """The variables of stages `stage(variables, *values)` that feed one another."""
    variables = Variables(dtype)
    values: Any = args
    for stage in stages:
        given = values if isinstance(values, tuple) else (values,)
        values = jax.eval_shape(lambda *a, stage=stage: stage(variables, *a), *given)
    return variables.asked


def struct(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
    """An abstract array."""
    return jax.ShapeDtypeStruct(shape, dtype)
