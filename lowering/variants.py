"""A traced function as if the user had asked for something else: for models of what that brings.

The results are functions of the same arguments; they are lowered and modelled, never run.
"""

from __future__ import annotations

import contextlib
import dataclasses as dc
from collections.abc import Callable
from typing import Any

from lowering.equations import walk
from lowering.halves import with_halves as with_halves
from lowering.jaxpr import ClosedJaxpr, JaxprEqn
from lowering.ops.storage import load_p, store_p
from lowering.ops.tasks import PipelineSpec
from lowering.passes.plan_pipelines import is_pipeline
from lowering.passes.rewrite import Anywhere, Rewriter, jits_opened, rewritten
from lowering.pipelines.order import Need
from lowering.pipelines.recut import Flat
from lowering.pipelines.reshard import ShardedBody
from lowering.schedules import Schedule, ScheduleError, build, simulate


@dc.dataclass(frozen=True, slots=True)
class Recut:
    """A function whose pipeline is cut into other stages.

    Attributes:
      closed: the function.
      ipus: of a replica.
      micro_batches: of a weight update, which may have to be more than they were.
      before: how many products and convolutions each stage had, going forward.
      after: the same as it is cut now.
    """

    closed: ClosedJaxpr
    ipus: int
    micro_batches: int
    before: tuple[int, ...]
    after: tuple[int, ...]


def pipelines_of(closed: ClosedJaxpr) -> list[PipelineSpec]:
    """What all pipelines of a function are asked for."""
    return [eqn.params["pipeline"] for eqn in walk(closed.jaxpr) if is_pipeline(eqn)]


def with_pipelines(
    closed: ClosedJaxpr, change: Callable[[PipelineSpec], PipelineSpec]
) -> ClosedJaxpr:
    """The function, whose pipelines are asked for something else."""
    return _changed(closed, is_pipeline, "pipeline", change)


def with_storage(closed: ClosedJaxpr, what: str, **asked: bool) -> ClosedJaxpr:
    """The function, which keeps something elsewhere.

    Args:
      closed: the function.
      what: as in `ops.Storage.what`.
      asked: other attributes of `ops.Storage`.
    """

    def is_it(eqn: JaxprEqn) -> bool:
        return eqn.primitive in (store_p, load_p) and eqn.params["storage"].what == what

    return _changed(closed, is_it, "storage", lambda storage: dc.replace(storage, **asked))


def _changed(
    closed: ClosedJaxpr,
    test: Callable[[JaxprEqn], bool],
    name: str,
    change: Callable[[Any], Any],
) -> ClosedJaxpr:
    """The function with another value of one parameter of some equations."""

    def put(rewriter: Rewriter, eqn: JaxprEqn) -> None:
        rewriter.keep(eqn.replace(params={**eqn.params, name: change(eqn.params[name])}))

    return rewritten(closed, Anywhere(test), put)


def with_stages(closed: ClosedJaxpr, ipus: int, copies: float, recomputes: bool) -> Recut | None:
    """The function, whose pipeline has a stage on each of so many IPUs, as equal as can be.

    Args:
      closed: a function.
      ipus: how many, a power of two.
      copies: how often a variable is there, with its gradients and what the optimizer keeps.
      recomputes: whether only the inputs of stages wait for the backward pass.

    Returns:
      None unless there is one pipeline that trains, whose stages are on IPUs 0, 1, 2, ... Further
      ones, such as a loss on the IPU of the embedding whose table it reads, stay as they are.
    """
    eqns = [eqn for eqn in walk(closed.jaxpr) if is_pipeline(eqn)]
    spec: PipelineSpec | None = eqns[0].params["pipeline"] if len(eqns) == 1 else None
    if spec is None or not spec.training:
        return None
    own = len({of_stage for of_stage in spec.ipus})
    first, last = spec.ipus[:own], spec.ipus[own:]
    ends: dict[tuple[int, ...], tuple[int, ...]] = {(0,): (0,), (own - 1,): (ipus - 1,)}
    if first != tuple((n,) for n in range(own)) or not all(each in ends for each in last):
        return None
    places = (*((n,) for n in range(ipus)), *(ends[each] for each in last))
    spec = dc.replace(spec, stages=len(places), ipus=places)
    flat = Flat(eqns[0].params["body"])
    schedule = _schedule(spec, eqns[0].params["count"])
    if schedule is None:
        return None
    depths = [depth + 1 for depth in simulate(schedule).fifo_depth]
    starts = flat.best(ipus, Need(copies, depths, recomputes), len(last))
    if starts is None or (own == ipus and starts == flat.starts()):
        return None
    params = {
        **eqns[0].params,
        "body": flat.cut(starts, [ipu for (ipu,) in places]),
        "pipeline": spec,
        "count": schedule.micro_batches,
    }
    again = rewritten(
        closed,
        Anywhere(lambda eqn: eqn is eqns[0]),
        lambda rewriter, eqn: rewriter.keep(eqn.replace(params=params)),
    )
    return Recut(
        again, ipus, schedule.micro_batches, flat.products(flat.starts()), flat.products(starts)
    )


@dc.dataclass(frozen=True, slots=True)
class Resharded:
    """A function whose layers are shared out to the IPUs of a replica.

    Attributes:
      closed: the function, with marks of shards.
      ipus: of a replica.
      products: how many products and convolutions of the forward pass each IPU has.
    """

    closed: ClosedJaxpr
    ipus: int
    products: tuple[int, ...]


def with_shards(closed: ClosedJaxpr, ipus: int) -> Resharded | None:
    """The function, whose layers are on so many IPUs, as if `ipu_shard` were around each group.

    Args:
      closed: a function.
      ipus: how many, a power of two.

    Returns:
      None for functions with pipelines, whose stages `with_stages` cuts, and for those with fewer
      layers. Shards that the function has already are left out of account.
    """
    if pipelines_of(closed):
        return None
    opened = jits_opened(closed)
    body = ShardedBody.of(opened)
    starts = None if body is None else body.starts(ipus)
    if body is None or starts is None:
        return None
    return Resharded(body.mark(opened, starts), ipus, body.products(starts))


def _schedule(spec: PipelineSpec, count: int) -> Schedule | None:
    """For so many micro-batches, or the next number of them with which stages can take turns."""
    turns = 2 * spec.stages
    for micro_batches in (count, -(-count // turns) * turns):
        with contextlib.suppress(ScheduleError):
            return build(
                spec.schedule,
                stages=spec.stages,
                micro_batches=micro_batches,
                training=True,
                ipus=spec.ipus,
            )
    return None
