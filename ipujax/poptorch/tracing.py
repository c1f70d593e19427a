"""Traces a module whose arguments and outputs are of any structure."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import traceback
from collections.abc import Generator
from typing import Any, TypeGuard

import torch

from ipujax.errors import FrontendError, PopTorchError
from ipujax.frontends.pytorch.backward import BackwardUse
from ipujax.frontends.pytorch.capture import Captured, captured
from ipujax.frontends.pytorch.errors import is_users, line_of
from ipujax.frontends.pytorch.gradients import trained_by
from ipujax.poptorch.buffers import kept_tensors
from ipujax.poptorch.control_flow import folded
from ipujax.poptorch.log import logger
from ipujax.poptorch.loss import loss_of
from ipujax.poptorch.mixed_precision import MixedPrecision
from ipujax.poptorch.multi_conv import check_multi_convs
from ipujax.poptorch.operators import OPERATORS
from ipujax.poptorch.ops import check_overlaps
from ipujax.poptorch.stages import Staged, log_places, staged
from ipujax.poptorch.strategies import PipelinedExecution
from ipujax.poptorch.structures import flatten, rebuild, strangers
from ipujax.poptorch.weights import unwatched


@dc.dataclass(frozen=True, eq=False)
class Traced:
    """A module, traced.

    Attributes:
      captured: with the tensors of the arguments as its inputs, and those of the outputs.
      staged: its graph, and where that runs.
      outputs: what the module gave when it was traced.
      loss: the name of the loss in its graph; None in inference.
    """

    captured: Captured
    staged: Staged
    outputs: Any
    loss: str | None

    def rebuilt(self, tensors: list[torch.Tensor]) -> Any:
        """The module's outputs, of these tensors."""
        return rebuild(self.outputs, tensors)


def traced(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    strategy: PipelinedExecution,
    *,
    training: bool,
) -> Traced:
    """Traces a call of a module.

    In training, the trainable variables are those that the loss depends on.

    Raises:
      FrontendError: (a `ValueError`) it cannot be traced.
      PopTorchError: (a `ValueError`) blocks that the strategy cannot place, a module that replaces
        or removes its own tensors, or no loss to train for.
      Exception: what the module's own code raises.
    """
    given: list[Any] = []
    forward = module.forward

    tensors = flatten((args, kwargs))

    def of_tensors(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own_args, own_kwargs = rebuild((args, kwargs), tensors)
        with kept_tensors(module):
            outputs = forward(*own_args, **own_kwargs)
        given.append(outputs)
        # Hooks of the module see the elements of a tuple alone.
        return tuple(flatten(outputs))

    with unwatched(module), _replaced_forward(module, of_tensors), kept_tensors(module):
        try:
            with MixedPrecision():
                # PyTorch puts constants in front of the first input, and needs one for that.
                use = BackwardUse.PARAMETERS if training else BackwardUse.NONE
                found = captured(module, tensors or [torch.zeros(())], None, OPERATORS, use)
        except FrontendError as error:
            if _is_of_forward(error.__cause__):
                raise _of_tensors(error.__cause__) from None
            raise
    _check_outputs(given[-1], module, forward)
    if not tensors:
        found = dc.replace(found, inputs=(), examples=())
    check_multi_convs(found.graph)
    check_overlaps(found.graph)
    graph = folded(found.graph, training=training)
    placed = staged(graph, strategy, found.names)
    _log_variables(found)
    log_places(placed)
    found = dc.replace(found, graph=placed.graph)
    if not training:
        return Traced(found, placed, given[-1], None)
    loss = loss_of(found.graph, module)
    return Traced(dc.replace(found, trainable=trained_by(found, [loss])), placed, given[-1], loss)


def _check_outputs(outputs: Any, module: torch.nn.Module, forward: Any) -> None:
    """Refuses outputs that would be for ever as they were when the module was traced."""
    for path, value in strangers(outputs):
        name, kind = type(module).__name__, type(value).__name__
        raise PopTorchError(
            f"output{path} of module {name} is of type {kind}, which is neither a tensor nor a "
            "constant: forward is called once, to trace it, so that all calls would give the same "
            "object",
            where=line_of(forward),
            fix="return tensors, None, numbers, texts, and lists, tuples and dictionaries of "
            "these; poptorch.registerCustomArgParser takes types of your own",
        )


_LOGGED = {torch.float16: "Half", torch.float32: "Float", torch.int32: "Int", torch.int64: "Long"}


def _log_variables(module: Captured) -> None:
    """Logs the parameters and buffers of a graph for debugging, in the original's words."""
    for name, own in module.names.items():
        tensor = module.variables[name]
        kind = _LOGGED.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.").capitalize())
        form = [*map(str, tensor.shape), f"strides={[*tensor.stride()]}"]
        form += [f"requires_grad={int(name in module.trainable)}", "device=ipu:0"]
        logger.debug("  %%%s : %s(%s) -> %s", own[0], kind, ", ".join(form), name)


def _is_of_forward(error: BaseException | None) -> TypeGuard[BaseException]:
    """Whether the module's own code, or ours around it, raised this, and not PyTorch."""
    if error is None:
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, PopTorchError) or (bool(frames) and is_users(frames[-1].filename))


def _of_tensors(error: BaseException) -> BaseException:
    """The error, which calls tensors what they are called outside of a trace."""
    error.args = tuple(
        arg.replace("FakeTensor", "Tensor") if isinstance(arg, str) else arg for arg in error.args
    )
    return error


@contextlib.contextmanager
def _replaced_forward(module: torch.nn.Module, forward: Any) -> Generator[None]:
    """In the block, the module's own attribute is the `forward` that is called."""
    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before
