"""The traced stages of a pipeline, and the values that they share."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Mapping, Sequence

import jax
import optax

from ipujax.ground import PipelineError
from ipujax.optimizers import (
    CrossReplicaOptimizer,
    IpuOptimizer,
    SummingOptimizer,
    apply_gradients,
    apply_updates,
    compute_gradients,
    has_gradient,
    maps_gradients,
)
from ipujax.pipelines.pipeline_arguments import OptimizerFunctionOutput
from ipujax.pipelines.pipeline_stages import SPANS_ALL, Arguments, Pytree, Stage, Value, trace_stage
from ipujax.pipelines.request import PipelineRequest
from lowering import ops, pipelines

Arrays = Mapping[Value, jax.Array]


@dc.dataclass(frozen=True)
class Model:
    """The traced stages of a pipeline.

    Attributes:
      request: the arguments of the pipeline.
      tree: the variables as a pytree of `Value`s, or None.
      state: the untrained state in the same way, as the first stage finds it.
      inputs: the flat inputs.
      element: the infeed's element as the first stage takes it.
      stages: in order.
      outputs: the outputs of the last stage, pytrees of `Value`s.
      loss: the loss, in training.
    """

    request: PipelineRequest
    tree: Pytree
    state: Pytree
    inputs: tuple[Value, ...]
    element: Arguments
    stages: tuple[Stage, ...]
    outputs: tuple[Pytree, ...]
    loss: Value | None

    @functools.cached_property
    def variables(self) -> dict[Value, str]:
        """Every leaf of the variables, with its name for messages."""
        return _leaf_names(self.tree, "variables")

    @functools.cached_property
    def untrained_state(self) -> dict[Value, str]:
        """Every leaf of the untrained state, with its name for messages."""
        return _leaf_names(self.state, "state")

    @functools.cached_property
    def changed_state(self) -> dict[Value, Stage]:
        """The leaves of the untrained state that a stage changes, with that stage."""
        return {value: stage for stage in self.stages for value in stage.changed}

    def combination_of_state(self, value: Value) -> pipelines.Combination:
        """Returns how a leaf of the untrained state that stages change is combined: not at all."""
        del value
        return pipelines.Combination.NONE

    @functools.cached_property
    def element_leaves(self) -> dict[Value, None]:
        """The leaves of the infeed's element."""
        return dict.fromkeys(jax.tree.leaves(self.element))

    @functools.cached_property
    def input_values(self) -> list[Value]:
        """The values that the pipeline is given: variables, inputs, untrained state."""
        return [*self.variables, *self.inputs, *self.untrained_state]

    @functools.cached_property
    def values_shared_by_micro_batches(self) -> dict[Value, None]:
        """The given values that are the same for all micro-batches."""
        return dict.fromkeys(
            value for value in self.input_values if value not in self.changed_state
        )

    @functools.cached_property
    def output_leaves(self) -> list[Value]:
        """The last stage's outputs, flat."""
        return jax.tree.leaves(self.outputs)

    @functools.cached_property
    def values_with_cotangents(self) -> set[Value]:
        """The values whose cotangents are computed: the loss, and what later stages read."""
        read = {v for stage in self.stages for v in stage.operands if v.trainable}
        return read if self.loss is None else {*read, self.loss}

    @functools.cached_property
    def weight_storage(self) -> ops.Storage:
        """The storage of the variables between tasks."""
        request = self.request
        sharded = request.replicated_weight_sharding
        if sharded is None:
            sharded = request.batch_serialization_iterations > 1 and self.keeps_replicas_equal
        return ops.Storage(remote=bool(request.offload_weights), sharded=sharded)

    # --- queues -----------------------------------------------------------------------------------

    def take_infeed_element(self) -> Arrays:
        """Takes an element from the infeed, inside the first task."""
        queue = self.request.infeed_queue
        if queue is None:
            return {}
        arrays = jax.tree.leaves(queue.take_traced_element(None))
        return dict(zip(self.element_leaves, arrays, strict=True))

    def values_to_send(self) -> Pytree:
        """Returns the values that go to the outfeed, as a pytree."""
        if self.request.outfeed_loss:
            return self.loss
        mask = self.request.outfeed_mask or [False] * len(self.outputs)
        return [output for output, masked in zip(self.outputs, mask, strict=True) if not masked]

    @functools.cached_property
    def sent_leaves(self) -> list[Value]:
        """The values that go to the outfeed, as a list; empty without an outfeed."""
        return [] if self.request.outfeed_queue is None else jax.tree.leaves(self.values_to_send())

    def enqueue_arrays(self, arrays: Sequence[jax.Array]) -> None:
        """Sends arrays to the outfeed, in the structure of its values."""
        queue = self.request.outfeed_queue
        if queue is not None:
            queue.enqueue(jax.tree.unflatten(jax.tree.structure(self.values_to_send()), arrays))

    # --- gradients --------------------------------------------------------------------------------

    @functools.cached_property
    def stage_accumulating_gradient(self) -> dict[Value, int]:
        """The stage that accumulates the gradients of each trainable variable that is read.

        It is the first one: its backward task is the last to know a gradient.
        """
        owners: dict[Value, int] = {}
        for stage in self.stages:
            for value in stage.operands:
                if value in self.variables and value.trainable:
                    owners.setdefault(value, stage.number)
        return owners

    def call_optimizer_on_leaves(self, leaves: Sequence[jax.Array]) -> OptimizerFunctionOutput:
        """Calls the optimizer function on the last stage's outputs, given flat."""
        outputs = jax.tree.structure(self.outputs)
        return self.request.call_optimizer_function(*jax.tree.unflatten(outputs, leaves))

    @functools.cached_property
    def maps_micro_batch_gradients(self) -> bool:
        """True if the optimizer maps the gradients of each micro-batch."""
        return self.request.is_training and maps_gradients(self.optimizer_output_on_tracers.opt)

    @property
    def keeps_replicas_equal(self) -> bool:
        """True if the replicas' variables stay equal, as far as the optimizer shows."""
        return not self.request.is_training or combines_replica_gradients(
            self.optimizer_output_on_tracers.opt
        )

    @functools.cached_property
    def optimizer_output_on_tracers(self) -> OptimizerFunctionOutput:
        """The optimizer function's result on tracers: valid but for the arrays in it."""
        optimizer_outputs: list[OptimizerFunctionOutput] = []

        def record_optimizer(*leaves: jax.Array) -> None:
            optimizer_outputs.append(self.call_optimizer_on_leaves(leaves))

        jax.eval_shape(record_optimizer, *(v.aval for v in self.output_leaves))
        return optimizer_outputs[0]


