"""Variants of a traced function, as if the user had asked for something else.

The variants have the same arguments; they serve to model what a change would gain, and never run.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    inline_jitted_calls,
    rewrite_equations,
    walk_equations,
)
from lowering.jaxprs import replace_float32_by_float16 as replace_float32_by_float16
from lowering.ops import PipelineSpec, TaskSpec, is_task, load_p, store_p
from lowering.passes.plan_pipelines import is_pipeline
from lowering.pipelines import FlatPipeline, ShardedBody, StageMemory
from lowering.schedules import Schedule, ScheduleError, build, simulate


@dc.dataclass(frozen=True, slots=True)
class Recut:
    """A function whose pipeline is cut into other stages.

    Attributes:
      closed: the function.
      ipus: the number of IPUs of a replica.
      micro_batches: the number per weight update, which may have to be larger than it was.
      before: how many products and convolutions each stage had, going forward.
      after: the same as it is cut now.
    """

    closed: ClosedJaxpr
    ipus: int
    micro_batches: int
    before: tuple[int, ...]
    after: tuple[int, ...]


def pipelines_of(closed: ClosedJaxpr) -> list[PipelineSpec]:
    """Returns the specifications of all pipelines of a function."""
    return [eqn.params["pipeline"] for eqn in walk_equations(closed.jaxpr) if is_pipeline(eqn)]


def change_pipeline_specs(
    closed: ClosedJaxpr, change: Callable[[PipelineSpec], PipelineSpec]
) -> ClosedJaxpr:
    """Returns the function with the specifications of its pipelines changed."""
    return _change_param(closed, is_pipeline, "pipeline", change)


def task_specs_of(closed: ClosedJaxpr) -> list[TaskSpec]:
    """Returns the specifications of all tasks of a function's pipelines."""
    return [eqn.params["spec"] for eqn in walk_equations(closed.jaxpr) if is_task(eqn)]


def move_values_to_other_memory(closed: ClosedJaxpr, kind: str, **attributes: bool) -> ClosedJaxpr:
    """Returns the function, which keeps one kind of value in another memory.

    Args:
      closed: the function.
      kind: as in `ops.Storage.what`.
      attributes: other attributes of `ops.Storage`.
    """

    def is_storage_of_kind(eqn: JaxprEqn) -> bool:
        return eqn.primitive in (store_p, load_p) and eqn.params["storage"].what == kind

    return _change_param(
        closed, is_storage_of_kind, "storage", lambda storage: dc.replace(storage, **attributes)
    )


