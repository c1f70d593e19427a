"""Runs a pipeline and the unpipelined step on the same elements, and compares every number."""

from __future__ import annotations

import copy
import dataclasses as dc
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import pipelining_ops
from ipujax.cross_replica_ops import cross_replica_sum
from ipujax.driver.compiler import compile as ipu_compile
from ipujax.errors import PipelineError, PipelineTypeError
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.optimizers import IpuOptimizer, apply_gradients
from ipujax.pipelines.compared import Difference, Pair, PipelineCheck, compare, schedule_name
from ipujax.pipelines.settings import check_settings
from ipujax.pipelines.unpipelined import Element, Unpipelined
from ipujax.pipelines.values import check
from lowering import jaxpr

_REFERENCE = (
    "check_pipeline met this in the unpipelined step, which is plain JAX and has no device's seed: "
    "stages that draw must be given a seed or a key"
)


def check_pipeline(
    computational_stages: Sequence[Any],
    gradient_accumulation_count: int | None = None,
    *,
    reference: Callable[..., Any] | None = None,
    whole_batch: bool = False,
    batch: Any = None,
    schedules: Sequence[Any] | None = None,
    engine: str = "replay",
    rtol: float = 1e-4,
    atol: float = 1e-6,
    **arguments: Any,
) -> PipelineCheck:
    """Checks that a pipeline computes what the unpipelined step does; not for compiled code.

    Runs one weight update (or one execution, in inference) both ways, with queues of its own. The
    infeed's elements are put back, so that a training run may follow. Compared are the outputs
    and losses of all micro-batches; the accumulated gradients, as the pipeline's optimizer was
    given them; and what a plain call of the optimizer makes of these gradients.

    Args:
      computational_stages: as for `pipeline`.
      gradient_accumulation_count: as for `pipeline`.
      reference: the model as one function, called with what the first stage is. It returns the
        loss of a micro-batch, or (loss, outputs), outputs being those of the last stage; in
        inference, the outputs. By default, the stages one after the other under plain JAX, and
        the optimizer function's loss.
      whole_batch: the reference is called once, with the elements of all micro-batches joined
        along their first axes, and returns the loss of them all.
      batch: elements to use instead of the infeed's: a list of them, or one pytree in which each
        array has a leading axis of elements.
      schedules: check these, one after the other, in place of `pipeline_schedule`.
      engine: of `ipu.compile`. Replay is the one that follows the schedule.
      rtol: the largest difference that passes, as a part of an array's largest number ...
      atol: ... plus this.
      arguments: all others of `pipeline`, which may so be given the same dict. Of no effect are
        `repeat_count` and what is left out of the outfeed, or added up for it.

    Returns:
      A `PipelineCheck`; print it, or call its `raise_if_different()`.

    Raises:
      OutOfRangeError: (an `EOFError`) fewer elements than one weight update takes.
      PipelineError: (a `ValueError`) and its kin: arguments that `pipeline` would refuse, or a
        reference whose results do not fit.
    """
    given = _bound(computational_stages, gradient_accumulation_count, arguments)
    if not jaxpr.trace_state_clean():
        raise PipelineError(
            "check_pipeline was called in code that is being compiled",
            fix="call it before, with the same arguments",
        )
    settings = check_settings(given, jaxpr.current_user_line())
    if whole_batch and not (reference and settings.training):
        raise PipelineError("whole_batch needs a reference, and an optimizer_function")
    variables = jax.tree.map(jnp.asarray, given["variables"])
    inputs = jax.tree.map(jnp.asarray, list(given["inputs"] or []))
    unpipelined = Unpipelined(settings, variables, inputs, given["optimizer_state"], reference)
    case = _Case(given, unpipelined, whole_batch)
    source = _source(given["infeed_queue"], batch)
    chosen = [given["pipeline_schedule"]]
    if schedules is not None:
        chosen = check.iterable(schedules, "schedules", "schedules of pipelines")
    rows: list[Difference] = []
    replicas = 1
    for schedule in chosen:
        pairs, replicas = case.pairs(schedule, engine, source)
        rows += compare(schedule_name(schedule), pairs, rtol, atol)
    return PipelineCheck(tuple(rows), settings.count, replicas, settings.reduction, rtol, atol)


