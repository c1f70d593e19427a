"""All stages of a pipeline, traced one after the other, and what they share."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.errors import PipelineError, PipelineTypeError
from ipujax.optimizers import (
    CrossReplicaOptimizer,
    IpuOptimizer,
    compute_gradients,
    maps_gradients,
)
from ipujax.pipelines.settings import Settings
from ipujax.pipelines.stages import SPANS_ALL, Arguments, Stage, Value, trace_stage
from ipujax.pipelines.values import check


class OptimizerFunctionOutput:
    """What an `optimizer_function` returns.

    Args:
      opt: an optax `GradientTransformation`, or one of `ipujax.optimizers`.
      loss: a floating-point scalar, the loss of one micro-batch.
      compute_gradients_args: further positional arguments of the optimizer's `compute_gradients`,
        which maps the gradients of each micro-batch.
      compute_gradients_kwargs: the same by keyword.
      apply_gradients_args: further positional arguments of the weight update.
      apply_gradients_kwargs: the same by keyword; an optax transformation takes them as extra
        arguments of `update`.
    """

    def __init__(
        self,
        opt: Any,
        loss: Any,
        compute_gradients_args: Sequence[Any] | None = None,
        compute_gradients_kwargs: dict[str, Any] | None = None,
        apply_gradients_args: Sequence[Any] | None = None,
        apply_gradients_kwargs: dict[str, Any] | None = None,
    ):
        if not (callable(getattr(opt, "init", None)) and callable(getattr(opt, "update", None))):
            raise PipelineTypeError(
                "OptimizerFunctionOutput takes an optax gradient transformation, such as "
                f"optax.sgd(0.1), not {opt!r}"
            )
        self.opt, self.loss = opt, loss
        self.compute_gradients_args = _positional(compute_gradients_args, "compute_gradients")
        self.compute_gradients_kwargs = _by_keyword(compute_gradients_kwargs, "compute_gradients")
        self.apply_gradients_args = _positional(apply_gradients_args, "apply_gradients")
        self.apply_gradients_kwargs = _by_keyword(apply_gradients_kwargs, "apply_gradients")


def _positional(given: Any, function: str) -> tuple[Any, ...]:
    return () if given is None else tuple(check.sequence(given, f"{function}_args"))


def _by_keyword(given: Any, function: str) -> dict[str, Any]:
    return dict(check.instance(given, dict, f"{function}_kwargs", optional=True) or {})


@dc.dataclass(frozen=True)
class Model:
    """The traced stages of a pipeline.

    Attributes:
      settings: of the pipeline.
      tree: the variables as a pytree of `Value`s, or None.
      inputs: the flat inputs.
      element: the infeed's element as the first stage takes it.
      stages: in order.
      outputs: of the last stage, pytrees of `Value`s.
      loss: in training.
    """

    settings: Settings
    tree: Any
    inputs: tuple[Value, ...]
    element: Arguments
    stages: tuple[Stage, ...]
    outputs: tuple[Any, ...]
    loss: Value | None

    @functools.cached_property
    def variables(self) -> dict[Value, str]:
        """Every leaf of the variables, with its name for messages."""
        leaves = jax.tree_util.tree_leaves_with_path(self.tree)
        return {value: jax.tree_util.keystr(path) or "variables" for path, value in leaves}

    @functools.cached_property
    def elements(self) -> dict[Value, None]:
        """The leaves of the infeed's element."""
        return dict.fromkeys(jax.tree.leaves((self.element.args, self.element.kwargs)))

    @property
    def constants(self) -> list[Value]:
        """What is the same for all micro-batches: variables, then inputs."""
        return [*self.variables, *self.inputs]

    @functools.cached_property
    def output_leaves(self) -> list[Value]:
        """The last stage's outputs, flat."""
        return jax.tree.leaves(self.outputs)

    @functools.cached_property
    def sought(self) -> set[Value]:
        """The values whose cotangents somebody computes: the loss, and what later stages read."""
        read = {v for stage in self.stages for v in stage.operands if v.trainable}
        return read if self.loss is None else {*read, self.loss}

    # --- queues -----------------------------------------------------------------------------------

    def next_element(self) -> dict[Value, Any]:
        """Takes an element, inside the first task."""
        queue = self.settings.infeed_queue
        if queue is None:
            return {}
        arrays = jax.tree.leaves(queue.next_element(None))
        return dict(zip(self.elements, arrays, strict=True))

    def sent(self) -> Any:
        """What goes to the outfeed: a pytree of `Value`s."""
        settings = self.settings
        if settings.outfeed_loss:
            return self.loss
        outputs = list(self.outputs)
        if settings.outfeed_mask is not None:
            pairs = zip(outputs, settings.outfeed_mask, strict=True)
            outputs = [output for output, is_masked in pairs if not is_masked]
        return outputs

    def sent_leaves(self) -> list[Value]:
        """The same, flat; nothing without an outfeed."""
        return [] if self.settings.outfeed_queue is None else jax.tree.leaves(self.sent())

    def enqueue(self, arrays: Sequence[Any]) -> None:
        """Sends arrays in the place of what goes to the outfeed."""
        queue = self.settings.outfeed_queue
        if queue is not None:
            queue.enqueue(jax.tree.unflatten(jax.tree.structure(self.sent()), arrays))

    # --- gradients --------------------------------------------------------------------------------

    def owners(self) -> dict[Value, int]:
        """For every trainable variable that is read, the stage that adds to its accumulator.

        It is the first one: its backward task is the last to know a gradient.
        """
        owners: dict[Value, int] = {}
        for stage in self.stages:
            for value in stage.operands:
                if value in self.variables and value.trainable:
                    owners.setdefault(value, stage.number)
        return owners

    def optimizer(self, given: Callable[[Value], Any]) -> OptimizerFunctionOutput:
        """Calls the optimizer function on the last stage's outputs, whose leaves `given` knows."""
        function = self.settings.optimizer_function
        if function is None:
            raise PipelineError("an inference pipeline has no optimizer")
        return checked_output(function(*jax.tree.map(given, list(self.outputs))))

    def hook_reads(self) -> list[Value]:
        """What the optimizer reads while it maps the gradients of one micro-batch."""
        return self.output_leaves if self.maps else []

    def hook_variables(self, owned: Sequence[Value]) -> list[Value]:
        """The variables that it reads then."""
        return list(owned) if self.maps else []

    @functools.cached_property
    def maps(self) -> bool:
        """Whether the optimizer maps the gradients of each micro-batch."""
        return self.settings.training and maps_gradients(self.sample_optimizer.opt)

    @property
    def keeps_replicas_equal(self) -> bool:
        """Whether all replicas have the same variables for ever, as far as one can see."""
        if not self.settings.training:
            return True
        opt = self.sample_optimizer.opt
        while isinstance(opt, IpuOptimizer):
            if isinstance(opt, CrossReplicaOptimizer):
                return True
            opt = opt.wrapped
        return False

    @functools.cached_property
    def sample_optimizer(self) -> OptimizerFunctionOutput:
        """What the optimizer function returns; good for all but the arrays in it."""
        found: list[OptimizerFunctionOutput] = []

        def function(*leaves: Any) -> Any:
            arrays = dict(zip(self.output_leaves, leaves, strict=True))
            found.append(self.optimizer(arrays.__getitem__))
            return ()

        jax.eval_shape(function, *(v.aval for v in self.output_leaves))
        return found[0]

    def mapped(
        self, gradients: dict[Value, Any], given: Callable[[Value], Any]
    ) -> dict[Value, Any]:
        """The gradients of one micro-batch as the optimizer wants them."""
        if not gradients or not self.maps:
            return gradients
        output = self.optimizer(given)
        names = self.variables
        keyed = {names[v]: gradient for v, gradient in gradients.items()}
        own = {names[v]: given(v) for v in gradients}
        mapped = compute_gradients(
            output.opt,
            keyed,
            own,
            *output.compute_gradients_args,
            **output.compute_gradients_kwargs,
        )
        return {v: mapped[names[v]] for v in gradients}


