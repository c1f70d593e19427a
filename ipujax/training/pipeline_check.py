"""`check_pipeline`: compares a pipeline with the unpipelined step on the same data."""

from __future__ import annotations

import copy
import dataclasses as dc
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.driver import compile as ipu_compile
from ipujax.ground import (
    PipelineError,
    PipelineTypeError,
    PyTree,
    api_boundary,
    find_signature_mismatch,
)
from ipujax.host import IPUInfeedQueue, IPUOutfeedQueue
from ipujax.operators import without_weak_type
from ipujax.pipelines import (
    Arguments,
    OptimizerFunctionOutput,
    PipelineRequest,
    Pytree,
    ScheduleOrName,
    StageFunction,
    ValueAndGrad,
    check,
    trace_requested_pipeline,
)
from ipujax.training.pipeline_differences import (
    Difference,
    Pair,
    PipelineCheck,
    compare_pairs,
    schedule_name,
)
from ipujax.training.recorded_gradients import (
    GradientRecorder,
    PipelineResults,
    gradient_in_64_bits,
    make_zero_gradients,
)
from ipujax.training.staged_check import check_value_and_grad
from ipujax.training.unpipelined_step import Step, Unpipelined
from lowering import jaxpr

_REFERENCE = (
    "check_pipeline met this in the unpipelined step, which is plain JAX and has no device's seed: "
    "stages that draw must be given a seed or a key"
)


