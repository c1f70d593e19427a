"""Traces a whole pipeline: micro-batches, the weight update, and the loop around both."""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from ipujax.ground import IPUError, OptimizerError, PipelineError, structure_text
from ipujax.host import trace_frames
from ipujax.operators import without_weak_type
from ipujax.optimizers import broadcast_from_chief, init_optimizer_state, refuse_changed_leaves
from ipujax.pipelines.micro_batch import MicroBatch
from ipujax.pipelines.override_schedule import schedule_override
from ipujax.pipelines.pipeline_stages import Pytree, Value
from ipujax.pipelines.request import PipelineRequest
from ipujax.pipelines.single_argument_checks import check
from ipujax.pipelines.traced_stages import Arrays, Model, apply_update, trace_model
from lowering import jaxpr, ops, pipelines

_T = TypeVar("_T")

# The names in reports of the values that the loop over weight updates, or over executions, changes.
_TRAINED = ("variables", "optimizer_state", "state")
_UNTRAINED = ("state",)


def trace_requested_pipeline(
    request: PipelineRequest,
    variables: Pytree = None,
    optimizer_state: Pytree = None,
    inputs: Sequence[Pytree] = (),
    state: Pytree = None,
) -> tuple[Pytree, ...]:
    """Traces a pipeline into the program that is being traced around it.

    Args:
      request: the arguments of the pipeline.
      variables: the parameters, given whole to all stages; None if there are none.
      optimizer_state: the state of the optimizer, or None for `opt.init(variables)`.
      inputs: first arguments of the first stage, the same for all micro-batches.
      state: what stages change without its being trained; None if there is none.

    Returns:
      `(variables, optimizer_state)` in training, and the untrained state if there is one.
    """
    check.require_array_leaves(variables, "`variables` of a pipeline")
    check.require_array_leaves(inputs, "`inputs` of a pipeline")
    check.require_array_leaves(optimizer_state, "`optimizer_state` of a pipeline")
    check.require_array_leaves(state, "`state` of a pipeline")
    schedule = schedule_override.value  # what `ipu.compare` tries in the place of the user's
    if schedule is not None:
        request = dc.replace(request, pipeline_schedule=schedule)
    if request.is_training and request.summation is not None:
        variables, optimizer_state = jax.tree.map(
            broadcast_from_chief, (variables, optimizer_state)
        )
    params, first = jax.tree.map(jnp.asarray, (variables, list(inputs)))
    untrained = jax.tree.map(without_weak_type, state)
    with trace_frames.trace_loop_body(request.repeat_count):
        model = trace_model(request, params, first, untrained)
        given_arrays = jax.tree.leaves((params, first, untrained))
        arrays = dict(zip(model.input_values, given_arrays, strict=True))
        carried = () if untrained is None else (untrained,)
        if request.is_training:
            if optimizer_state is None:
                optimizer_state = _init_optimizer_state(model, params, arrays)
            carried = (params, jax.tree.map(jnp.asarray, optimizer_state), *carried)
        return _Run(model, arrays, carried).trace_outer_loop()


def _init_optimizer_state(model: Model, variables: optax.Params, arrays: Arrays) -> Pytree:
    """Computes the optimizer's initial state for the variables."""
    structures: list[object] = []
    leaves = model.output_leaves

    def flat_init(*flat: jax.Array) -> list[jax.Array]:
        states, structure = jax.tree.flatten(
            init_optimizer_state(model.call_optimizer_on_leaves(flat).opt, variables)
        )
        structures.append(structure)
        return states

    pruned, reads = jaxpr.prune_unused(jaxpr.trace_flat(flat_init, [v.aval for v in leaves]))
    if not all(leaves[i] in arrays for i in reads):
        raise PipelineError(
            "the optimizer's initial state depends on what the last stage computes",
            fix="pass optimizer_state=opt.init(variables)",
        )
    states = jaxpr.run_equations(pruned.jaxpr, pruned.consts, [arrays[leaves[i]] for i in reads])
    return jax.tree.unflatten(structures[-1], states)


class _Update(NamedTuple):
    """The traced weight update, and which of `_Run.compute_update`'s arguments it reads."""

    closed: jaxpr.ClosedJaxpr
    reads: list[int]


