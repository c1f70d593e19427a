"""A whole pipeline: micro-batches under a schedule, the weight update, and the loop around both."""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from ipujax.driver import tracing
from ipujax.errors import IPUError, PipelineError
from ipujax.optimizers.accumulation import check_leaves
from ipujax.pipelines.micro_batch import MicroBatch
from ipujax.pipelines.model import Model, is_trained, trace_model, updated_by
from ipujax.pipelines.request import PipelineRequest
from ipujax.pipelines.schedule_override import schedule_override
from ipujax.pipelines.stages import Pytree, Value
from ipujax.pipelines.values import check
from lowering import jaxpr, ops, pipelines

_T = TypeVar("_T")


def run_pipeline(
    request: PipelineRequest,
    variables: Pytree = None,
    optimizer_state: Pytree = None,
    inputs: Sequence[Pytree] = (),
) -> tuple[()] | tuple[Pytree, Pytree]:
    """Traces a pipeline into the program that is being traced around it.

    Args:
      request: what it is asked to do.
      variables: the parameters, given whole to all stages; None if there are none.
      optimizer_state: of the optimizer, None for `opt.init(variables)`.
      inputs: first arguments of the first stage, the same for all micro-batches.

    Returns:
      `(variables, optimizer_state)` in training, otherwise `()`.
    """
    check.leaves(variables, "`variables` of a pipeline")
    check.leaves(inputs, "`inputs` of a pipeline")
    check.leaves(optimizer_state, "`optimizer_state` of a pipeline")
    schedule = schedule_override.value  # what `ipu.compare` tries in the place of the user's
    if schedule is not None:
        request = dc.replace(request, pipeline_schedule=schedule)
    params, arrays = jax.tree.map(jnp.asarray, (variables, list(inputs)))
    with tracing.loop(request.repeat_count):
        model = trace_model(request, params, arrays)
        if not request.training:
            _Run(model, params, arrays).repeat()
            return ()
        if optimizer_state is None:
            optimizer_state = _initial_state(model, params, arrays)
        state = jax.tree.map(jnp.asarray, optimizer_state)
        final = _Run(model, params, arrays, state).repeat()
        return jax.tree.unflatten(jax.tree.structure((params, state)), final)


def _initial_state(model: Model, variables: optax.Params, inputs: Pytree) -> Pytree:
    """What the optimizer's `init` gives for the variables."""
    structures: list[object] = []
    leaves = model.output_leaves

    def init(*flat: jax.Array) -> list[jax.Array]:
        states, structure = jax.tree.flatten(model.optimizer(flat).opt.init(variables))
        structures.append(structure)
        return states

    pruned, reads = jaxpr.without_unused(jaxpr.trace_flat(init, [v.aval for v in leaves]))
    arrays = dict(zip(model.constants, jax.tree.leaves((variables, inputs)), strict=True))
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
    """A pipeline with its arrays; inference has no state."""

    def __init__(self, model: Model, variables: Pytree, inputs: Pytree, state: Pytree = ()):
        self.model, self.request = model, model.request
        self.variables, self.structure = jax.tree.flatten(variables)
        self.states, self.state_structure = jax.tree.flatten(state)
        self.inputs = jax.tree.leaves(inputs)
        self.carried = (variables, state) if model.request.training else ()
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
        pairs = zip(jax.tree.leaves(updated), olds, strict=True)
        news = [x if is_trained(old) else old for x, old in pairs]
        new_states = jax.tree.leaves(state)
        if len(new_states) != len(states):
            return [*news, *new_states]  # which is refused
        # What an optimizer keeps for a variable that is not trained has that variable's dtype.
        pairs = zip(new_states, states, strict=True)
        return [*news, *(x if is_trained(old) else jnp.asarray(x, old.dtype) for x, old in pairs)]

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
        except IPUError:
            raise
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise PipelineError(
                f"the weight update failed ({type(error).__name__}: {error})\n"
                f"  optimizer_state: {self.state_structure}",
                fix="pass the state that opt.init(variables) of the same optimizer gives, or "
                "none at all",
            ) from error
        news, states = _split(closed.out_avals, len(self.variables))
        for name, new, old in (
            ("variables", news, self.variables),
            ("optimizer_state", states, self.states),
        ):
            check_leaves(f"the weight update turns a leaf of {name}", new, old, PipelineError)
        return _Update(*jaxpr.without_unused(closed))

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

    def repeat(self) -> list[jax.Array]:
        """The loop over weight updates: new variables and state. In inference, over executions."""
        update = self.traced_update() if self.request.training else None
        carried = [] if update is None else [*self.variables, *self.states]
        consts = [*self.variables, *self.inputs] if update is None else self.inputs
        stored = [ops.store(x, s) for x, s in zip(carried, self.storages, strict=False)]

        def once(*flat: jax.Array) -> list[jax.Array]:
            return self.once(update, *_split(flat, len(consts)))

        operands = [*consts, *stored]
        closed, captured = jaxpr.hoisted(jaxpr.trace_flat(once, list(map(jax.typeof, operands))))
        loop, count = jax.tree.structure(self.carried), self.request.repeat_count
        final = ops.repeat(closed, [*captured, *consts], stored, count, loop)
        return [ops.load(x, s) for x, s in zip(final, self.storages, strict=False)]

    def once(
        self, update: _Update | None, consts: Sequence[jax.Array], carried: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """All micro-batches and the weight update: new variables and state."""
        model = self.model
        constants = [*carried[: len(self.variables)], *consts]
        known = dict(zip(model.constants, constants, strict=True))
        first = len(self.variables) + len(carried)  # of the outputs among the update's operands
        reads = [] if update is None else [i - first for i in update.reads if i >= first]
        outputs = [model.output_leaves[i] for i in reads]
        body = MicroBatch(model, [v for v in outputs if v not in known])
        final = self.micro_batches(body, constants)
        sums = [final[v] for v in body.sums]
        if update is None:
            self.send_sums(sums)
            return []
        accumulated = {v: ops.load(final[b], b.storage) for v, b in body.accumulators.items()}
        gradients = [
            accumulated[v] if v in accumulated else jnp.zeros(v.aval.shape, v.aval.dtype)
            for v in model.variables
        ]
        before = [*carried, *gradients]
        operands = [before[i] for i in update.reads if i < first]
        operands += [known[v] if v in known else final[v] for v in outputs]
        return self.update(update, operands, sums)

    def micro_batches(
        self, body: MicroBatch, constants: Sequence[jax.Array]
    ) -> dict[Value, jax.Array]:
        """The loop over micro-batches: its variables after the last one."""
        request = self.request
        initial = [
            ops.store(jnp.zeros(v.aval.shape, v.aval.dtype), v.storage) for v in body.variables
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
        )
        consts = [*captured, *constants]
        final = ops.repeat(closed, consts, initial, request.micro_batches, None, pipeline=spec)
        return dict(zip(body.variables, final, strict=True))


def _split(flat: Sequence[_T], *sizes: int) -> list[list[_T]]:
    """Parts of these sizes, one after the other, and the rest."""
    rest = iter(flat)
    return [*(list(itertools.islice(rest, size)) for size in sizes), list(rest)]