@check.guard
@api_boundary
def check_pipeline(
    computational_stages: Sequence[StageFunction | Sequence[StageFunction]] | ValueAndGrad,
    gradient_accumulation_count: int | None = None,
    *,
    args: Sequence[Pytree] | None = None,
    inputs: Sequence[Pytree] | None = None,
    variables: Pytree = None,
    optimizer_state: Pytree = None,
    state: Pytree = None,
    reference: Callable[..., Pytree] | None = None,
    whole_batch: bool = False,
    batch: Pytree = None,
    schedules: Sequence[ScheduleOrName] | None = None,
    engine: str = "replay",
    rtol: float = 1e-4,
    atol: float = 1e-6,
    **arguments: object,
) -> PipelineCheck:
    """Checks that a pipeline computes what the unpipelined step does; not for compiled code.

    Runs one weight update (or one execution, in inference) both ways, with queues of its own. The
    infeed's elements are put back, so that a training run may follow. Compared are the outputs
    and losses of all micro-batches; the accumulated gradients, as the pipeline's optimizer was
    given them; and what a plain call of the optimizer makes of these gradients. For example:

        >>> import jax.numpy as jnp
        >>> import ipujax as ipu
        >>> def loss_fn(weights, x):
        ...     for stage, w in enumerate(weights):
        ...         with ipu.scopes.pipeline_stage(stage):
        ...             x = jnp.tanh(x @ w)
        ...     return jnp.mean(x**2)
        >>> grad_fn = ipu.pipelining_ops.value_and_grad(loss_fn, micro_batches=4)
        >>> check = ipu.check_pipeline(grad_fn, args=([jnp.ones((2, 2))] * 2, jnp.ones((8, 2))))
        >>> print(str(check).splitlines()[0])
        pipeline against the unpipelined step, 4 micro-batches: all 3 arrays agree

    Args:
      computational_stages: as for `pipeline`; or what `pipelining_ops.value_and_grad` returns,
        whose results for `args` are compared with those of `jax.value_and_grad`.
      gradient_accumulation_count: as for `pipeline`.
      args: the arguments of a `value_and_grad`, which takes no others of `pipeline`.
      inputs: as for `pipeline`.
      variables: as for `pipeline`.
      optimizer_state: as for `pipeline`.
      state: as for `pipeline`.
      reference: the model as one function, called with what the first stage is. It returns the
        loss of a micro-batch, or (loss, outputs), outputs being those of the last stage; in
        inference, the outputs; in a `StageOutput` if it changes the state. By default, the stages
        one after the other under plain JAX, and the optimizer function's loss.
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
      PipelineError: (a `ValueError`) and its kin: tolerances that are no numbers from 0 on,
        arguments that `pipeline` would refuse, no schedule at all, or a reference whose results do
        not fit.
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        _check_tolerance(value, name)
    if not jaxpr.trace_state_clean():
        raise PipelineError(
            "check_pipeline was called in code that is being compiled",
            fix="call it before, with the same arguments",
        )
    if schedules is not None:
        schedules = _list_schedules(schedules)
    if isinstance(computational_stages, ValueAndGrad):
        of_pipelines = {
            "gradient_accumulation_count": gradient_accumulation_count, "inputs": inputs,
            "variables": variables, "optimizer_state": optimizer_state, "state": state,
            "reference": reference, "whole_batch": whole_batch or None, "batch": batch, **arguments,
        }  # fmt: skip
        call_args = _require_args_alone(args, of_pipelines)
        tolerances = (rtol, atol)
        return check_value_and_grad(computational_stages, call_args, schedules, engine, tolerances)
    if args is not None:
        raise PipelineError(
            "check_pipeline(args=...) is for what value_and_grad returns, not for stage functions",
            fix="pass `inputs` and `variables`",
        )
    request = _build_request(computational_stages, gradient_accumulation_count, **arguments)
    if whole_batch and not (reference and request.is_training):
        raise PipelineError("whole_batch needs a reference, and an optimizer_function")
    first = check.require_sequence([] if inputs is None else inputs, "inputs")
    check.require_array_leaves((variables, first, optimizer_state, state), "check_pipeline")
    params, first = jax.tree.map(jnp.asarray, (variables, first))
    untrained = jax.tree.map(without_weak_type, state)
    unpipelined = Unpipelined(request, params, first, optimizer_state, reference, untrained)
    case = _PipelineCase(unpipelined, whole_batch)
    source = _choose_infeed(request.infeed_queue, batch)
    rows: list[Difference] = []
    replicas = 1
    for schedule in schedules or [request.pipeline_schedule]:
        pairs, replicas = case.run_and_pair_arrays(schedule, engine, source)
        rows += compare_pairs(schedule_name(schedule), pairs, rtol, atol)
    count, reduction = request.micro_batches, request.reduction
    return PipelineCheck(tuple(rows), count, replicas, reduction, rtol, atol)


def _list_schedules(schedules: object) -> list[ScheduleOrName]:
    """Returns the schedules to check; refuses none at all."""
    chosen = list(check.require_iterable(schedules, "schedules", "schedules of pipelines"))
    if not chosen:
        raise PipelineError(
            f"check_pipeline(schedules={schedules!r}) names no schedule, so nothing is checked",
            fix="name at least one, or leave `schedules` out for that of the pipeline",
        )
    return chosen


def _require_args_alone(
    args: Sequence[Pytree] | None, of_pipelines: dict[str, object]
) -> Sequence[Pytree]:
    """Returns the arguments of a `value_and_grad`; refuses those that only pipelines have."""
    if others := sorted(name for name, value in of_pipelines.items() if value is not None):
        raise PipelineError(
            f"check_pipeline of a value_and_grad has no argument {others[0]}",
            fix="pass what its function takes as args=(params, batch)",
        )
    if args is None:
        raise PipelineError(
            "check_pipeline needs the arguments of the value_and_grad",
            fix="pass args=(params, batch)",
        )
    return check.require_sequence(args, "args")


def _check_tolerance(value: object, name: str) -> None:
    """Raises an error for a tolerance that every difference, or none, would pass."""
    if not 0 <= check.require_number(value, name, "give a number") < math.inf:
        raise PipelineError(
            f"check_pipeline({name}={value!r}): a tolerance is a number from 0 on, and finite",
            fix="give a small number, such as 1e-4",
        )


def _build_request(
    stages: Sequence[StageFunction | Sequence[StageFunction]],
    count: int | None,
    **arguments: Any,
) -> PipelineRequest:
    """Builds the request that `pipeline` would make of its arguments."""
    arguments |= {"computational_stages": stages, "gradient_accumulation_count": count}
    if refusal := find_signature_mismatch(PipelineRequest, (), arguments):
        raise PipelineTypeError(f"check_pipeline takes the arguments of pipeline: {refusal[1]}")
    return PipelineRequest(**arguments)


# --- elements -------------------------------------------------------------------------------------


def _choose_infeed(queue: IPUInfeedQueue | None, batch: Pytree) -> IPUInfeedQueue | None:
    """Returns the infeed that has the elements, made from `batch` if that is given."""
    if batch is None or isinstance(batch, IPUInfeedQueue):
        return queue if batch is None else batch
    if not isinstance(batch, list):
        leaves, structure = jax.tree.flatten(batch)
        if not all(map(np.ndim, leaves)):
            raise check.wrong_type_error("arrays of stacked elements", batch, "`batch`")
        if len({len(leaf) for leaf in leaves}) > 1:
            raise PipelineError(
                f"the arrays of `batch` have {[len(leaf) for leaf in leaves]} elements",
                fix="stack as many elements in each, or give a list of elements",
            )
        batch = [jax.tree.unflatten(structure, row) for row in zip(*leaves, strict=True)]
    return IPUInfeedQueue(batch)


def _peek_elements(queue: IPUInfeedQueue | None, count: int) -> list[Arguments]:
    """Reads the next elements of a queue, without removing them, as first-stage arguments."""
    if queue is None:
        return [Arguments((), {})] * count
    rows = queue.rows(count, keep=True)
    elements = [queue.arguments_from_leaves([row[i] for row in rows]) for i in range(count)]
    return [Arguments(tuple(args), kwargs) for args, kwargs in elements]


# --- both runs ------------------------------------------------------------------------------------


class _PipelineCase:
    """One pipeline to check."""

    def __init__(self, unpipelined: Unpipelined, whole_batch: bool):
        self.unpipelined, self.whole_batch = unpipelined, whole_batch
        self.request = unpipelined.request

    def run_and_pair_arrays(
        self, schedule: ScheduleOrName, engine: str, source: IPUInfeedQueue | None
    ) -> tuple[list[Pair], int]:
        """Returns (name, pipelined, reference) of all arrays, and the number of replicas."""
        pipeline_results, elements = self.run_checked_pipeline(schedule, engine, source)
        rows = [
            jax.tree.map(lambda x, i=i: x[i], pipeline_results.outputs)
            for i in range(len(elements))
        ]
        if self.whole_batch:
            of_one_replica = elements[:: pipeline_results.replicas]
            elements = [jax.tree.map(lambda *xs: np.concatenate(xs), *of_one_replica)]
        try:
            replicas = 1 if self.whole_batch else pipeline_results.replicas
            reference_steps = self.unpipelined.run_micro_batches(
                elements, rows[-len(elements) :], replicas
            )
        except Exception as error:
            error.add_note(_REFERENCE)
            raise
        outputs = [
            *self.output_pairs(pipeline_results, reference_steps),
            *self.state_pairs(pipeline_results, reference_steps),
        ]
        if not self.request.is_training:
            return outputs, pipeline_results.replicas
        gradients, updated = (
            self.gradient_pairs(pipeline_results, reference_steps),
            self.update_pairs(pipeline_results),
        )
        loss = self.loss_pair(rows, reference_steps, pipeline_results.replicas)
        return [loss, *outputs, *gradients, *updated], pipeline_results.replicas

    # --- the pipeline -----------------------------------------------------------------------------

    def run_checked_pipeline(
        self, schedule: ScheduleOrName, engine: str, source: IPUInfeedQueue | None
    ) -> tuple[PipelineResults, list[Arguments]]:
        """Runs the pipeline once; returns its results and the elements that it took."""
        count, training = self.request.micro_batches, self.request.is_training
        elements = _peek_elements(source, count)
        fed = [e.kwargs or e.args for e in elements]  # read lazily: more are added below
        outfeed = IPUOutfeedQueue()
        request = dc.replace(
            self.request,
            infeed_queue=None if source is None else IPUInfeedQueue(fed),
            outfeed_queue=outfeed,
            optimizer_function=self.call_recording_optimizer if training else None,
            pipeline_schedule=schedule,
            repeat_count=1,
            outfeed_loss=False,
            outfeed_mask=None,
            accumulate_outfeed=False,
        )

        def trace_checked_pipeline(*arguments: PyTree) -> tuple[Pytree, ...]:
            return trace_requested_pipeline(request, *arguments)

        variables, state = self.unpipelined.variables, self.unpipelined.state
        if state is not None:
            state = (make_zero_gradients(variables), make_zero_gradients(variables), state)
        arguments = (variables, state, self.unpipelined.inputs, self.unpipelined.untrained)
        lowered = ipu_compile(trace_checked_pipeline, engine=engine).lower(*arguments)
        replicas = lowered.program.replicas
        if replicas > 1:
            elements = _peek_elements(source, count * replicas)
            fed += [e.kwargs or e.args for e in elements[count:]]
        results = lowered.compile()(*arguments)
        outputs = outfeed.dequeue() if outfeed.enqueued else []
        several = 2 if replicas > 1 else 1  # axes of micro-batches and replicas
        outputs = jax.tree.map(lambda x: x.reshape(-1, *x.shape[several:]), outputs)
        if not training:
            return PipelineResults(outputs, replicas, untrained=(*results, None)[0]), elements
        padded: PyTree = (*results, None)  # for a pipeline without untrained state
        variables, (gradients, summed, state), untrained = padded[:3]
        got = PipelineResults(outputs, replicas, variables, state, gradients, summed, untrained)
        return got, elements

    def call_recording_optimizer(self, *outputs: Pytree) -> OptimizerFunctionOutput:
        """Calls the user's optimizer function, and puts a recorder around its optimizer."""
        output = copy.copy(self.request.call_optimizer_function(*outputs))
        output.opt = GradientRecorder(output.opt)
        return output

    # --- what is compared with what ---------------------------------------------------------------

    def loss_pair(
        self, rows: Sequence[list[Pytree]], reference_steps: Sequence[Step], replicas: int
    ) -> Pair:
        """Returns the pipelined and the reference losses."""
        losses = self.unpipelined.compute_losses(rows)
        if self.whole_batch:
            losses = self.unpipelined.reduce_micro_batches(losses[::replicas])
        return (
            "loss",
            losses,
            np.stack([step.loss for step in reference_steps]).reshape(losses.shape),
        )

    def output_pairs(
        self, pipelined: PipelineResults, reference_steps: Sequence[Step]
    ) -> list[Pair]:
        """Returns the pipelined and the reference outputs of the last stage."""
        if reference_steps[0].outputs is None or self.whole_batch:
            return []
        pipeline_arrays = [
            (f"output {number}{jax.tree_util.keystr(path)}", array)
            for number, output in enumerate(pipelined.outputs)
            for path, array in jax.tree_util.tree_leaves_with_path(output)
        ]
        reference_arrays = [jax.tree.leaves(step.outputs) for step in reference_steps]
        if len(pipeline_arrays) != len(reference_arrays[0]):
            raise PipelineError(
                f"the last stage has {len(pipeline_arrays)} output arrays, the reference "
                f"{len(reference_arrays[0])}",
                fix="let the reference return the outputs of the last stage, in their order",
            )
        columns = zip(*reference_arrays, strict=True)
        return [
            (*pair, np.stack(column)) for pair, column in zip(pipeline_arrays, columns, strict=True)
        ]

    def state_pairs(
        self, pipelined: PipelineResults, reference_steps: Sequence[Step]
    ) -> list[Pair]:
        """Returns the untrained state of replica 0 from the pipeline and the reference."""
        if self.whole_batch:
            return []
        reference_state = reference_steps[-pipelined.replicas].untrained
        paths = jax.tree_util.tree_leaves_with_path(pipelined.untrained)
        return [
            (f"state {jax.tree_util.keystr(path)}".rstrip(), pipeline_leaf, reference_leaf)
            for (path, pipeline_leaf), reference_leaf in zip(
                paths, jax.tree.leaves(reference_state), strict=True
            )
        ]

    def gradient_pairs(
        self, pipelined: PipelineResults, reference_steps: Sequence[Step]
    ) -> list[Pair]:
        """Returns the gradients of replica 0, and with several replicas those of all together."""
        groups = [
            (
                "gradient",
                pipelined.gradients,
                reference_steps[:: 1 if self.whole_batch else pipelined.replicas],
                1,
            )
        ]
        if pipelined.replicas > 1 and not self.whole_batch:
            groups.append(
                ("gradient over replicas", pipelined.summed, reference_steps, pipelined.replicas)
            )
        pairs: list[Pair] = []
        for kind, tree, steps, replicas in groups:
            leaves = jax.tree.leaves(tree)
            for name, index in self.unpipelined.trained_leaf_numbers.items():
                gradients = np.stack([gradient_in_64_bits(step.gradients[name]) for step in steps])
                by_replica = gradients.reshape(-1, replicas, *gradients.shape[1:]).sum(axis=1)
                total = self.unpipelined.reduce_micro_batches(by_replica)
                pairs.append((f"{kind} {name}".rstrip(), leaves[index], total))
        return pairs

    def update_pairs(self, pipelined: PipelineResults) -> list[Pair]:
        """Returns the weight update of the pipeline, and of a plain call of its optimizer."""
        last = jax.tree.map(lambda x: x[-pipelined.replicas], pipelined.outputs)
        update = self.unpipelined.jitted_update
        reference_trees = update(
            pipelined.gradients, pipelined.summed, last, replicas=pipelined.replicas
        )
        named = zip(
            ("updated", "optimizer state"),
            (pipelined.variables, pipelined.state),
            reference_trees,
            strict=True,
        )
        pairs: list[Pair] = []
        for kind, pipeline_tree, reference_tree in named:
            paths = jax.tree_util.tree_leaves_with_path(pipeline_tree)
            for (path, array), reference_leaf in zip(
                paths, jax.tree.leaves(reference_tree), strict=True
            ):
                pairs.append(
                    (f"{kind} {jax.tree_util.keystr(path)}".rstrip(), array, reference_leaf)
                )
        return pairs
