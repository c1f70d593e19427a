"""The fastest cut of a pipeline, planned from the cycles of its parts, and modelled."""

from __future__ import annotations

import dataclasses as dc

from ipujax.planner import Costs, search
from ipujax.report.advice.change import Case
from lowering import jaxpr, machine, pipelines, schedules, structure_key, variants

_BUDGET_SECONDS = 2.0


@dc.dataclass(frozen=True, slots=True)
class BetterCut:
    """A cut of a pipeline into as many stages as it has.

    Attributes:
      starts: the segments at which the stages after the first begin, as `stages` takes them.
      cycles: modelled cycles of a call.
    """

    starts: tuple[int, ...]
    cycles: int


def find_better_cut(case: Case, profile: machine.Profile) -> BetterCut | None:
    """Finds the fastest cut of a program's pipeline, if it is another one, and fits in memory.

    Only a pipeline that a user cuts by the argument `stages` is planned, whose segments are the
    parts of the program between its products: a loop over layers is one product here, and several
    segments there.

    Args:
      case: the program as it is.
      profile: its modelled profile.
    """
    pipeline = _find_pipeline_of_segments(case)
    if pipeline is None:
        return None
    # What is cut is a traced function, whose primitives may not support it: their rules may raise
    # any error, and the report is to be written all the same.
    try:
        parts = _plan_parts(pipeline, profile.target)
        if parts is None:
            return None
        changed = case.with_function_change(lambda _: pipeline.cut_before(parts)).model_profile()
    except (TypeError, ValueError, KeyError, NotImplementedError):
        return None
    if changed is None or not changed.memory.fits:
        return None
    return BetterCut(parts[1:], int(changed.cycles))


def describe_plan_call(case: Case, micro_batches: int) -> str:
    """Returns the call that plans and runs a pipeline whose cut `find_better_cut` does not know.

    It has a loop over layers, several stages on an IPU, or tasks for gradients of weights alone.

    Args:
      case: the program as it is.
      micro_batches: those of an update.

    Returns:
      "" where `find_better_cut` knows, or `value_and_grad` does not cut the pipeline.
    """
    specs = [] if case.source is None else variants.pipelines_of(case.source.closed)
    is_cut = len(specs) == 1 and specs[0].training and specs[0].segments > 0
    if not is_cut or _find_pipeline_of_segments(case) is not None:
        return ""
    (spec,) = specs
    ipus = len({ipu for group in spec.ipus for ipu in group})
    name = spec.name if spec.name.isidentifier() else "loss_fn"
    plan = f"ipu.plan({name}, *arguments, ipus={ipus}, micro_batches={micro_batches})"
    return f"value_and_grad({name}, **{plan}.arguments)"


def _find_pipeline_of_segments(case: Case) -> variants.PipelineToCut | None:
    """Returns a pipeline whose parts are the segments that a user may cut between, if it is one."""
    if case.source is None:
        return None
    pipeline = variants.find_pipeline_to_cut(case.source.closed)
    if pipeline is None or len(pipeline.starts) != pipeline.spec.segments:
        return None
    return None if _name_schedule(pipeline.spec) is None else pipeline


def _name_schedule(spec: pipelines.PipelineSpec) -> str | None:
    """Returns the registered name of a schedule that does not split backward passes; or None."""
    known = (s for s in schedules.list_schedules() if not s.splits_backward)
    return next((s.name for s in known if s.build is spec.schedule), None)


def _plan_parts(pipeline: variants.PipelineToCut, target: machine.Target) -> tuple[int, ...] | None:
    """Returns the parts that stages begin with; None for those of now, or fewer stages."""
    spec = pipeline.spec
    name = _name_schedule(spec)
    if name is None:
        return None
    plan = search(
        _cost_parts(pipeline, target),
        ipus=spec.stages,
        micro_batches=pipeline.micro_batches,
        schedules=(name,),
        recompute=(False,),
        offload=(False,),
        budget_seconds=_BUDGET_SECONDS,
    )
    parts = (0, *plan.cut_points)
    return None if len(parts) != spec.stages or parts == pipeline.parts_of_stages else parts


def _cost_parts(pipeline: variants.PipelineToCut, target: machine.Target) -> Costs:
    """Returns the costs of a pipeline's parts by the machine model; equal ones are costed once."""
    known: dict[object, float] = {}

    def cost(closed: jaxpr.ClosedJaxpr) -> float:
        key = structure_key(closed)
        if key not in known:
            known[key] = machine.estimate_function_cycles(closed, target) / target.clock_hz
        return known[key]

    parts = pipeline.list_parts()
    links = target.links
    return Costs(
        forward=[cost(forward) for forward, _ in parts],
        backward=[cost(backward) for _, backward in parts],
        cut_bytes=pipeline.bytes_before[1:],
        bytes_per_second=links.bytes_per_second * min(links.to_neighbour, links.along),
        latency=machine.INTER_IPU_CYCLES / target.clock_hz,
    )