def trace_model(settings: Settings, variables: Any, inputs: Sequence[Any]) -> Model:
    """Traces the stages of a pipeline.

    Args:
      settings: of the pipeline.
      variables: a pytree of arrays, or None.
      inputs: what the first stage is given before the infeed's element; pytrees of arrays.

    Raises:
      PipelineError: stages that do not fit together, share a variable across IPUs, or whose last
        outputs have nowhere to go.
    """
    tree = jax.tree.map(_variable, variables)
    given = jax.tree.map(lambda x: Value(jax.typeof(x), constant=True), list(inputs))
    element = _element(settings)
    known = Arguments((*given, *element.args), element.kwargs)
    stages: list[Stage] = []
    outputs: list[Any] = []
    loss: Value | None = None
    for number, parts in enumerate(settings.stages):
        last = number + 1 == len(settings.stages)
        loss_of = _loss_of(settings) if last and settings.training else None
        stage, outputs, loss = trace_stage(number, parts, tree, known, loss_of)
        stages.append(stage)
        known = Arguments(tuple(outputs), {})
    inputs_flat = tuple(jax.tree.leaves(given))
    model = Model(settings, tree, inputs_flat, element, tuple(stages), tuple(outputs), loss)
    _check_outputs(model)
    _check_shared(model)
    _check_loss(model)
    if settings.may_shard_weights and model.keeps_replicas_equal:
        kept = dc.replace(settings.weight_storage, sharded=True)
        model = dc.replace(model, settings=dc.replace(settings, weight_storage=kept))
    return model