def _bound(stages: Any, count: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `pipeline`, with its defaults."""
    signature = inspect.signature(pipelining_ops.pipeline)
    try:
        bound = signature.bind(stages, count, **arguments)
    except TypeError as error:
        raise PipelineTypeError(
            f"check_pipeline takes the arguments of pipeline: {error}"
        ) from None
    bound.apply_defaults()
    return dict(bound.arguments)


# --- elements -------------------------------------------------------------------------------------


def _source(queue: IPUInfeedQueue | None, batch: Any) -> IPUInfeedQueue | None:
    """The queue that has the elements."""
    if batch is None or isinstance(batch, IPUInfeedQueue):
        return queue if batch is None else batch
    if not isinstance(batch, list):
        leaves, structure = jax.tree.flatten(batch)
        if not all(map(np.ndim, leaves)):
            raise check.other_than("arrays of stacked elements", batch, "`batch`")
        if len({len(leaf) for leaf in leaves}) > 1:
            raise PipelineError(
                f"the arrays of `batch` have {[len(leaf) for leaf in leaves]} elements",
                fix="stack as many elements in each, or give a list of elements",
            )
        batch = [jax.tree.unflatten(structure, row) for row in zip(*leaves, strict=True)]
    return IPUInfeedQueue(batch)


def _elements(queue: IPUInfeedQueue | None, count: int) -> list[Element]:
    """The queue's next elements, which stay in it."""
    if queue is None:
        return [((), {})] * count
    args, kwargs = queue.arguments()
    structure = jax.tree.structure((tuple(args), kwargs))
    rows = queue.rows(count, keep=True)
    return [jax.tree.unflatten(structure, [row[i] for row in rows]) for i in range(count)]


# --- both runs ------------------------------------------------------------------------------------


@dc.dataclass(frozen=True)
class _Pipelined:
    """What a pipeline gave.

    Attributes:
      outputs: of the last stage; the replicas' follow one another within each micro-batch.
      replicas: how many there are.
      variables: after the update.
      state: of the optimizer, after it.
      gradients: of replica 0.
      summed: the sum of all replicas' gradients.
    """

    outputs: list[Any]
    replicas: int
    variables: Any
    state: Any
    gradients: Any
    summed: Any


class _Recorder(IpuOptimizer):
    """Keeps the gradients that the weight update is given in the optimizer's state."""

    def init(self, params: Any) -> Any:
        """Nothing recorded yet."""
        return _zeros(params), _zeros(params), super().init(params)

    def apply_gradients(
        self, gradients: Any, state: Any, params: Any = None, *args: Any, **extra: Any
    ) -> Any:
        """As the wrapped optimizer does."""
        updates, inner = apply_gradients(self.wrapped, gradients, state[2], params, *args, **extra)
        own = jax.tree.map(lambda g, v: g.astype(_precise(v)), gradients, params)
        return updates, (own, jax.tree.map(cross_replica_sum, own), inner)


def _zeros(variables: Any) -> Any:
    """What a recorder holds before it has recorded anything."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, _precise(x)), variables)


def _precise(x: Any) -> Any:
    """The dtype in which gradients of a variable are recorded."""
    return jnp.promote_types(x.dtype, jnp.float32)


class _Case:
    """One pipeline to check."""

    def __init__(self, given: dict[str, Any], unpipelined: Unpipelined, whole_batch: bool):
        self.given, self.unpipelined, self.whole_batch = given, unpipelined, whole_batch
        self.settings = unpipelined.settings

    def pairs(
        self, schedule: Any, engine: str, source: IPUInfeedQueue | None
    ) -> tuple[list[Pair], int]:
        """(name, pipelined, reference) of all that is compared, and the number of replicas."""
        got, elements = self.run(schedule, engine, source)
        outputs = [jax.tree.map(lambda x, i=i: x[i], got.outputs) for i in range(len(elements))]
        if self.whole_batch:
            own = elements[:: got.replicas]
            elements = [jax.tree.map(lambda *xs: np.concatenate(xs), *own)]
            outputs = outputs[-1:]
        try:
            wanted = self.unpipelined.micro_batches(elements, outputs)
        except Exception as error:
            error.add_note(_REFERENCE)
            raise
        pairs = [*self.loss_pairs(got, wanted), *self.output_pairs(got, wanted)]
        if self.settings.training:
            pairs += [*self.gradient_pairs(got, wanted), *self.update_pairs(got)]
        return pairs, got.replicas

    # --- the pipeline -----------------------------------------------------------------------------

    def run(
        self, schedule: Any, engine: str, source: IPUInfeedQueue | None
    ) -> tuple[_Pipelined, list[Element]]:
        """Runs the pipeline once; also gives the elements that it took."""
        count = self.settings.count
        elements = _elements(source, count)
        fed = [e[1] or e[0] for e in elements]  # read lazily: what is added later comes as well
        outfeed = IPUOutfeedQueue()
        own: dict[str, Any] = {
            "infeed_queue": None if source is None else IPUInfeedQueue(fed),
            "outfeed_queue": outfeed,
            "optimizer_function": self.recording if self.settings.training else None,
            "pipeline_schedule": schedule,
            "repeat_count": 1,
            "outfeed_loss": False,
            "outfeed_mask": None,
            "accumulate_outfeed": False,
        }

        def checked_pipeline(variables: Any, state: Any, inputs: Any) -> Any:
            changed = {"variables": variables, "optimizer_state": state, "inputs": inputs}
            return pipelining_ops.pipeline(**{**self.given, **own, **changed})

        variables, state = self.unpipelined.variables, self.unpipelined.state
        if state is not None:
            state = (_zeros(variables), _zeros(variables), state)
        arguments = (variables, state, self.unpipelined.inputs)
        lowered = ipu_compile(checked_pipeline, engine=engine).lower(*arguments)
        replicas = lowered.program.replicas
        if replicas > 1:
            elements = _elements(source, count * replicas)
            fed += [e[1] or e[0] for e in elements[count:]]
        results = lowered.compile()(*arguments)
        outputs = outfeed.dequeue() if outfeed.enqueued else []
        several = 2 if replicas > 1 else 1  # axes of micro-batches and replicas
        outputs = jax.tree.map(lambda x: x.reshape(-1, *x.shape[several:]), outputs)
        if not self.settings.training:
            return _Pipelined(outputs, replicas, None, None, None, None), elements
        variables, (gradients, summed, state) = results
        return _Pipelined(outputs, replicas, variables, state, gradients, summed), elements

    def recording(self, *outputs: Any) -> pipelining_ops.OptimizerFunctionOutput:
        """The user's optimizer function, with a recorder around the optimizer."""
        output = copy.copy(self.unpipelined.optimizer(*outputs))
        output.opt = _Recorder(output.opt)
        return output

    # --- what is compared with what ---------------------------------------------------------------

    def loss_pairs(self, got: _Pipelined, wanted: Sequence[Any]) -> list[Pair]:
        """The losses."""
        if not self.settings.training:
            return []
        count = len(jax.tree.leaves(got.outputs)[0])
        rows = [jax.tree.map(lambda x, i=i: x[i], got.outputs) for i in range(count)]
        losses = self.unpipelined.losses(rows)
        if self.whole_batch:
            losses = self.unpipelined.reduced(losses[:: got.replicas])
        return [("loss", losses, np.stack([w[0] for w in wanted]).reshape(losses.shape))]

    def output_pairs(self, got: _Pipelined, wanted: Sequence[Any]) -> list[Pair]:
        """The last stage's outputs."""
        if wanted[0][1] is None or self.whole_batch:
            return []
        mine = [
            (f"output {number}{jax.tree_util.keystr(path)}", array)
            for number, output in enumerate(got.outputs)
            for path, array in jax.tree_util.tree_leaves_with_path(output)
        ]
        theirs = [jax.tree.leaves(w[1]) for w in wanted]
        if len(mine) != len(theirs[0]):
            raise PipelineError(
                f"the last stage has {len(mine)} output arrays, the reference {len(theirs[0])}",
                fix="let the reference return the outputs of the last stage, in their order",
            )
        columns = zip(*theirs, strict=True)
        return [(*m, np.stack(column)) for m, column in zip(mine, columns, strict=True)]

    def gradient_pairs(self, got: _Pipelined, wanted: Sequence[Any]) -> list[Pair]:
        """Gradients of replica 0, and where there are several, of all together."""
        whose = [("gradient", got.gradients, wanted[:: 1 if self.whole_batch else got.replicas], 1)]
        if got.replicas > 1 and not self.whole_batch:
            whose.append(("gradient over replicas", got.summed, wanted, got.replicas))
        pairs: list[Pair] = []
        for what, tree, micro_batches, replicas in whose:
            leaves = jax.tree.leaves(tree)
            for name, index in self.unpipelined.trained.items():
                each = np.stack([np.asarray(w[2][name], np.float64) for w in micro_batches])
                by_replica = each.reshape(-1, replicas, *each.shape[1:]).sum(axis=1)
                total = self.unpipelined.reduced(by_replica)
                pairs.append((f"{what} {name}".rstrip(), leaves[index], total))
        return pairs

    def update_pairs(self, got: _Pipelined) -> list[Pair]:
        """The weight update, from the gradients that the pipeline had."""
        last = jax.tree.map(lambda x: x[-got.replicas], got.outputs)
        update = self.unpipelined.jitted_update
        wanted = update(got.gradients, got.summed, last, replicas=got.replicas)
        named = zip(("updated", "optimizer state"), (got.variables, got.state), wanted, strict=True)
        pairs: list[Pair] = []
        for what, mine, theirs in named:
            paths = jax.tree_util.tree_leaves_with_path(mine)
            for (path, array), other in zip(paths, jax.tree.leaves(theirs), strict=True):
                pairs.append((f"{what} {jax.tree_util.keystr(path)}".rstrip(), array, other))
        return pairs
