"""The primitive of pipelines: a task, one phase of one stage for one micro-batch.

A pipeline is an `ipu_repeat` over micro-batches whose body consists of tasks and nothing else;
its `PipelineSpec` says in which order the tasks of many micro-batches may run. Without a
schedule (under plain `jax.jit`, in derivatives of the whole pipeline, in the fused engine) the
tasks of one micro-batch run after the other: the Sequential schedule, with the same numbers.
"""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Callable, Sequence
from typing import Any

import jax

from lowering.jaxprs import (
    Aval,
    ClosedJaxpr,
    Effect,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    constants_to_arguments,
    effects_of,
    function_of_jaxpr,
    is_open_result,
    rewrite_equations,
    touches_refs,
    trace_flat,
    with_constants_in_order_of_reading,
)
from lowering.ops.define import define_identity_mark, define_primitive_with_body
from lowering.ops.storage_primitives import ON_TILES, Storage
from lowering.ops.types import Array, Arrays
from lowering.schedules import Schedule

Options = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Poplar options: `((group, ((name, value), ...)), ...)`."""


_PRODUCTS = {"matmul_options": "dot_general", "convolution_options": "conv_general_dilated"}
_DTYPES = {"half": "float16", "float": "float32"}


class TaskRole(enum.Enum):
    """The work of a task for its stage: a schedule's phase, or the weight update.

    RECOMPUTE is also part of a backward task, where the schedule has no tasks for it.
    """

    FORWARD = "F"
    BACKWARD = "B"
    WEIGHTS = "W"
    RECOMPUTE = "R"
    OFFLOAD = "O"
    LOAD = "L"
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


class Combination(enum.Enum):
    """How the loop variables of copies of a stage become one."""

    SUM = "tasks add to it, or fill empty rows, from zeros on: the copies' are added"
    NUMBER = "the number of the micro-batch, which is given to every task"
    LAST = "the last micro-batch leaves it"
    NONE = "each micro-batch reads what the one before has left"


@dc.dataclass(frozen=True, slots=True)
class LoopVariable:
    """A loop variable of a pipeline.

    Attributes:
      combination: how those of copies become one.
      storage: where it is between tasks.
    """

    combination: Combination
    storage: Storage = ON_TILES


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
      recomputation_conflict: why users must not have this recomputation with this schedule; "" if
        they may. It says nothing where options allow no recomputation.
      offload_activations: keep values that wait for backward tasks in streaming memory.
      origin: the user's line.
      variables: kind and name of the first loop variables, for reports: "gradient sum", say.
      loop_variables: all of them, if the stages may have copies.
      brings_ipus: whether a system that nobody has configured gets as many IPUs as it needs.
      segments: the parts of a function that a user's argument `stages` cuts between, each with one
        product; 0 where there is no such argument, or a plan says where to cut.
    """

    name: str
    stages: int
    training: bool
    ipus: tuple[tuple[int, ...], ...]
    schedule: Schedule | Callable[..., Any]
    recomputation: Recomputation
    recomputation_conflict: str = ""
    offload_activations: bool = False
    origin: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    loop_variables: tuple[LoopVariable, ...] = ()
    brings_ipus: bool = False
    segments: int = 0


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPipeline:
    """The part of a `PipelineSpec` that is left after the pass `plan_pipelines`.

    Attributes:
      ipus: the IPUs of each stage, of every copy.
      counters: the loop variables that hold the number of the micro-batch.
    """

    name: str
    ipus: tuple[tuple[int, ...], ...]
    schedule: Schedule
    origin: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    counters: tuple[int, ...] = ()


class UntracedCall(enum.Enum):
    """The kind of a call that stands for the equations of its body while others are traced."""

    AS_FUNCTION = "the body's equations get the lines of the call besides their own"
    AS_EVALUATION = "the body's equations keep their lines"


def call_without_tracing(
    body: ClosedJaxpr, operands: Sequence[Any], kind: UntracedCall = UntracedCall.AS_FUNCTION
) -> list[Any]:
    """Calls a body that `trace_with_untraced_calls` takes over as it stands."""
    return list(task_p.bind(*operands, body=body, spec=kind))


def evaluate_without_tracing(closed: ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
    """Evaluates a jaxpr inside `trace_with_untraced_calls`: as if its equations were traced again.

    They are, where that could give others: with operands of other avals or known values, or Refs.
    """
    avals = [jax.typeof(x) for x in operands]
    if avals != closed.in_avals or not all(map(is_open_result, operands)) or touches_refs(closed):
        return function_of_jaxpr(closed)(*operands)
    body, consts = constants_to_arguments(with_constants_in_order_of_reading(closed))
    return call_without_tracing(body, [*consts, *operands], UntracedCall.AS_EVALUATION)


def trace_with_untraced_calls(function: Callable[..., Any], avals: Sequence[Any]) -> ClosedJaxpr:
    """Traces a function that puts bodies together.

    Bodies that are called by `call_without_tracing` are taken over as they stand, since a second
    trace takes time, and would need to know the axis of their collectives.
    """
    return rewrite_equations(
        trace_flat(function, avals), EquationFinder(_is_untraced_call), _open_untraced_call
    )


def _is_untraced_call(eqn: JaxprEqn) -> bool:
    return is_task(eqn) and isinstance(eqn.params["spec"], UntracedCall)


def _open_untraced_call(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
    is_evaluation = eqn.params["spec"] is UntracedCall.AS_EVALUATION
    replace = rewriter.replace_by_evaluation if is_evaluation else rewriter.replace_by_jaxpr
    replace(eqn, eqn.params["body"])


def run_as_task(function: Callable[..., Arrays], operands: Arrays, spec: TaskSpec) -> list[Array]:
    """Runs a flat function, which may evaluate jaxprs without tracing them, as a task."""
    traced = trace_with_untraced_calls(function, [jax.typeof(x) for x in operands])
    closed, consts = constants_to_arguments(traced)
    shifted = tuple((operand + len(consts), result) for operand, result in spec.accumulated)
    spec = dc.replace(spec, accumulated=shifted)
    return task_p.bind(*consts, *operands, body=closed, spec=spec)


def mark_recomputation_checkpoint(x: Array) -> Array:
    """Returns `x`, which recomputation keeps instead of computing it again."""
    return checkpoint_p.bind(x)


def _effects_of_task(*_: Aval, body: ClosedJaxpr, spec: TaskSpec) -> set[Effect]:
    return effects_of(body)


def _function_of_task(*, body: ClosedJaxpr, spec: TaskSpec) -> Callable[..., list[Array]]:
    return function_of_jaxpr(body)


task_p = define_primitive_with_body(
    "ipu_task",
    effects=_effects_of_task,
    function=_function_of_task,
)
checkpoint_p = define_identity_mark("ipu_recomputation_checkpoint")


def is_task(eqn: JaxprEqn) -> bool:
    """Returns whether an equation is a task."""
    return eqn.primitive is task_p
