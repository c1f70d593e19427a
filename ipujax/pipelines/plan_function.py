"""`ipu.plan`: the fastest pipeline of a loss function, and the lines at which it is cut."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from ipujax.ground import PlanError, api_boundary
from ipujax.pipelines.model_losses import PlannedModel, is_model, loss_of_model
from ipujax.pipelines.pipeline_stages import Pytree, name_definition_line
from ipujax.pipelines.segment_costs import (
    Segment,
    SegmentedFunction,
    cut_into_segments,
    join_lines,
)
from ipujax.pipelines.staged_gradients import ValueAndGrad
from ipujax.pipelines.staged_settings import StagedSettings, has_marks
from ipujax.pipelines.traced_function import trace_micro_batch
from ipujax.planner import (
    Costs,
    Plan,
    SearchArguments,
    check,
    find_plan,
    read_given_cuts,
    read_search_arguments,
)
from lowering import machine

_COSTS = ("model", "measured")


@check.guard
@api_boundary
def plan(
    fun: Callable[..., Pytree],
    *args: Pytree,
    ipus: int,
    micro_batches: int | Sequence[int],
    has_aux: bool = False,
    argnums: int | Sequence[int] = 0,
    batch_argnums: int | Sequence[int] | None = None,
    schedules: Sequence[str] | None = None,
    recompute: Sequence[bool] = (False, True),
    offload: Sequence[bool] = (False, True),
    replicas: Sequence[int] = (1,),
    costs: str | Costs = "model",
    memory: float | Sequence[float] | None = None,
    objective: str = "time",
    budget_seconds: float = 60.0,
    consider: Sequence[Mapping[str, Any]] = (),
) -> Plan:
    """Plans the pipeline of a loss function: its cut, schedule, micro-batches and recomputation.

    For example::

        plan = ipu.plan(loss_fn, params, batch, ipus=4, micro_batches=(8, 16, 32))
        print(plan)
        grad_fn = ipu.pipelining_ops.value_and_grad(loss_fn, **plan.arguments)

    A model of another library is planned with its loss, as `ipu.plan(model, loss, x, y, ...)`: that
    plans `planning.loss_of_model(model, loss)`, and differentiates its trained variables.

    The function is cut between its products, where the fewest bytes pass, and a `lax.scan` over
    stacked layers between its iterations. Among all cuts at these places the plan's is the fastest
    under the costs, if `plan.proven` says so.

    Args:
      fun: the loss function, as for `value_and_grad`, without marks of stages; or a `Model` of
        `ipu.frontends`.
      args: its arguments, of the whole batch: arrays, or `jax.ShapeDtypeStruct` in their place.
        After a model its loss, a function of the outputs and the labels; the input or a tuple of
        them; the labels.
      ipus: how many IPUs there are, of all replicas together.
      micro_batches: the number of micro-batches of an update, or several to choose from; the batch
        is split into as many.
      has_aux: whether the function returns `(loss, aux)`.
      argnums: the positions of the arguments to differentiate.
      batch_argnums: the positions of those to split; None for all others.
      schedules: the registered names of the schedules to choose from; None for all.
      recompute: whether stages may, or must, compute activations again.
      offload: whether what waits for the backward pass may, or must, go to streaming memory, where
        there is one: on an IPU of the machine model, or by your own costs.
      replicas: the numbers of replicas to choose from; each takes its share of the micro-batches.
      costs: "model" asks the machine model of an IPU, and runs nothing; "measured" times each
        distinct segment on JAX's first device; or `planning.Costs` of your own for the segments
        that `planning.segments` lists, which then hold for each number of micro-batches.
      memory: bytes of each IPU, one number or one for each. None is the memory of an IPU under the
        machine model, and no limit otherwise.
      objective: what to make as small as possible: "time", the seconds of an update.
      budget_seconds: how long to search after the costs are known.
      consider: cuts of your own to compare with, as for `planning.search`.

    Raises:
      PlanError: (a `ValueError`) wrong arguments, a function with marks of stages, costs of another
        number of segments, no schedule with such numbers; or no plan that fits in memory, with the
        nearest.
      PipelineError: (a `ValueError`) a function that cannot be cut, or a batch that does not divide
        into the micro-batches.
    """
    if is_model(fun):
        fun, args = _take_model(fun, args)
    arguments = read_plan_arguments(
        costs,
        objective,
        ipus=ipus,
        micro_batches=micro_batches,
        schedules=schedules,
        recompute=recompute,
        offload=offload,
        replicas=replicas,
        memory=memory,
        budget_seconds=budget_seconds,
    )
    given = read_given_cuts(consider, arguments)
    functions: dict[int, SegmentedFunction] = {}
    costs_of_count: dict[int, Costs] = {}
    for count in arguments.micro_batches:
        function = functions[count] = segment_call(
            fun, args, count, has_aux=has_aux, argnums=argnums, batch_argnums=batch_argnums
        )
        _require_places_to_cut(function, arguments)
        costs_of_count[count] = choose_costs(costs, function)
    try:
        plan = find_plan(costs_of_count, arguments.restart(), given)
    except PlanError as error:
        if error.nearest is not None:
            error.nearest = _name_lines(error.nearest, functions[error.nearest.micro_batches])
        raise
    return _name_lines(plan, functions[plan.micro_batches])


def read_plan_arguments(
    costs: object, objective: object, *, memory: float | Sequence[float] | None, **choices: Any
) -> SearchArguments:
    """Checks what a plan may be chosen from, and by what.

    Args:
      costs: as for `plan`.
      objective: as for `plan`.
      memory: as for `plan`.
      choices: the other arguments of a search.

    Raises:
      PlanError: (a `ValueError`) one that is wrong.
    """
    check.require_one_of(objective, ("time",), "objective")
    if not isinstance(costs, Costs):
        check.require_one_of(costs, _COSTS, "costs")
    if memory is None and costs == "model":
        memory = float(machine.IPU2.tiles_per_ipu * machine.IPU2.usable_bytes_per_tile)
    return read_search_arguments(memory=memory, **choices)


@check.guard
@api_boundary
def segments(
    fun: Callable[..., Pytree],
    *args: Pytree,
    micro_batches: int = 1,
    has_aux: bool = False,
    argnums: int | Sequence[int] = 0,
    batch_argnums: int | Sequence[int] | None = None,
) -> tuple[Segment, ...]:
    """Lists the segments of a loss function, at whose ends `ipu.plan` may cut it.

    `planning.Costs` for the function has an entry for each. The arguments are those of `ipu.plan`.

    Raises:
      PipelineError: (a `ValueError`) a function that cannot be cut, or a batch that does not divide
        into the micro-batches.
    """
    if is_model(fun):
        fun, args = _take_model(fun, args)
    function = segment_call(
        fun, args, micro_batches, has_aux=has_aux, argnums=argnums, batch_argnums=batch_argnums
    )
    return function.segments


def _take_model(
    model: PlannedModel, args: Sequence[Any]
) -> tuple[Callable[..., Pytree], tuple[Pytree, ...]]:
    """Returns the loss function of a model, and the arguments to plan it with."""
    if len(args) != 3:
        raise check.value_error(
            f"a model is planned with its loss, its inputs and its labels: here are {len(args)} "
            "arguments after it",
            "write ipu.plan(model, loss, inputs, labels, ipus=..., micro_batches=...)",
        )
    loss, *batch = args
    return loss_of_model(model, loss), (model.split(model.variables)[0], *batch)


def segment_call(
    fun: Callable[..., Pytree],
    args: Sequence[Pytree],
    micro_batches: int,
    *,
    has_aux: bool = False,
    argnums: int | Sequence[int] = 0,
    batch_argnums: int | Sequence[int] | None = None,
) -> SegmentedFunction:
    """Traces a function on one micro-batch, and cuts it into segments; runs nothing.

    The arguments are those of `plan`.
    """
    settings = StagedSettings(
        function=fun, micro_batches=micro_batches, batch_argnums=batch_argnums
    )
    wrapped = ValueAndGrad(settings, argnums, has_aux, "mean")
    leaves, structure = jax.tree.flatten(tuple(args))
    numbers = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.ShapeDtypeStruct)]
    segmented: list[SegmentedFunction] = []

    def trace(*values: jax.Array) -> None:
        for number, value in zip(numbers, values, strict=True):
            leaves[number] = value
        arguments = wrapped.list_arguments(structure.unflatten(leaves), {})
        function = trace_micro_batch(fun, arguments, has_loss=True, has_aux=has_aux)
        if has_marks(function):
            raise check.value_error(
                f"`{function.name}` has marks of stages, which a plan would not follow",
                "leave out the `with ipu.scopes.pipeline_stage(...)`, and let the plan cut it",
            )
        segmented.append(cut_into_segments(function))

    with name_definition_line(fun):
        jax.eval_shape(trace, *(leaves[number] for number in numbers))
    return segmented[0]


def _require_places_to_cut(function: SegmentedFunction, arguments: SearchArguments) -> None:
    """Raises an error where a function of one segment is to be cut over several IPUs."""
    can_be_cut = len(function.segments) > 1
    if can_be_cut or arguments.ipus // max(arguments.replicas) < 2:
        return
    segment = function.segments[0]
    error = check.value_error(
        f"`{function.function.name}` cannot be cut over {arguments.ipus} IPUs: there is no "
        "place between two of its products, nor between iterations over layers",
        "cut loops by hand into several, or make them a lax.scan over stacked layers; or plan it "
        "for ipus=1, or with replicas",
    )
    error.where = join_lines(segment.first, segment.last)
    raise error


def choose_costs(
    costs: str | Costs, function: SegmentedFunction, *, differentiates: bool = True
) -> Costs:
    """Returns the costs of a function's segments, as `costs` of `plan` says.

    Raises:
      PlanError: (a `ValueError`) costs of another number of segments.
    """
    if not isinstance(costs, Costs):
        is_measured = costs == "measured"
        return function.compute_costs(are_measured=is_measured, differentiates=differentiates)
    if len(costs) != len(function.segments):
        raise check.value_error(
            f"the costs are of {len(costs)} segments, and `{function.function.name}` has "
            f"{len(function.segments)}",
            "give an entry for each that ipu.planning.segments lists",
        )
    return costs


def _name_lines(plan: Plan, function: SegmentedFunction) -> Plan:
    """Adds to a plan the source lines of its stages, and the digest of its function."""
    parts = function.segments
    stages = tuple(
        dc.replace(
            stage,
            first=parts[stage.segments[0]].first or parts[stage.segments[0]].scope,
            last=parts[stage.segments[1] - 1].last or parts[stage.segments[1] - 1].scope,
        )
        for stage in plan.stages
    )
    return dc.replace(plan, stages=stages, digest=function.traced.digest)
