"""Plans of models whose parts are known: the layers of a model, or the nodes of a graph.

A front end marks each part with its number, as if it were a stage of its own. The plan cuts between
parts alone, so that it says a stage for each, as users of the front end do.
"""

from __future__ import annotations

import bisect
import dataclasses as dc
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax

from ipujax.ground import PlanError
from ipujax.pipelines.function_segments import (
    equations_of_stages,
    inline_calls,
    list_segments,
    list_steps,
)
from ipujax.pipelines.micro_batch_arguments import Role
from ipujax.pipelines.pipeline_stages import Pytree
from ipujax.pipelines.plan_function import choose_costs, read_plan_arguments
from ipujax.pipelines.segment_costs import SegmentedFunction, build_segments
from ipujax.pipelines.stage_assignment import StageAssignment
from ipujax.pipelines.staged_settings import StagedSettings
from ipujax.pipelines.traced_function import TracedFunction, trace_micro_batch
from ipujax.planner import Costs, Plan, check, find_plan, read_given_cuts
from lowering import pipelines

_DEFAULTS: Mapping[str, Any] = {
    "schedules": None, "offload": (False,), "replicas": (1,), "budget_seconds": 60.0,
}  # fmt: skip
_OF_INFERENCE = ("gpipe",)  # all its forward passes come first; here nothing follows


@dc.dataclass(frozen=True)
class PlannedUnits:
    """A plan of a model's parts.

    Attributes:
      plan: the plan; its stages are named by the parts that they begin and end with.
      starts: the part that each stage begins with; the first is 0.
    """

    plan: Plan
    starts: tuple[int, ...]

    def stage_of_unit(self, number: int) -> int:
        """Returns the stage of a part."""
        return bisect.bisect_right(self.starts, number) - 1


def plan_units(
    fun: Callable[..., Pytree],
    args: Sequence[Pytree],
    names: Sequence[str],
    *,
    split: Collection[int],
    differentiates: bool = True,
    shares_variables: bool = True,
    costs: str | Costs = "model",
    objective: str = "time",
    memory: float | Sequence[float] | None = None,
    micro_batches: int,
    consider: Sequence[Mapping[str, Any]] = (),
    **choices: Any,
) -> PlannedUnits:
    """Plans a function of one micro-batch whose equations are marked with the numbers of parts.

    Args:
      fun: returns the loss, or any outputs if there is no backward pass.
      args: its arguments: trained variables; others; what is different for each micro-batch. Arrays
        or shapes.
      names: of the parts, for people.
      split: the positions of the arguments that are different for each micro-batch.
      differentiates: whether there is a backward pass.
      shares_variables: whether a variable is on one IPU, so that parts which read the same one are
        in the same stage.
      costs: as for `plan`.
      objective: as for `plan`.
      memory: as for `plan`.
      micro_batches: the micro-batches of an update.
      consider: as for `plan`.
      choices: `ipus` and `recompute`, and what else `planning.search` takes: by default all
        schedules, one replica, nothing offloaded, and a minute.

    Raises:
      PlanError: (a `ValueError`) wrong arguments, or no plan that fits in memory.
      PipelineError: (a `ValueError`) parts that are not in order.
    """
    choices = {**_DEFAULTS, **choices}
    if not differentiates:
        choices["recompute"] = (False,)
        choices["schedules"] = choices["schedules"] or _OF_INFERENCE
    arguments = read_plan_arguments(
        costs, objective, memory=memory, micro_batches=micro_batches, **choices
    )
    given_cuts = read_given_cuts(consider, arguments)
    function = _trace_function(fun, args, split, differentiates)
    segmented, starts = _cut_into_units(function, len(names), shares_variables)
    segment_costs = choose_costs(costs, segmented, differentiates=differentiates)
    try:
        plan = find_plan({micro_batches: segment_costs}, arguments.restart(), given_cuts)
    except PlanError as error:
        if error.nearest is not None:
            error.nearest = _name_parts(error.nearest, starts, names).plan
        raise
    return _name_parts(plan, starts, names)


def _trace_function(
    fun: Callable[..., Pytree],
    args: Sequence[Pytree],
    split: Collection[int],
    differentiates: bool,
) -> TracedFunction:
    """Traces a function of one micro-batch; runs nothing."""
    settings = StagedSettings(function=fun, micro_batches=1, batch_argnums=tuple(split))
    leaves, structure = jax.tree.flatten(tuple(args))
    traced: list[TracedFunction] = []

    def trace(*leaves: jax.Array) -> None:
        trained = (0,) if differentiates else ()
        arguments = settings.assign_roles(structure.unflatten(leaves), {}, trained, trained)
        traced.append(trace_micro_batch(fun, arguments, has_loss=differentiates, has_aux=False))

    jax.eval_shape(trace, *leaves)
    return traced[0]


def _cut_into_units(
    traced: TracedFunction, count: int, shares_variables: bool
) -> tuple[SegmentedFunction, list[int]]:
    """Cuts a function into segments between its parts.

    Returns:
      The segments, and the part that each begins with.
    """
    function = inline_calls(traced)
    leaves = function.leaves_by_variable()
    elements = [v for v, leaf in leaves.items() if leaf.role in (Role.SPLIT, Role.FOLDED)]
    units = StageAssignment(function.closed.jaxpr, elements, count)
    eqns = sorted(equations_of_stages(function), key=lambda eqn: units.of[id(eqn)])
    if not eqns:
        raise check.value_error(
            f"`{function.name}` has nothing to plan: nothing in it computes with variables",
            "plan a model with layers that have weights",
        )
    together = _find_units_with_shared_variables(function, units) if shares_variables else set()
    steps = list_steps(function, eqns)
    numbers = [units.of[id(step.eqn)] for step in steps]
    steps = [
        dc.replace(step, may_end=number < next_number and next_number not in together)
        for step, (number, next_number) in zip(
            steps, itertools.pairwise([*numbers, count]), strict=True
        )
    ]
    starts = list_segments(steps)
    segmented = build_segments(traced, function, steps, starts)
    return segmented, [0, *(numbers[start] for start in starts[1:])]


def _find_units_with_shared_variables(function: TracedFunction, units: StageAssignment) -> set[int]:
    """Returns the parts that must be in the stage of the part before them."""
    readers: dict[Any, list[int]] = {}
    for eqn in function.closed.jaxpr.eqns:
        if units.is_marked(eqn):
            for var in units.leaves.intersection(pipelines.unique_variables(eqn.invars)):
                readers.setdefault(var, []).append(units.of[id(eqn)])
    return {
        number for parts in readers.values() for number in range(min(parts) + 1, max(parts) + 1)
    }


def _name_parts(plan: Plan, starts: Sequence[int], names: Sequence[str]) -> PlannedUnits:
    """Returns a plan with the names of the parts that its stages begin and end with."""
    first_units = [starts[stage.segments[0]] for stage in plan.stages]
    stages = tuple(
        dc.replace(stage, first=names[first], last=names[end - 1])
        for stage, (first, end) in zip(
            plan.stages, itertools.pairwise([*first_units, len(names)]), strict=True
        )
    )
    return PlannedUnits(dc.replace(plan, stages=stages), tuple(first_units))