def _change_param(
    closed: ClosedJaxpr,
    test: Callable[[JaxprEqn], bool],
    param: str,
    change: Callable[[Any], Any],
) -> ClosedJaxpr:
    """Returns the function with one parameter of some equations changed."""

    def replace_param(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
        rewriter.keep_equation(eqn.replace(params={**eqn.params, param: change(eqn.params[param])}))

    return rewrite_equations(closed, EquationFinder(test), replace_param)


def recut_pipeline(closed: ClosedJaxpr, ipus: int, copies: float, recomputes: bool) -> Recut | None:
    """Returns the function with its pipeline cut into a stage per IPU, as equal as can be.

    Args:
      closed: a function.
      ipus: the number of IPUs, a power of two.
      copies: how many arrays of a variable's size there are, with gradients and optimizer state.
      recomputes: whether only the inputs of stages wait for the backward pass.

    Returns:
      None unless there is one pipeline that trains, whose stages are on IPUs 0, 1, 2, ... Further
      ones, such as a loss on the IPU of the embedding whose table it reads, stay as they are.
    """
    eqn = _find_single_training_pipeline(closed)
    if eqn is None:
        return None
    spec: PipelineSpec = eqn.params["pipeline"]
    num_different_ipus = len({of_stage for of_stage in spec.ipus})
    main_stages, further_stages = spec.ipus[:num_different_ipus], spec.ipus[num_different_ipus:]
    new_ipus_of_last_stage: dict[tuple[int, ...], tuple[int, ...]] = {
        (0,): (0,),
        (num_different_ipus - 1,): (ipus - 1,),
    }
    if main_stages != tuple((n,) for n in range(num_different_ipus)) or not all(
        stage_ipus in new_ipus_of_last_stage for stage_ipus in further_stages
    ):
        return None
    ipus_of_stages = (
        *((n,) for n in range(ipus)),
        *(new_ipus_of_last_stage[each] for each in further_stages),
    )
    spec = dc.replace(spec, stages=len(ipus_of_stages), ipus=ipus_of_stages)
    flat_pipeline = FlatPipeline(eqn.params["body"])
    schedule = _schedule_pipeline(spec, eqn.params["count"])
    if schedule is None:
        return None
    depths = [depth + 1 for depth in simulate(schedule).fifo_depth]
    starts = flat_pipeline.choose_balanced_starts(
        ipus, StageMemory(copies, depths, recomputes), len(further_stages)
    )
    if starts is None or (
        num_different_ipus == ipus and starts == flat_pipeline.starts_of_user_stages()
    ):
        return None
    params = {
        "body": flat_pipeline.build_tasks_of_new_stages(starts, [ipu for (ipu,) in ipus_of_stages]),
        "pipeline": spec,
        "count": schedule.micro_batches,
    }
    return Recut(
        _change_params_of_equation(closed, eqn, params),
        ipus,
        schedule.micro_batches,
        flat_pipeline.count_products(flat_pipeline.starts_of_user_stages()),
        flat_pipeline.count_products(starts),
    )


class PipelineToCut:
    """The only pipeline of a function, which trains, with stage i alone on IPU i.

    Args:
      closed: the function.
      eqn: the pipeline.

    Attributes:
      spec: its specification.
      micro_batches: those of a weight update.
      starts: the forward equations at which its parts begin: one for each product or convolution.
      bytes_before: the bytes of forward values that pass in front of each part.
    """

    def __init__(self, closed: ClosedJaxpr, eqn: JaxprEqn):
        self._closed, self._eqn = closed, eqn
        self.spec: PipelineSpec = eqn.params["pipeline"]
        self.micro_batches: int = eqn.params["count"]
        self._flat = FlatPipeline(eqn.params["body"])
        self.starts = self._flat.starts_of_products()
        crossing = self._flat.crossing_bytes()
        self.bytes_before = tuple(int(crossing[start]) for start in self.starts)

    @property
    def parts_of_stages(self) -> tuple[int, ...]:
        """The parts at which the stages begin, as they are now."""
        return tuple(
            bisect.bisect_right(self.starts, start) - 1
            for start in self._flat.starts_of_user_stages()
        )

    def list_parts(self) -> list[tuple[ClosedJaxpr, ClosedJaxpr]]:
        """Lists the forward and the backward pass of each part."""
        ends = (*self.starts[1:], len(self._flat.forward))
        return [
            (self._flat.take_forward(start, end), self._flat.take_backward(start, end))
            for start, end in zip(self.starts, ends, strict=True)
        ]

    def cut_before(self, parts: Sequence[int]) -> ClosedJaxpr:
        """Returns the function with stages that begin at these parts, the first of which is 0."""
        starts = [self.starts[part] for part in parts]
        body = self._flat.build_tasks_of_new_stages(starts, range(len(starts)))
        return _change_params_of_equation(self._closed, self._eqn, {"body": body})


def find_pipeline_to_cut(closed: ClosedJaxpr) -> PipelineToCut | None:
    """Finds the only pipeline of a function, if it trains, and has stage i alone on IPU i."""
    eqn = _find_single_training_pipeline(closed)
    if eqn is None:
        return None
    spec: PipelineSpec = eqn.params["pipeline"]
    is_simple = spec.ipus == tuple((number,) for number in range(spec.stages))
    return PipelineToCut(closed, eqn) if is_simple else None


def _find_single_training_pipeline(closed: ClosedJaxpr) -> JaxprEqn | None:
    eqns = [eqn for eqn in walk_equations(closed.jaxpr) if is_pipeline(eqn)]
    return eqns[0] if len(eqns) == 1 and eqns[0].params["pipeline"].training else None


def _change_params_of_equation(
    closed: ClosedJaxpr, changed: JaxprEqn, params: Mapping[str, Any]
) -> ClosedJaxpr:
    """Returns the function with some parameters of one equation changed."""
    return rewrite_equations(
        closed,
        EquationFinder(lambda eqn: eqn is changed),
        lambda rewriter, eqn: rewriter.keep_equation(eqn.replace(params={**eqn.params, **params})),
    )


@dc.dataclass(frozen=True, slots=True)
class Resharded:
    """A function whose layers are distributed over the IPUs of a replica.

    Attributes:
      closed: the function, with marks of shards.
      ipus: the number of IPUs of a replica.
      products: the number of products and convolutions of the forward pass on each IPU.
    """

    closed: ClosedJaxpr
    ipus: int
    products: tuple[int, ...]


def distribute_layers(closed: ClosedJaxpr, ipus: int) -> Resharded | None:
    """Returns the function with its layers on several IPUs, as if `ipu_shard` were around them.

    Args:
      closed: a function.
      ipus: the number of IPUs, a power of two.

    Returns:
      None for functions with pipelines, which `recut_pipeline` cuts, and for those with fewer
      layers. Shards that the function has already are left out of account.
    """
    if pipelines_of(closed):
        return None
    opened = inline_jitted_calls(closed)
    body = ShardedBody.find_layers_in(opened)
    starts = None if body is None else body.choose_starts_of_ipus(ipus)
    if body is None or starts is None:
        return None
    return Resharded(
        body.mark_equations_with_ipu_of_layer(opened, starts), ipus, body.count_products(starts)
    )


def _schedule_pipeline(spec: PipelineSpec, min_micro_batches: int) -> Schedule | None:
    """Schedules a pipeline for this many micro-batches, or the next number that it allows."""
    interval = 2 * spec.stages
    for micro_batches in (min_micro_batches, -(-min_micro_batches // interval) * interval):
        with contextlib.suppress(ScheduleError):
            return build(
                spec.schedule,
                stages=spec.stages,
                micro_batches=micro_batches,
                training=True,
                ipus=spec.ipus,
            )
    return None