def compute_mapped_gradients(
    output: OptimizerFunctionOutput, gradients: Pytree, variables: Pytree
) -> Pytree:
    """Runs an optimizer's `compute_gradients` on gradients in the structure of the variables."""
    args, kwargs = output.compute_gradients_args, output.compute_gradients_kwargs
    return compute_gradients(output.opt, gradients, variables, *args, **kwargs)


def apply_update(
    output: OptimizerFunctionOutput, gradients: Pytree, state: Pytree, variables: optax.Params
) -> tuple[optax.Params, Pytree]:
    """Runs an optimizer's `apply_gradients`; returns new variables and a new state."""
    args, kwargs = output.apply_gradients_args, output.apply_gradients_kwargs
    updates, state = apply_gradients(output.opt, gradients, state, variables, *args, **kwargs)
    return apply_updates(variables, updates), state


def combines_replica_gradients(opt: optax.GradientTransformation) -> bool:
    """Returns whether an optimizer averages or sums gradients over the replicas."""
    while isinstance(opt, IpuOptimizer):
        if isinstance(opt, CrossReplicaOptimizer | SummingOptimizer):
            return True
        opt = opt.wrapped
    return False


def trace_model(
    request: PipelineRequest, variables: Pytree, inputs: Sequence[Pytree], state: Pytree = None
) -> Model:
    """Traces the stages of a pipeline.

    Args:
      request: what the pipeline is asked to do.
      variables: a pytree of arrays, or None.
      inputs: what the first stage is given before the infeed's element; pytrees of arrays.
      state: the untrained state, a pytree of arrays, or None.

    Raises:
      PipelineError: stages that do not fit together, share a variable across IPUs, or whose last
        outputs have nowhere to go.
    """
    tree = jax.tree.map(_make_variable, variables)
    first, state_values = jax.tree.map(lambda x: Value(jax.typeof(x)), (inputs, state))
    element = Arguments((), {})
    if request.infeed_queue is not None:
        args, kwargs = request.infeed_queue.arguments()
        element = Arguments(*jax.tree.map(Value, (tuple(args), kwargs)))
    arguments = Arguments((*first, *element.args), element.kwargs)
    stages: list[Stage] = []
    loss: Value | None = None
    current_state = state_values
    for number, parts in enumerate(request.stages):
        last = number + 1 == len(request.stages)
        optimizer = request.call_optimizer_function if last and request.is_training else None
        stage, outputs, current_state, loss = trace_stage(
            number, parts, tree, current_state, arguments, optimizer
        )
        stages.append(stage)
        arguments = Arguments(tuple(outputs), {})
    inputs_flat = tuple(jax.tree.leaves(first))
    model = Model(
        request, tree, state_values, inputs_flat, element, tuple(stages), arguments.args, loss
    )
    _check_last_stage_outputs(model)
    _check_state_changed_once(model)
    _refuse_variables_on_several_ipus(model)
    _check_loss_output(model)
    return model


def _make_variable(leaf: jax.Array) -> Value:
    aval = jax.typeof(leaf)
    return Value(aval, trainable=has_gradient(aval))