class _Run:
    """The traced stages of a pipeline with their arrays.

    Args:
      model: the traced stages.
      given_arrays: the arrays of `Model.input_values`.
      carried: what the loop over weight updates changes: in training variables and the optimizer's
        state; then the untrained state, if there is one.
    """

    def __init__(self, model: Model, given_arrays: Arrays, carried: tuple[Pytree, ...]):
        self.model, self.request = model, model.request
        trained, state = carried[:2] if model.request.is_training else ((), ())
        self.variables, self.structure = jax.tree.flatten(trained)
        self.states, self.state_structure = jax.tree.flatten(state)
        self.carried, self.loop = jax.tree.flatten(carried)
        loop_values = [
            *(model.variables if model.request.is_training else ()),
            *model.untrained_state,
        ]
        self.fixed = {v: array for v, array in given_arrays.items() if v not in loop_values}
        self.storages = [model.weight_storage] * len(self.variables)
        self.storages += [model.request.state_storage] * len(self.states)

    # --- the weight update ------------------------------------------------------------------------

    def compute_update(self, *flat: jax.Array) -> list[jax.Array]:
        """Computes the weight update on flat variables, state, gradients and last outputs."""
        count = len(self.variables)
        olds, states, gradients, outputs = _split_by_sizes(flat, count, len(self.states), count)
        output = self.model.call_optimizer_on_leaves(outputs)
        variables = self.structure.unflatten(olds)
        old_state = self.state_structure.unflatten(states)
        gradients = self.structure.unflatten(gradients)
        updated, state = apply_update(output, gradients, old_state, variables)
        return [*jax.tree.leaves(updated), *jax.tree.leaves(state)]

    def trace_update(self) -> _Update:
        """Traces the weight update.

        Raises:
          PipelineError: a state that is not one of this optimizer, for these variables.
        """
        owners, dtype_of = self.model.stage_accumulating_gradient, self.request.accumulator_dtype_of
        gradients = [
            jax.ShapeDtypeStruct(v.aval.shape, dtype_of(v.aval) if v in owners else v.aval.dtype)
            for v in self.model.variables
        ]
        outputs = [v.aval for v in self.model.output_leaves]
        arrays = map(jax.typeof, [*self.variables, *self.states])
        try:
            closed = jaxpr.trace_flat(self.compute_update, [*arrays, *gradients, *outputs])
        except IPUError as error:
            cause = error.__cause__ if isinstance(error, OptimizerError) else None
            if cause is None:
                raise
            raise self._build_update_error(cause) from cause
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise self._build_update_error(error) from error
        news, states = _split_by_sizes(closed.out_avals, len(self.variables))
        for name, new, old in (
            ("variables", news, self.variables),
            ("optimizer_state", states, self.states),
        ):
            refuse_changed_leaves(
                f"the weight update turns a leaf of {name}", new, old, PipelineError
            )
        return _Update(*jaxpr.prune_unused(closed))

    def _build_update_error(self, error: BaseException) -> PipelineError:
        """Builds the error for a weight update that raised another error."""
        return PipelineError(
            f"the weight update failed ({type(error).__name__}: {error})\n"
            f"  optimizer_state: {structure_text(self.state_structure)}",
            fix="pass the state that opt.init(variables) of the same optimizer gives, or none at "
            "all",
        )

    def add_update_task(
        self, traced: _Update, operands: Sequence[jax.Array], sums: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """Adds the weight update as a task, which also sends the sums for the outfeed."""
        (closed, reads), storages = traced, self.storages

        def run_update(*flat: jax.Array) -> list[jax.Array]:
            stored, sums = _split_by_sizes(flat, len(reads))
            arrays = [
                ops.bring_from_storage(x, storages[i]) if i < len(storages) else x
                for i, x in zip(reads, stored, strict=True)
            ]
            results = pipelines.evaluate_without_tracing(closed, arrays)
            self.send_output_sums(sums)
            return [ops.move_to_storage(x, s) for x, s in zip(results, storages, strict=True)]

        kind = pipelines.TaskRole.UPDATE
        spec = pipelines.TaskSpec(kind=kind, options=self.request.task_options[kind][0])
        return pipelines.run_as_task(run_update, [*operands, *sums], spec)

    def send_output_sums(self, sums: Sequence[jax.Array]) -> None:
        """Sends the values accumulated over the micro-batches to the outfeed."""
        if self.request.accumulate_outfeed and self.model.sent_leaves:
            self.model.enqueue_arrays(sums)

    # --- loops ------------------------------------------------------------------------------------

    def trace_outer_loop(self) -> tuple[Pytree, ...]:
        """Traces the loop over weight updates or executions, and returns its final values."""
        update = self.trace_update() if self.request.is_training else None
        storages = [*self.storages, *[ops.ON_TILES] * (len(self.carried) - len(self.storages))]
        stored = [ops.move_to_storage(x, s) for x, s in zip(self.carried, storages, strict=True)]
        consts = list(self.fixed.values())

        def outer_loop_body(*flat: jax.Array) -> list[jax.Array]:
            return self.trace_outer_iteration(update, *_split_by_sizes(flat, len(consts)))

        operands = [*consts, *stored]
        closed, captured = jaxpr.constants_to_arguments(
            jaxpr.trace_flat(outer_loop_body, list(map(jax.typeof, operands)))
        )
        count = self.request.repeat_count
        names = _TRAINED if self.request.is_training else _UNTRAINED
        final = ops.repeat_with_queues(
            closed, [*captured, *consts], stored, count, self.loop, names=names
        )
        return self.loop.unflatten(
            [ops.bring_from_storage(x, s) for x, s in zip(final, storages, strict=True)]
        )

    def trace_outer_iteration(
        self, update: _Update | None, consts: Sequence[jax.Array], carried: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """Traces all micro-batches and the weight update: one iteration of the outer loop."""
        model = self.model
        trained, untrained = _split_by_sizes(carried, len(self.storages))
        array_of = dict(zip(self.fixed, consts, strict=True))
        array_of |= zip(model.variables, trained, strict=False)
        array_of |= zip(model.untrained_state, untrained, strict=True)
        first = len(self.variables) + len(trained)  # of the outputs among the update's operands
        reads = [] if update is None else [i - first for i in update.reads if i >= first]
        outputs = [model.output_leaves[i] for i in reads]
        body = MicroBatch(model, [v for v in outputs if v not in array_of])
        final = trace_micro_batch_loop(body, array_of)
        sums = [final[v] for v in body.sums]
        final_untrained = [
            final[body.state[v]] if v in body.state else array_of[v] for v in model.untrained_state
        ]
        if update is None:
            self.send_output_sums(sums)
            return final_untrained
        accumulated = {
            v: ops.bring_from_storage(final[b], b.storage) for v, b in body.accumulators.items()
        }
        gradients = [
            accumulated[v] if v in accumulated else jnp.zeros(v.aval.shape, v.aval.dtype)
            for v in model.variables
        ]
        update_operands = [*trained, *gradients]
        operands = [update_operands[i] for i in update.reads if i < first]
        operands += [array_of[v] if v in array_of else final[v] for v in outputs]
        return [*self.add_update_task(update, operands, sums), *final_untrained]


def trace_micro_batch_loop(body: MicroBatch, array_of: Arrays) -> dict[Value, jax.Array]:
    """Traces the loop over micro-batches, and returns its variables after the last one.

    Args:
      body: one micro-batch.
      array_of: the arrays of the model's constants, and the untrained state at the beginning.
    """
    request = body.request
    constants = [array_of[v] for v in body.model.values_shared_by_micro_batches]
    # Copies, since tasks overwrite their buffers, and others may read what the state was.
    begin = {buffer: jnp.copy(array_of[v]) for v, buffer in body.state.items()}
    initial = [
        begin[v]
        if v in begin
        else ops.move_to_storage(jnp.zeros(v.aval.shape, v.aval.dtype), v.storage)
        for v in body.loop_variables
    ]
    avals = [jax.typeof(x) for x in (*constants, *initial)]
    closed, captured = jaxpr.constants_to_arguments(jaxpr.trace_flat(body, avals))
    spec = pipelines.PipelineSpec(
        name=request.name or "pipeline",
        stages=len(request.stages),
        training=request.is_training,
        ipus=request.ipus,
        schedule=request.schedule,
        recomputation=request.recomputation,
        recomputation_conflict=request.recomputation_conflict,
        offload_activations=bool(request.offload_activations),
        origin=request.origin,
        variables=tuple(body.variable_roles),
        brings_ipus=request.brings_ipus,
        segments=request.segments,
    )
    consts = [*captured, *constants]
    final = ops.repeat_with_queues(
        closed, consts, initial, request.micro_batches, None, pipeline=spec
    )
    return dict(zip(body.loop_variables, final, strict=True))


def _split_by_sizes(flat: Sequence[_T], *sizes: int) -> list[list[_T]]:
    """Splits a flat list into parts of these sizes and the remaining elements."""
    remaining = iter(flat)
    return [*(list(itertools.islice(remaining, size)) for size in sizes), list(remaining)]
