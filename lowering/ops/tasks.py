"""The primitive of pipelines: a task, one phase of one stage for one micro-batch.

A pipeline is a `streams.repeat` over micro-batches whose body consists of tasks and nothing else;
its `PipelineSpec` says in which order the tasks of many micro-batches may run. Whoever does not
know about schedules (plain `jax.jit`, derivatives of the whole pipeline, the fused engine) runs
the tasks of one micro-batch after the other: the Sequential schedule, with the same numbers.
"""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Callable
from typing import Any

import jax

from lowering.equations import function_of
from lowering.jaxpr import JaxprEqn, hoisted, trace_flat
from lowering.ops.define import define_body, define_mark
from lowering.ops.types import Array, Arrays
from lowering.refs import effects_of
from lowering.schedules import Schedule

Options = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Poplar options: `((group, ((name, value), ...)), ...)`."""


_PRODUCTS = {"matmul_options": "dot_general", "convolution_options": "conv_general_dilated"}
_DTYPES = {"half": "float16", "float": "float32"}


class Kind(enum.Enum):
    """What a task does for its stage; the first three are a schedule's phases."""

    FORWARD = "F"
    BACKWARD = "B"
    WEIGHTS = "W"
    RECOMPUTE = "recompute"
    UPDATE = "update"

    def __str__(self) -> str:
        return self.name.lower()


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """What is known of a task beside its equations.

    Attributes:
      kind: what it does.
      stage: of which stage; -1 for the weight update, which belongs to all.
      accumulated: pairs of an operand and a result that are one buffer: the task changes it.
      options: Poplar options of its convolutions and matmuls.
    """

    kind: Kind
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
    """How a backward task gets the activations that its forward task does not keep."""

    THEN_BACKPROPAGATE = "recompute, then backpropagate"
    AND_BACKPROPAGATE = "recompute and backpropagate interleaved"


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """What is known of a pipeline beside its tasks.

    Attributes:
      name: the user's name for it.
      stages: how many forward stages.
      training: whether there are backward tasks.
      ipus: the IPUs of each stage; () for a stage that spans all of them.
      schedule: what `schedules.build` takes.
      recomputation: what to do where the configuration allows it.
      offload_activations: what waits between forward and backward tasks does so in remote memory.
      origin: the user's line.
      variables: what the first loop variables are, for reports: "gradient sum", say, and of what.
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
    """What is left of a `PipelineSpec` once the pass `plan_pipelines` has done what it asks for."""

    name: str
    ipus: tuple[tuple[int, ...], ...]
    schedule: Schedule
    origin: str = ""
    variables: tuple[tuple[str, str], ...] = ()


def task(function: Callable[..., Arrays], operands: Arrays, spec: TaskSpec) -> list[Array]:
    """Runs a flat function as a task; gives its flat results."""
    closed, consts = hoisted(trace_flat(function, [jax.typeof(x) for x in operands]))
    shifted = tuple((operand + len(consts), result) for operand, result in spec.accumulated)
    spec = dc.replace(spec, accumulated=shifted)
    return task_p.bind(*consts, *operands, body=closed, spec=spec)


def checkpoint(x: Array) -> Array:
    """`x`, which recomputation keeps instead of computing it again."""
    return checkpoint_p.bind(x)


task_p = define_body(
    "ipu_task",
    effects=lambda *_, body, spec: effects_of(body),
    function=lambda body, spec: function_of(body),
)
checkpoint_p = define_mark("ipu_recomputation_checkpoint")


def is_task(eqn: JaxprEqn) -> bool:
    """Whether an equation is a task."""
    return eqn.primitive is task_p