def _leaf_names(tree: Pytree, root: str) -> dict[Value, str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {value: jax.tree_util.keystr(path) or root for path, value in leaves}


def _check_last_stage_outputs(model: Model) -> None:
    request, mask = model.request, model.request.outfeed_mask
    if mask is not None and len(mask) != len(model.outputs):
        raise PipelineError(
            f"outfeed_mask has {len(mask)} entries, and the last stage {len(model.outputs)} "
            "outputs; the sizes need to match"
        )
    if request.outfeed_queue is None and jax.tree.leaves(model.values_to_send()):
        last = request.stages[-1][-1]
        raise PipelineError(
            f"the last computational stage (`{last.name}`) has tensor outputs, but there is no "
            "outfeed queue to send them to",
            fix="pass outfeed_queue=IPUOutfeedQueue(), or mask the outputs with outfeed_mask",
        )


def _check_state_changed_once(model: Model) -> None:
    """Raises an error if two stages change one leaf of the state, or an earlier one reads it.

    In a pipeline they work on the next micro-batches before it has done so.
    """
    changed_by: dict[Value, tuple[str, Stage]] = {}
    for stage in model.stages:
        for old_value, new_value in stage.changed.items():
            if old_value in changed_by:
                name, first_stage = changed_by[old_value]
                raise PipelineError(
                    f"state {name} is changed by {_describe_stage(first_stage)} and by "
                    f"{_describe_stage(stage)}: the first stage would have to wait for the "
                    "values that the second computes in each micro-batch",
                    fix="let each stage change other leaves of the state",
                )
            changed_by[new_value] = model.untrained_state[old_value], stage
    for stage in model.stages:
        for value in stage.operands:
            changes = model.changed_state.get(value, stage)
            if changes is not stage:
                raise PipelineError(
                    f"state {model.untrained_state[value]} is read by {_describe_stage(stage)} and "
                    f"changed by {_describe_stage(changes)}, which comes later: the next "
                    "micro-batch is read before that has happened",
                    fix="let the first stage that reads a leaf change it; later ones see what it "
                    "made",
                )


def _describe_stage(stage: Stage) -> str:
    return f"stage {stage.number} (`{stage.parts[0].name}`)"


def _refuse_variables_on_several_ipus(model: Model) -> None:
    """Raises an error if stages on different IPUs read the same variable."""
    first: dict[Value, Stage] = {}
    names = {v: f"variable {name}" for v, name in model.variables.items()}
    names |= {v: f"state {name}" for v, name in model.untrained_state.items()}
    for stage in model.stages:
        for value in stage.operands:
            if value not in names:
                continue
            first_stage = first.setdefault(value, stage)
            ipus, first_ipus = ({part.ipu for part in s.parts} for s in (stage, first_stage))
            if SPANS_ALL in ipus | first_ipus or ipus & first_ipus:
                continue  # of concurrent functions, placement says which one reads it
            raise PipelineError(
                f"{names[value]} is read by stage {first_stage.number} "
                f"(`{first_stage.parts[0].name}`) on IPU {min(first_ipus)} and by stage "
                f"{stage.number} (`{stage.parts[0].name}`) on IPU {min(ipus)}; stages that share a "
                "variable must be on the same IPU",
                fix=_fix_of_shared_variable(model, value, min(first_ipus)),
            )


def _fix_of_shared_variable(model: Model, value: Value, ipu: int) -> str:
    """Returns what to do where stages on several IPUs read a variable, the first one on `ipu`."""
    readers = [stage for stage in model.stages if value in stage.operands]
    if all(_reads_slices_only(stage, value) for stage in readers):
        return (
            "give each stage its slice as a variable of its own, as in a list of layers in the "
            "place of stacked ones; or cut a loss over all layers by "
            "pipelining_ops.value_and_grad(loss, stages=n), which keeps each slice with its stage"
        )
    mapping = [ipu if s in readers else _device_mapping_entry(s) for s in model.stages]
    if any(entry != mapping[0] for entry in mapping):
        return f"device_mapping={mapping}"
    alone = mapping if len(mapping) <= 4 else f"[{mapping[0]}] * {len(mapping)}"
    return (
        "give each stage variables of its own, or run all stages on one IPU, where nothing "
        f"overlaps: device_mapping={alone}"
    )


def _reads_slices_only(stage: Stage, value: Value) -> bool:
    """Returns whether all that a stage reads of an operand are slices."""
    body = stage.closed.jaxpr
    var = body.invars[stage.operands.index(value)]
    readers = [eqn for eqn in body.eqns if any(atom is var for atom in eqn.invars)]
    slicing = ("slice", "dynamic_slice", "gather")
    return bool(readers) and all(eqn.primitive.name in slicing for eqn in readers)


def _device_mapping_entry(stage: Stage) -> int | list[int]:
    """Returns the entry of a stage in the device mapping."""
    ipus = [part.ipu for part in stage.parts]
    return ipus if len(ipus) > 1 else ipus[0]


def _check_loss_output(model: Model) -> None:
    if not model.request.is_training:
        return
    if not model.variables:
        raise PipelineError(
            "a training pipeline needs `variables`, the parameters to train, as a pytree"
        )
    output = model.optimizer_output_on_tracers
    if not model.maps_micro_batch_gradients and (
        output.compute_gradients_args or output.compute_gradients_kwargs
    ):
        compute_mapped_gradients(output, {}, {})  # nothing takes them; this says so
    if model.loss is None or not model.loss.trainable:
        raise PipelineError(
            "the loss does not depend on any of the `variables`, so there is nothing to train",
            fix="read the parameters from the stages' first argument, not from a closure",
        )
