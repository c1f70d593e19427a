"""The tracing of a module whose arguments and outputs have any structure."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import traceback
from collections.abc import Generator
from typing import Any, TypeGuard

import torch

from ipujax.doors.torch import (
    BackwardUse,
    ModuleTrace,
    find_trainable_sources,
    first_line_of_function,
    is_user_code,
    trace_torch_module,
)
from ipujax.ground import FrontendError, PopTorchError, PyTree
from ipujax.poptorch.autocasting import Policy, cast_by_policy
from ipujax.poptorch.buffers import preserve_tensors
from ipujax.poptorch.enums import AutoStage
from ipujax.poptorch.ipu_device import tensors_on_ipu
from ipujax.poptorch.loss import find_loss
from ipujax.poptorch.mixed_precision import MixedPrecision
from ipujax.poptorch.ops import check_overlaps
from ipujax.poptorch.poptorch_control_flow import fold_control_flow
from ipujax.poptorch.poptorch_log import logger
from ipujax.poptorch.poptorch_multi_conv import check_multi_convs
from ipujax.poptorch.poptorch_operators import OPERATORS
from ipujax.poptorch.poptorch_stages import StagedGraph, assign_stages, log_placement
from ipujax.poptorch.poptorch_structures import (
    find_unsupported_values,
    flatten_tensors,
    rebuild_structure,
)
from ipujax.poptorch.poptorch_weights import suspend_watching
from ipujax.poptorch.strategies import PipelinedExecution
from ipujax.poptorch.substitutions import substituted_functions

_GROUP_NORMS = ("aten.group_norm.default", "aten.native_group_norm.default")


@dc.dataclass(frozen=True, eq=False)
class TracedModule:
    """A traced module, with its stages, outputs and loss.

    Attributes:
      captured: the traced graph, with the tensors of arguments and outputs.
      staged: the graph with stages and IPUs.
      outputs: the outputs of the module when it was traced.
      loss: the name of the loss in its graph; None in inference.
    """

    captured: ModuleTrace
    staged: StagedGraph
    outputs: Any
    loss: str | None

    def rebuild_outputs(self, tensors: list[torch.Tensor]) -> PyTree:
        """Rebuilds the structure of the module's outputs from tensors."""
        return rebuild_structure(self.outputs, tensors)


def trace_module(
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    strategy: PipelinedExecution,
    *,
    training: bool,
    strided_groups: bool = False,
    policy: Policy | None = None,
) -> TracedModule:
    """Traces a call of a module.

    With `strided_groups`, group normalization is over every n-th channel. `policy` says which
    dtypes are chosen where the module asks for that; with None, none are. In training, the
    trainable variables are those that the loss depends on.

    Raises:
      FrontendError: (a `ValueError`) the module cannot be traced.
      PopTorchError: (a `ValueError`) blocks that the strategy cannot place, a module that replaces
        or removes its own tensors, or no loss to train for.
      Exception: an error of the module's own code.
    """
    traced_outputs: list[object] = []
    forward = module.forward

    tensors = flatten_tensors((args, kwargs))

    def call_with_tensors(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        call_args, call_kwargs = rebuild_structure((args, kwargs), tensors)
        with preserve_tensors(module), tensors_on_ipu(), substituted_functions():
            outputs = forward(*call_args, **call_kwargs)
        traced_outputs.append(outputs)
        # Hooks of the module see the elements of a tuple alone.
        return tuple(flatten_tensors(outputs))

    with (
        suspend_watching(module),
        _replace_forward(module, call_with_tensors),
        preserve_tensors(module),
    ):
        try:
            with MixedPrecision(), cast_by_policy(module, policy):
                # PyTorch puts constants in front of the first input, and needs one for that.
                use = BackwardUse.PARAMETERS if training else BackwardUse.NONE
                trace = trace_torch_module(
                    module, tensors or [torch.zeros(())], None, OPERATORS, use
                )
        except FrontendError as error:
            if _is_raised_by_forward(error.__cause__):
                raise _rename_fake_tensors(error.__cause__) from None
            raise
    _check_output_types(traced_outputs[-1], module, forward)
    if not tensors:
        trace = dc.replace(trace, inputs=(), examples=())
    check_multi_convs(trace.graph)
    check_overlaps(trace.graph)
    graph = fold_control_flow(trace.graph, training=training)
    if strided_groups:
        graph = graph.use_strided_groups(_GROUP_NORMS)
    is_planned = strategy.auto_stage is AutoStage.Auto  # once the loss is known
    staged_graph = (
        StagedGraph(graph=graph, ipus=(0,))
        if is_planned
        else assign_stages(graph, strategy, trace.names)
    )
    _log_graph_variables(trace)
    log_placement(staged_graph)
    trace = dc.replace(trace, graph=staged_graph.graph)
    if not training:
        return TracedModule(trace, staged_graph, traced_outputs[-1], None)
    loss = find_loss(trace.graph, module)
    return TracedModule(
        dc.replace(trace, trainable=find_trainable_sources(trace, [loss])),
        staged_graph,
        traced_outputs[-1],
        loss,
    )


def _check_output_types(outputs: object, module: torch.nn.Module, forward: object) -> None:
    """Checks that outputs are tensors and constants, which each call can return anew."""
    for path, value in find_unsupported_values(outputs):
        name, kind = type(module).__name__, type(value).__name__
        raise PopTorchError(
            f"output{path} of module {name} is of type {kind}, which is neither a tensor nor a "
            "constant: forward is called once, to trace it, so that all calls would give the same "
            "object",
            where=first_line_of_function(forward),
            fix="return tensors, None, numbers, texts, and lists, tuples and dictionaries of "
            "these; poptorch.registerCustomArgParser takes types of your own",
        )


_LOGGED = {torch.float16: "Half", torch.float32: "Float", torch.int32: "Int", torch.int64: "Long"}


def _log_graph_variables(module: ModuleTrace) -> None:
    """Logs the parameters and buffers of a graph for debugging, in the original's words."""
    for name, graph_names in module.names.items():
        tensor = module.variables[name]
        kind = _LOGGED.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.").capitalize())
        form = [*map(str, tensor.shape), f"strides={[*tensor.stride()]}"]
        form += [f"requires_grad={int(name in module.trainable)}", "device=ipu:0"]
        logger.debug("  %%%s : %s(%s) -> %s", graph_names[0], kind, ", ".join(form), name)


def _is_raised_by_forward(error: BaseException | None) -> TypeGuard[BaseException]:
    """Returns whether the module's own code, or ours around it, raised an error."""
    if error is None:
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, PopTorchError) or (bool(frames) and is_user_code(frames[-1].filename))


def _rename_fake_tensors(error: BaseException) -> BaseException:
    """Replaces `FakeTensor` in an error's message by `Tensor`."""
    error.args = tuple(
        arg.replace("FakeTensor", "Tensor") if isinstance(arg, str) else arg for arg in error.args
    )
    return error


@contextlib.contextmanager
def _replace_forward(module: torch.nn.Module, forward: Any) -> Generator[None]:
    """Replaces the module's `forward` in the block."""
    old_forward = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if old_forward is None:
            del module.forward
        else:
            module.forward = old_forward