def _variable(leaf: Any) -> Value:
    aval = jax.typeof(leaf)
    trainable = bool(jnp.issubdtype(aval.dtype, jnp.floating))
    return Value(aval, constant=True, trainable=trainable)


def _element(settings: Settings) -> Arguments:
    if settings.infeed_queue is None:
        return Arguments((), {})
    args, kwargs = settings.infeed_queue.arguments()
    return Arguments(*jax.tree.map(Value, (tuple(args), kwargs)))


def _loss_of(settings: Settings) -> Callable[..., Any]:
    def loss_of(*outputs: Any) -> Any:
        function = settings.optimizer_function
        return checked_output(function(*outputs)).loss if function is not None else None

    return loss_of


def checked_output(output: Any) -> OptimizerFunctionOutput:
    """What an optimizer function returned, if it is of the right kind."""
    if not isinstance(output, OptimizerFunctionOutput):
        raise PipelineTypeError(
            "optimizer_function must return an OptimizerFunctionOutput(opt, loss), not "
            f"{type(output).__name__}"
        )
    return output


def _check_outputs(model: Model) -> None:
    settings = model.settings
    mask = settings.outfeed_mask
    if mask is not None and len(mask) != len(model.outputs):
        raise PipelineError(
            f"outfeed_mask has {len(mask)} entries, and the last stage {len(model.outputs)} "
            "outputs; the sizes need to match"
        )
    if settings.outfeed_queue is None and jax.tree.leaves(model.sent()):
        last = settings.stages[-1][-1]
        raise PipelineError(
            f"the last computational stage (`{last.name}`) has tensor outputs, but there is no "
            "outfeed queue to send them to",
            fix="pass outfeed_queue=IPUOutfeedQueue(), or mask the outputs with outfeed_mask",
        )


def _check_shared(model: Model) -> None:
    """A variable lives on one IPU, so all stages that read it must be there."""
    first: dict[Value, Stage] = {}
    for stage in model.stages:
        for value in stage.operands:
            if value not in model.variables:
                continue
            other = first.setdefault(value, stage)
            ipus, others = ({part.ipu for part in s.parts} for s in (stage, other))
            if SPANS_ALL in ipus | others or ipus == others or len(ipus | others) == 1:
                continue
            if len(ipus) > 1 or len(others) > 1:
                if ipus & others:
                    continue  # one of the concurrent functions reads it; placement says which
            mapping = [min(others) if value in s.operands else _mapped(s) for s in model.stages]
            fix = f"device_mapping={mapping}"
            if all(entry == mapping[0] for entry in mapping):  # which is no pipeline any more
                alone = mapping if len(mapping) <= 4 else f"[{mapping[0]}] * {len(mapping)}"
                fix = (
                    "give each stage variables of its own, or run all stages on one IPU, where "
                    f"nothing overlaps: device_mapping={alone}"
                )
            raise PipelineError(
                f"variable {model.variables[value]} is read by stage {other.number} "
                f"(`{other.parts[0].name}`) on IPU {min(others)} and by stage {stage.number} "
                f"(`{stage.parts[0].name}`) on IPU {min(ipus)}; stages that share a variable must "
                "be on the same IPU",
                fix=fix,
            )


def _mapped(stage: Stage) -> int | list[int]:
    """The entry of a stage in the device mapping."""
    ipus = [part.ipu for part in stage.parts]
    return ipus if len(ipus) > 1 else ipus[0]


def _check_loss(model: Model) -> None:
    if not model.settings.training:
        return
    if not model.variables:
        raise PipelineError(
            "a training pipeline needs `variables`, the parameters to train, as a pytree"
        )
    output = model.sample_optimizer
    if not model.maps and (output.compute_gradients_args or output.compute_gradients_kwargs):
        # Nothing takes them; this says so.
        compute_gradients(
            output.opt, {}, {}, *output.compute_gradients_args, **output.compute_gradients_kwargs
        )
    if model.loss is None or not model.loss.trainable:
        raise PipelineError(
            "the loss does not depend on any of the `variables`, so there is nothing to train",
            fix="read the parameters from the stages' first argument, not from a closure",
        )
