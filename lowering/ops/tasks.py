"""The primitive of pipelines: a task, one phase of one stage for one micro-batch.

A pipeline is an `ipu_repeat` over micro-batches whose body consists of tasks and nothing else;
its `PipelineSpec` says in which order the tasks of many micro-batches may run. Without a
schedule (under plain `jax.jit`, in derivatives of the whole pipeline, in the fused engine) the
tasks of one micro-batch run after the other: the Sequential schedule, with the same numbers.
"""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Callable
from typing import Any

import jax

from lowering.jaxprs import (
    JaxprEqn,
    constants_to_arguments,
    effects_of,
    function_of_jaxpr,
    trace_flat,
)
from lowering.ops.define import define_identity_mark, define_primitive_with_body
from lowering.ops.types import Array, Arrays
from lowering.schedules import Schedule

Options = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Poplar options: `((group, ((name, value), ...)), ...)`."""


_PRODUCTS = {"matmul_options": "dot_general", "convolution_options": "conv_general_dilated"}
_DTYPES = {"half": "float16", "float": "float32"}


class TaskRole(enum.Enum):
    """The work of a task for its stage; the first three are a schedule's phases."""

    FORWARD = "F"
    BACKWARD = "B"
    WEIGHTS = "W"
    RECOMPUTE = "recompute"
    UPDATE = "update"

    def __str__(self) -> str:
        return self.name.lower()


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """The specification of a task, beside its equations.

    Attributes:
      kind: the work that it does.
      stage: the number of its stage; -1 for the weight update, which belongs to all.
      accumulated: pairs of an operand and a result that are one buffer, which the task changes.
      options: Poplar options of its convolutions and matmuls.
    """

    kind: TaskRole
    stage: int = -1
    accumulated: tuple[tuple[int, int], ...] = ()
    options: Options = ()

    @property
    def partials(self) -> tuple[tuple[str, str], ...]:
        """The types of partial results that the options ask for, by primitive."""
        return tuple(
            (_PRODUCTS[group], _DTYPES.get(value, value))
            for group, pairs in self.options
            for name, value in pairs
            if name == "partialsType"
        )


class Recomputation(enum.Enum):
    """The way in which backward tasks get activations that forward tasks do not keep."""

    THEN_BACKPROPAGATE = "recompute, then backpropagate"
    AND_BACKPROPAGATE = "recompute and backpropagate interleaved"


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """The specification of a pipeline, beside its tasks.

    Attributes:
      name: the user's name for it.
      stages: the number of forward stages.
      training: whether there are backward tasks.
      ipus: the IPUs of each stage; () for a stage that spans all of them.
      schedule: a schedule, or a function, as `schedules.build` takes it.
      recomputation: how to recompute activations, if options allow it.
      offload_activations: keep values that wait for backward tasks in remote memory.
      origin: the user's line.
      variables: kind and name of the first loop variables, for reports: "gradient sum", say.
    """

    name: str
    stages: int
    training: bool
    ipus: tuple[tuple[int, ...], ...]
    schedule: Schedule | Callable[..., Any]
    recomputation: Recomputation
    offload_activations: bool = False
    origin: str = ""
    variables: tuple[tuple[str, str], ...] = ()


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPipeline:
    """The part of a `PipelineSpec` that is left after the pass `plan_pipelines`."""

    name: str
    ipus: tuple[tuple[int, ...], ...]
    schedule: Schedule
    origin: str = ""
    variables: tuple[tuple[str, str], ...] = ()


def run_as_task(function: Callable[..., Arrays], operands: Arrays, spec: TaskSpec) -> list[Array]:
    """Runs a flat function as a task, and returns its flat results."""
    closed, consts = constants_to_arguments(trace_flat(function, [jax.typeof(x) for x in operands]))
    shifted = tuple((operand + len(consts), result) for operand, result in spec.accumulated)
    spec = dc.replace(spec, accumulated=shifted)
    return task_p.bind(*consts, *operands, body=closed, spec=spec)


def mark_recomputation_checkpoint(x: Array) -> Array:
    """Returns `x`, which recomputation keeps instead of computing it again."""
    return checkpoint_p.bind(x)


task_p = define_primitive_with_body(
    "ipu_task",
    effects=lambda *_, body, spec: effects_of(body),
    function=lambda body, spec: function_of_jaxpr(body),
)
checkpoint_p = define_identity_mark("ipu_recomputation_checkpoint")


def is_task(eqn: JaxprEqn) -> bool:
    """Returns whether an equation is a task."""
    return eqn.primitive is task_p
