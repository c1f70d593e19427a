"""A whole pipeline: micro-batches under a schedule, the weight update, and the loop around both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ipujax.driver import tracing
from ipujax.errors import IPUError, PipelineError
from ipujax.optimizers import apply_gradients
from ipujax.optimizers._accumulation import check_leaves
from ipujax.pipelines.micro_batch import Buffer, MicroBatch
from ipujax.pipelines.model import Model, trace_model
from ipujax.pipelines.settings import Settings
from ipujax.pipelines.stages import Value
from ipujax.pipelines.values import check
from lowering import jaxpr, pipelines, storage, streams


def run_pipeline(settings: Settings, variables: Any, state: Any, inputs: Sequence[Any]) -> Any:
    """Traces a pipeline into the program that is being traced around it.

    Returns:
      `(variables, optimizer_state)` in training, otherwise `()`.
    """
    check.leaves(variables, "`variables` of a pipeline")
    check.leaves(inputs, "`inputs` of a pipeline")
    variables = jax.tree.map(jnp.asarray, variables)
    inputs = jax.tree.map(jnp.asarray, list(inputs))
    with tracing.loop(settings.repeat_count):
        model = trace_model(settings, variables, inputs)
        return _Run(model.settings, model, variables, inputs)(state)


class _Run:
    def __init__(self, settings: Settings, model: Model, variables: Any, inputs: Any):
        self.settings, self.model = settings, model
        self.variables, self.tree = jax.tree.flatten(variables)
        self.inputs = jax.tree.leaves(inputs)
        self.state_tree: Any = None

    def __call__(self, state: Any) -> Any:
        if not self.settings.training:
            self.repeat([], [])
            return ()
        state = self.initial_state() if state is None else jax.tree.map(jnp.asarray, state)
        leaves, self.state_tree = jax.tree.flatten(state)
        self.check_state(leaves)
        new_variables, new_state = self.repeat(self.variables, leaves)
        return (
            jax.tree.unflatten(self.tree, new_variables),
            jax.tree.unflatten(self.state_tree, new_state),
        )

    # --- the optimizer ----------------------------------------------------------------------------

    def initial_state(self) -> Any:
        """What the optimizer's `init` gives for the variables."""
        trees: list[Any] = []
        leaves = self.model.output_leaves

        def init(*flat: Any) -> list[Any]:
            arrays = dict(zip(leaves, flat, strict=True))
            opt = self.model.optimizer(arrays.__getitem__).opt
            states, tree = jax.tree.flatten(opt.init(jax.tree.unflatten(self.tree, self.variables)))
            trees.append(tree)
            return states

        closed = jaxpr.trace_flat(init, [v.aval for v in leaves])
        pruned, reads = jaxpr.without_unused(closed)
        values = self.constant_values()
        missing = [leaves[i] for i in reads if leaves[i] not in values]
        if missing:
            raise PipelineError(
                "the optimizer's initial state depends on what the last stage computes",
                fix="pass optimizer_state=opt.init(variables)",
            )
        states = jaxpr.run_equations(
            pruned.jaxpr, pruned.consts, [values[leaves[i]] for i in reads]
        )
        return jax.tree.unflatten(trees[-1], states)

    def constant_values(self) -> dict[Value, Any]:
        """The arrays of the variables and inputs."""
        return dict(zip(self.model.constants, [*self.variables, *self.inputs], strict=True))

    def check_state(self, leaves: Sequence[Any]) -> None:
        """Raises if an optimizer state is not one of this optimizer, for these variables."""
        try:
            results = jax.eval_shape(
                self.update_function,
                *self.variables,
                *leaves,
                *(self.gradient_avals()),
                *(v.aval for v in self.model.output_leaves),
            )
        except IPUError:
            raise
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            given = jax.tree.unflatten(self.state_tree, leaves)
            raise PipelineError(
                f"the weight update failed ({type(error).__name__}: {error})\n"
                f"  optimizer_state: {jax.tree.structure(given)}",
                fix="pass the state that opt.init(variables) of the same optimizer gives, or "
                "none at all",
            ) from error
        given = {"variables": self.variables, "optimizer_state": leaves}
        for (name, old), new in zip(given.items(), results, strict=True):
            check_leaves(f"the weight update turns a leaf of {name}", new, old, PipelineError)

    def gradient_avals(self) -> list[Any]:
        """Shape and dtype of each variable's accumulated gradient."""
        owners = self.model.owners()
        dtypes = {v: self.settings.accumulation_dtype(v.aval) for v in owners}
        return [
            jax.ShapeDtypeStruct(v.aval.shape, dtypes.get(v, v.aval.dtype))
            for v in self.model.variables
        ]

    def update_function(self, *flat: Any) -> tuple[list[Any], list[Any]]:
        """Variables, state, gradients, last outputs -> new variables, new state."""
        count, states_end = len(self.variables), len(self.variables) + self.state_tree.num_leaves
        states = flat[count:states_end]
        gradients, outputs = flat[states_end : states_end + count], flat[states_end + count :]
        arrays = dict(zip(self.model.output_leaves, outputs, strict=True))
        output = self.model.optimizer(arrays.__getitem__)
        variables = jax.tree.unflatten(self.tree, flat[:count])
        updates, state = apply_gradients(
            output.opt,
            jax.tree.unflatten(self.tree, gradients),
            jax.tree.unflatten(self.state_tree, states),
            variables,
            *output.apply_gradients_args,
            **output.apply_gradients_kwargs,
        )
        new = jax.tree.leaves(optax.apply_updates(variables, updates))
        return (
            [x if _is_trained(old) else old for x, old in zip(new, flat, strict=False)],
            [_like(x, old) for x, old in _paired(jax.tree.leaves(state), states)],
        )

    # --- loops ------------------------------------------------------------------------------------

    def repeat(self, variables: Sequence[Any], state: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The loop over weight updates; in inference, over executions of the pipeline."""
        settings, count = self.settings, len(variables)
        consts = self.inputs if variables else [*self.variables, *self.inputs]
        carried: Any = ()
        if variables:
            carried = self.tree.unflatten(variables), self.state_tree.unflatten(state)
        loop = jax.tree.structure(carried)
        kept = [
            *(storage.store(x, settings.weight_storage) for x in variables),
            *(storage.store(x, settings.state_storage) for x in state),
        ]

        def once(*flat: Any) -> list[Any]:
            carried = flat[len(consts) :]
            inputs = list(flat[: len(consts)])
            constants = [*carried[:count], *inputs]
            return self.once(constants, list(carried[:count]), list(carried[count:]))

        operands = [*consts, *kept]
        traced = jaxpr.trace_flat(once, [jax.typeof(x) for x in operands])
        body, captured = jaxpr.hoisted(traced)
        final = streams.repeat(body, [*captured, *consts], kept, settings.repeat_count, loop)
        return (
            [storage.load(x, settings.weight_storage) for x in final[:count]],
            [storage.load(x, settings.state_storage) for x in final[count:]],
        )

    def once(
        self, constants: Sequence[Any], variables: Sequence[Any], state: Sequence[Any]
    ) -> list[Any]:
        """All micro-batches and the weight update: new variables and state."""
        update, used = self.traced_update(state) if self.settings.training else (None, [])
        known = set(self.model.constants)
        kept = [value for value in used if value not in known]
        body = MicroBatch(self.settings, self.model, kept)
        buffers = body.buffers()
        initial = [storage.store(jnp.zeros(b.aval.shape, b.aval.dtype), b.storage) for b in buffers]
        final = self.micro_batches(body, constants, initial)
        found = dict(zip(self.model.constants, constants, strict=True))
        found.update(zip(kept, final[len(final) - len(kept) :], strict=True))
        gradients = self.gradients(body, buffers, final)
        sums = final[len(body.accumulators) + len(body.counters) :][: len(body.sums)]
        if update is None:
            self.send_sums(sums)
            return []
        return self.update(update, variables, state, gradients, [found[v] for v in used], sums)

    def micro_batches(
        self, body: MicroBatch, constants: Sequence[Any], initial: Sequence[Any]
    ) -> list[Any]:
        settings = self.settings
        avals = [jax.typeof(x) for x in (*constants, *initial)]
        closed, captured = jaxpr.hoisted(jaxpr.trace_flat(body, avals))
        spec = pipelines.PipelineSpec(
            name=settings.name,
            stages=len(settings.stages),
            training=settings.training,
            ipus=settings.ipus,
            schedule=settings.schedule,
            recomputation=settings.recomputation,
            offload_activations=settings.offload_activations,
            origin=settings.origin,
        )
        return streams.repeat(
            closed, [*captured, *constants], initial, settings.count, None, pipeline=spec
        )

    def gradients(
        self, body: MicroBatch, buffers: Sequence[Buffer], final: Sequence[Any]
    ) -> list[Any]:
        """The accumulated gradient of every variable; zeros for those that no stage reads."""
        found = {
            value: storage.load(array, buffer.storage)
            for value, buffer, array in zip(body.accumulators, buffers, final, strict=False)
        }
        zeros = [jnp.zeros(v.aval.shape, v.aval.dtype) for v in self.model.variables]
        return [found.get(v, zero) for v, zero in zip(self.model.variables, zeros, strict=True)]

    def traced_update(self, state: Sequence[Any]) -> tuple[Any, list[Value]]:
        """The weight update, and which of the last stage's outputs it reads."""
        avals = [jax.typeof(x) for x in (*self.variables, *state)]
        outputs = self.model.output_leaves

        def flat_update(*flat: Any) -> list[Any]:
            variables, states = self.update_function(*flat)
            return [*variables, *states]

        every = [*avals, *self.gradient_avals(), *(v.aval for v in outputs)]
        closed = jaxpr.trace_flat(flat_update, every)
        pruned, reads = jaxpr.without_unused(closed)
        first = len(every) - len(outputs)
        used = [outputs[i - first] for i in reads if i >= first]
        return (pruned, reads), used

    def update(
        self,
        traced: Any,
        variables: Sequence[Any],
        state: Sequence[Any],
        gradients: Sequence[Any],
        outputs: Sequence[Any],
        sums: Sequence[Any],
    ) -> list[Any]:
        """The weight update as a task; what was summed for the outfeed is sent with it."""
        closed, reads = traced
        settings = self.settings
        storages = [settings.weight_storage] * len(variables)
        storages += [settings.state_storage] * len(state)
        given = len(variables) + len(state)
        used = [i for i in reads if i < given + len(gradients)]
        kept = [*variables, *state, *gradients]
        operands = [kept[i] for i in used]

        def function(*flat: Any) -> list[Any]:
            arrays = list(flat[: len(used)])
            for place, index in enumerate(used):
                if index < given:
                    arrays[place] = storage.load(arrays[place], storages[index])
            rest = flat[len(used) : len(used) + len(outputs)]
            results = jaxpr.run_equations(closed.jaxpr, closed.consts, [*arrays, *rest])
            self.send_sums(flat[len(used) + len(outputs) :])
            return [storage.store(x, s) for x, s in zip(results, storages, strict=True)]

        spec = pipelines.TaskSpec(kind=pipelines.Kind.UPDATE, options=self.settings.update_options)
        return pipelines.task(function, [*operands, *outputs, *sums], spec)

    def send_sums(self, sums: Sequence[Any]) -> None:
        """Sends what was accumulated over the micro-batches."""
        if self.settings.accumulate_outfeed and self.model.sent_leaves():
            self.model.enqueue(sums)


def _is_trained(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def _paired(new: Sequence[Any], old: Sequence[Any]) -> list[tuple[Any, Any]]:
    """New leaves with the old ones; with themselves if they do not match, which is found later."""
    return list(zip(new, old if len(old) == len(new) else new, strict=True))


def _like(new: Any, old: Any) -> Any:
    """What an optimizer keeps for a variable that is not trained has that variable's dtype."""
    return new if _is_trained(old) else jnp.asarray(new, old.dtype)
