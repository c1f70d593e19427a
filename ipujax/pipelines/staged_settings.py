"""The settings of a function that runs as a pipeline: what users pass to `value_and_grad`."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterable, Mapping, Sequence

from ipujax.ground import PipelineError, PlanError
from ipujax.pipelines.automatic_stages import mark_stages
from ipujax.pipelines.function_segments import segment_function
from ipujax.pipelines.hoisted_slices import hoist_slices
from ipujax.pipelines.micro_batch_arguments import (
    MicroBatchArguments,
    assign_roles,
    resolve_argnums,
)
from ipujax.pipelines.override_schedule import schedule_override
from ipujax.pipelines.pipeline_stages import Pytree
from ipujax.pipelines.schedule_names import ScheduleOrName, find_schedule
from ipujax.pipelines.single_argument_checks import check
from ipujax.pipelines.stage_assignment import StageAssignment
from ipujax.pipelines.staged_model import (
    StagedModel,
    StagedRequest,
    build_staged_model,
    dtype_of_sum,
)
from ipujax.pipelines.traced_function import TracedFunction
from ipujax.planner import Plan
from ipujax.system import get_logger
from lowering import pipelines


@dc.dataclass(frozen=True, kw_only=True, eq=False)
class StagedSettings:
    """The settings of one function that runs as a pipeline.

    Attributes:
      function: the user's function of one micro-batch.
      micro_batches: the number of micro-batches.
      stages: None for those that the marks in the function name; their number; the segments at
        which the stages after the first begin; or a plan.
      schedule: a registered name, or as for `pipeline`.
      recompute: whether stages keep only what enters them for their backward passes.
      offload: whether what waits for backward passes goes to streaming memory.
      batch_argnums: the positional arguments to split; None for all that are not differentiated.
      batch_argnames: the keyword arguments to split.
      device_mapping: the IPU of each stage; None for stage i on IPU i.

    Raises:
      PipelineError: (a `ValueError`) settings with wrong values.
      PipelineTypeError: (a `TypeError`) settings of wrong types.
    """

    function: Callable[..., Pytree]
    micro_batches: int
    stages: int | Sequence[int] | Plan | None = None
    schedule: ScheduleOrName = "one_f_one_b"
    recompute: bool = False
    offload: bool = False
    batch_argnums: int | Sequence[int] | None = None
    batch_argnames: str | Iterable[str] | None = None
    device_mapping: Sequence[int] | None = None

    def __post_init__(self) -> None:
        check.require_function(self.function, "the function")
        check.require_integer(self.micro_batches, "micro_batches", 1)
        if isinstance(self.stages, (list, tuple)):
            for start in self.stages:
                check.require_integer(start, "an entry of stages", 1)
        elif self.stages is not None and not isinstance(self.stages, Plan):
            check.require_integer(self.stages, "stages", 1)
        check.require_flag(self.recompute, "recompute")
        check.require_flag(self.offload, "offload")
        find_schedule(self.schedule, "schedule", check)
        if self.batch_argnums is not None:
            list_argnums(self.batch_argnums, "batch_argnums")
        _ = self.split_names

    @property
    def split_names(self) -> tuple[str, ...]:
        """The names of the keyword arguments to split."""
        names = self.batch_argnames
        if names is None or isinstance(names, str):
            return () if names is None else (names,)
        listed = check.require_iterable(names, "batch_argnames", "names of keyword arguments")
        return tuple(check.require_text(name, "an entry of batch_argnames") for name in listed)

    def assign_roles(
        self,
        args: Sequence[Pytree],
        kwargs: Mapping[str, Pytree],
        differentiated: Sequence[int],
        whole: Sequence[int],
    ) -> MicroBatchArguments:
        """Assigns a role to each leaf of a call's arguments.

        Args:
          args: the positional arguments.
          kwargs: the keyword arguments.
          differentiated: the positions of the arguments to differentiate.
          whole: those that are not split unless `batch_argnums` names them.

        Raises:
          PipelineError: (a `ValueError`) an array that does not divide into the micro-batches.
        """
        split = [i for i in range(len(args)) if i not in whole]
        if self.batch_argnums is not None:
            argnums = list_argnums(self.batch_argnums, "batch_argnums")
            split = list(resolve_argnums(argnums, len(args), "batch_argnums"))
        if both := sorted(set(split).intersection(differentiated)):
            raise check.value_error(
                f"argument {both[0]} is named by argnums and by batch_argnums: what is "
                "differentiated is the same for all micro-batches, and cannot be split",
                "leave it out of one of them",
            )
        if missing := sorted(set(self.split_names).difference(kwargs)):
            raise check.value_error(
                f"batch_argnames names {missing[0]!r}, and the call has "
                f"{', '.join(map(repr, kwargs)) or 'no'} keyword arguments",
                "pass that argument by keyword, or leave it out of batch_argnames",
            )
        arguments = assign_roles(
            self.function,
            args,
            kwargs,
            micro_batches=self.micro_batches,
            differentiated=differentiated,
            split=split,
            split_names=self.split_names,
        )
        if self.batch_argnums is None and not arguments.differ_between_micro_batches:
            get_logger().warning(
                "no argument of `%s` is split into the %d micro-batches, so that each of them "
                "computes the same: make the batch an argument, as in `def loss_fn(params, "
                "batch)`, instead of closing over it, or say batch_argnums=()",
                getattr(self.function, "__name__", type(self.function).__name__),
                self.micro_batches,
            )
        return arguments

    def build_model(self, function: TracedFunction, *, differentiates: bool) -> StagedModel:
        """Cuts a traced function into stages.

        Raises:
          PipelineError: (a `ValueError`) a function without marks, marks that are not in order,
            or another number of stages than that of the marks.
        """
        stages, is_planned = self.stages, isinstance(self.stages, Plan)
        if isinstance(stages, Plan):
            refuse_other_function(stages, function)
            stages = stages.cut_points
        parts = 0
        if stages is not None and not has_marks(function):
            function, parts = mark_stages(function, stages)
        elif differentiates:  # a report may advise to cut by `stages` instead of by marks
            parts = len(segment_function(function)[2])
        function = hoist_slices(function)
        assignment = _assign_stages(function)
        asked = stages if not isinstance(stages, Sequence) else len(stages) + 1
        if asked not in (None, assignment.count):
            raise check.value_error(
                f"stages={stages} asks for {asked} stages, and the marks in "
                f"`{function.name}` name {assignment.count}",
                "leave out `stages`, or the marks",
            )
        schedule = schedule_override.value  # what `ipu.compare` tries in the place of the user's
        if schedule is None:
            schedule = self.schedule
        request = StagedRequest(
            computational_stages=[self.function] * assignment.count,
            gradient_accumulation_count=self.micro_batches,
            gradient_accumulation_dtype=dtype_of_sum,
            device_mapping=self.device_mapping,
            pipeline_schedule=find_schedule(schedule, "schedule", check),
            name=function.name,
            differentiates=differentiates,
            recompute=self.recompute,
            offload_activations=self.offload,
            parts=0 if is_planned else parts,
        )
        return build_staged_model(function, assignment, request)


def refuse_other_function(plan: Plan, function: TracedFunction) -> None:
    """Raises a `PlanError` if a plan was made for another function, or for other shapes."""
    if plan.digest and plan.digest != function.digest:
        raise PlanError(
            f"the plan was made for another function than `{function.name}`, or for arguments of "
            "other shapes or dtypes",
            fix="plan this function with these arguments, by ipu.plan",
        )


def has_marks(function: TracedFunction) -> bool:
    """Returns whether something in a function is marked with a stage."""
    return any(pipelines.stages_in_marks(eqn) for eqn in function.closed.jaxpr.eqns)


def _assign_stages(function: TracedFunction) -> StageAssignment:
    """Assigns each equation to a stage; errors have a line of the user's."""
    if not has_marks(function):
        raise check.value_error(
            f"nothing in `{function.name}` says which stage it is in, so that it cannot be cut",
            "mark its parts with ipu.scopes.pipeline_stage(0), (1), ..., or pass stages=n",
        )
    try:
        return StageAssignment(function.closed.jaxpr, ())
    except PipelineError as error:
        if error.where:
            raise
        raise check.value_error(f"`{function.name}`: {error.what}", error.fix) from error


def list_argnums(argnums: int | Sequence[int], argument: str) -> tuple[int, ...]:
    """Returns the numbers of arguments as a tuple."""
    several = argnums if isinstance(argnums, (list, tuple)) else (argnums,)
    return tuple(check.require_integer(number, argument) for number in several)
