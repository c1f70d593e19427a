"""A whole pipeline: micro-batches under a schedule, the weight update, and the loop around both."""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from ipujax.checks.structures import shown
from ipujax.distribution.summation import of_chief
from ipujax.driver import tracing
from ipujax.errors import IPUError, OptimizerError, PipelineError
from ipujax.optimizers.accumulation import check_leaves
from ipujax.optimizers.trained_leaves import initial_state
from ipujax.pipelines.micro_batch import MicroBatch
from ipujax.pipelines.model import Arrays, Model, trace_model, updated_by
from ipujax.pipelines.request import PipelineRequest
from ipujax.pipelines.schedule_override import schedule_override
from ipujax.pipelines.stages import Pytree, Value
from ipujax.pipelines.state import strong
from ipujax.pipelines.values import check
from lowering import jaxpr, ops, pipelines

_T = TypeVar("_T")

# What a report calls what the loop over weight updates changes, and that of inference.
_TRAINED = ("variables", "optimizer_state", "state")
_UNTRAINED = ("state",)


def run_pipeline(
    request: PipelineRequest,
    variables: Pytree = None,
    optimizer_state: Pytree = None,
    inputs: Sequence[Pytree] = (),
    state: Pytree = None,
) -> tuple[Pytree, ...]:
    """Traces a pipeline into the program that is being traced around it.

    Args:
      request: what it is asked to do.
      variables: the parameters, given whole to all stages; None if there are none.
      optimizer_state: of the optimizer, None for `opt.init(variables)`.
      inputs: first arguments of the first stage, the same for all micro-batches.
      state: what stages change without its being trained; None if there is none.

    Returns:
      `(variables, optimizer_state)` in training, and the untrained state if there is one.
    """
    check.leaves(variables, "`variables` of a pipeline")
    check.leaves(inputs, "`inputs` of a pipeline")
    check.leaves(optimizer_state, "`optimizer_state` of a pipeline")
    check.leaves(state, "`state` of a pipeline")
    schedule = schedule_override.value  # what `ipu.compare` tries in the place of the user's
    if schedule is not None:
        request = dc.replace(request, pipeline_schedule=schedule)
    if request.training and request.summation is not None:
        variables, optimizer_state = jax.tree.map(of_chief, (variables, optimizer_state))
    params, first = jax.tree.map(jnp.asarray, (variables, list(inputs)))
    untrained = jax.tree.map(strong, state)
    with tracing.loop(request.repeat_count):
        model = trace_model(request, params, first, untrained)
        given = jax.tree.leaves((params, first, untrained))
        arrays = dict(zip(model.given, given, strict=True))
        carried = () if untrained is None else (untrained,)
        if request.training:
            if optimizer_state is None:
                optimizer_state = _initial_state(model, params, arrays)
            carried = (params, jax.tree.map(jnp.asarray, optimizer_state), *carried)
        return _Run(model, arrays, carried).repeat()


def _initial_state(model: Model, variables: optax.Params, arrays: Arrays) -> Pytree:
    """What the optimizer's `init` gives for the variables."""
    structures: list[object] = []
    leaves = model.output_leaves

    def init(*flat: jax.Array) -> list[jax.Array]:
        states, structure = jax.tree.flatten(initial_state(model.optimizer(flat).opt, variables))
        structures.append(structure)
        return states

    pruned, reads = jaxpr.without_unused(jaxpr.trace_flat(init, [v.aval for v in leaves]))
    if not all(leaves[i] in arrays for i in reads):
        raise PipelineError(
            "the optimizer's initial state depends on what the last stage computes",
            fix="pass optimizer_state=opt.init(variables)",
        )
    states = jaxpr.run_equations(pruned.jaxpr, pruned.consts, [arrays[leaves[i]] for i in reads])
    return jax.tree.unflatten(structures[-1], states)


class _Update(NamedTuple):
    """The traced weight update, and which of `_Run.new_values`' arguments it reads."""

    closed: jaxpr.ClosedJaxpr
    reads: list[int]


class _Run:
    """A pipeline with its arrays.

    Args:
      model: the traced stages.
      given: the arrays of `Model.given`.
      carried: what the loop over weight updates changes: in training variables and the optimizer's
        state; then the untrained state, if there is one.
    """

    def __init__(self, model: Model, given: Arrays, carried: tuple[Pytree, ...]):
        self.model, self.request = model, model.request
        trained, state = carried[:2] if model.request.training else ((), ())
        self.variables, self.structure = jax.tree.flatten(trained)
        self.states, self.state_structure = jax.tree.flatten(state)
        self.carried, self.loop = jax.tree.flatten(carried)
        known = [*(model.variables if model.request.training else ()), *model.untrained]
        self.fixed = {v: array for v, array in given.items() if v not in known}
        self.storages = [model.weight_storage] * len(self.variables)
        self.storages += [model.request.state_storage] * len(self.states)

    # --- the weight update ------------------------------------------------------------------------

    def new_values(self, *flat: jax.Array) -> list[jax.Array]:
        """Variables, state, gradients and the last outputs -> new variables and state, all flat."""
        count = len(self.variables)
        olds, states, gradients, outputs = _split(flat, count, len(self.states), count)
        output = self.model.optimizer(outputs)
        variables = self.structure.unflatten(olds)
        old_state = self.state_structure.unflatten(states)
        gradients = self.structure.unflatten(gradients)
        updated, state = updated_by(output, gradients, old_state, variables)
        return [*jax.tree.leaves(updated), *jax.tree.leaves(state)]

    def traced_update(self) -> _Update:
        """Traces the weight update.

        Raises:
          PipelineError: a state that is not one of this optimizer, for these variables.
        """
        owners, dtype_of = self.model.owners, self.request.accumulation_dtype
        gradients = [
            jax.ShapeDtypeStruct(v.aval.shape, dtype_of(v.aval) if v in owners else v.aval.dtype)
            for v in self.model.variables
        ]
        outputs = [v.aval for v in self.model.output_leaves]
        arrays = map(jax.typeof, [*self.variables, *self.states])
        try:
            closed = jaxpr.trace_flat(self.new_values, [*arrays, *gradients, *outputs])
        except IPUError as error:
            cause = error.__cause__ if isinstance(error, OptimizerError) else None
            if cause is None:
                raise
            raise self._failure(cause) from cause
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise self._failure(error) from error
        news, states = _split(closed.out_avals, len(self.variables))
        for name, new, old in (
            ("variables", news, self.variables),
            ("optimizer_state", states, self.states),
        ):
            check_leaves(f"the weight update turns a leaf of {name}", new, old, PipelineError)
        return _Update(*jaxpr.without_unused(closed))

    def _failure(self, error: BaseException) -> PipelineError:
        """The error for a weight update that raised another one."""
        return PipelineError(
            f"the weight update failed ({type(error).__name__}: {error})\n"
            f"  optimizer_state: {shown(self.state_structure)}",
            fix="pass the state that opt.init(variables) of the same optimizer gives, or none at "
            "all",
        )

    def update(
        self, traced: _Update, operands: Sequence[jax.Array], sums: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """The weight update as a task; what was summed for the outfeed is sent with it."""
        (closed, reads), storages = traced, self.storages

        def function(*flat: jax.Array) -> list[jax.Array]:
            stored, sums = _split(flat, len(reads))
            arrays = [
                ops.load(x, storages[i]) if i < len(storages) else x
                for i, x in zip(reads, stored, strict=True)
            ]
            results = jaxpr.run_equations(closed.jaxpr, closed.consts, arrays)
            self.send_sums(sums)
            return [ops.store(x, s) for x, s in zip(results, storages, strict=True)]

        kind = pipelines.Kind.UPDATE
        spec = pipelines.TaskSpec(kind=kind, options=self.request.options[kind][0])
        return pipelines.task(function, [*operands, *sums], spec)

    def send_sums(self, sums: Sequence[jax.Array]) -> None:
        """Sends what was accumulated over the micro-batches."""
        if self.request.accumulate_outfeed and self.model.sent_leaves:
            self.model.enqueue(sums)

    # --- loops ------------------------------------------------------------------------------------

    def repeat(self) -> tuple[Pytree, ...]:
        """The loop over weight updates (executions, in inference): what it carries, in the end."""
        update = self.traced_update() if self.request.training else None
        storages = [*self.storages, *[ops.HERE] * (len(self.carried) - len(self.storages))]
        stored = [ops.store(x, s) for x, s in zip(self.carried, storages, strict=True)]
        consts = list(self.fixed.values())

        def once(*flat: jax.Array) -> list[jax.Array]:
            return self.once(update, *_split(flat, len(consts)))

        operands = [*consts, *stored]
        closed, captured = jaxpr.hoisted(jaxpr.trace_flat(once, list(map(jax.typeof, operands))))
        count = self.request.repeat_count
        names = _TRAINED if self.request.training else _UNTRAINED
        final = ops.repeat(closed, [*captured, *consts], stored, count, self.loop, names=names)
        return self.loop.unflatten([ops.load(x, s) for x, s in zip(final, storages, strict=True)])

    def once(
        self, update: _Update | None, consts: Sequence[jax.Array], carried: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """All micro-batches and the weight update: what the loop carries, after them."""
        model = self.model
        trained, untrained = _split(carried, len(self.storages))
        known = dict(zip(self.fixed, consts, strict=True))
        known |= zip(model.variables, trained, strict=False)
        known |= zip(model.untrained, untrained, strict=True)
        first = len(self.variables) + len(trained)  # of the outputs among the update's operands
        reads = [] if update is None else [i - first for i in update.reads if i >= first]
        outputs = [model.output_leaves[i] for i in reads]
        body = MicroBatch(model, [v for v in outputs if v not in known])
        final = self.micro_batches(body, known)
        sums = [final[v] for v in body.sums]
        left = [final[body.state[v]] if v in body.state else known[v] for v in model.untrained]
        if update is None:
            self.send_sums(sums)
            return left
        accumulated = {v: ops.load(final[b], b.storage) for v, b in body.accumulators.items()}
        gradients = [
            accumulated[v] if v in accumulated else jnp.zeros(v.aval.shape, v.aval.dtype)
            for v in model.variables
        ]
        before = [*trained, *gradients]
        operands = [before[i] for i in update.reads if i < first]
        operands += [known[v] if v in known else final[v] for v in outputs]
        return [*self.update(update, operands, sums), *left]

    def micro_batches(self, body: MicroBatch, known: Arrays) -> dict[Value, jax.Array]:
        """The loop over micro-batches: its variables after the last one."""
        request = self.request
        constants = [known[v] for v in self.model.constants]
        # Copies, since tasks overwrite their buffers, and others may read what the state was.
        begin = {buffer: jnp.copy(known[v]) for v, buffer in body.state.items()}
        initial = [
            begin[v] if v in begin else ops.store(jnp.zeros(v.aval.shape, v.aval.dtype), v.storage)
            for v in body.variables
        ]
        avals = [jax.typeof(x) for x in (*constants, *initial)]
        closed, captured = jaxpr.hoisted(jaxpr.trace_flat(body, avals))
        spec = pipelines.PipelineSpec(
            name=request.name or "pipeline",
            stages=len(request.stages),
            training=request.training,
            ipus=request.ipus,
            schedule=request.schedule,
            recomputation=request.recomputation,
            offload_activations=bool(request.offload_activations),
            origin=request.origin,
            variables=tuple(body.roles),
        )
        consts = [*captured, *constants]
        final = ops.repeat(closed, consts, initial, request.micro_batches, None, pipeline=spec)
        return dict(zip(body.variables, final, strict=True))


def _split(flat: Sequence[_T], *sizes: int) -> list[list[_T]]:
    """Parts of these sizes, one after the other, and the rest."""
    rest = iter(flat)
    return [*(list(itertools.islice(rest, size)) for size in sizes), list(rest)]
