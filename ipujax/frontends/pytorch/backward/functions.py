"""Functions of `torch.autograd.Function` in a trace, with their own backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from ipujax.errors import IPUError
from ipujax.frontends.pytorch.backward import markers
from ipujax.frontends.pytorch.backward.needs import is_inexact
from ipujax.frontends.pytorch.errors import line_of, untraceable_backward


class Context(FunctionCtx):
    """What a function's forward pass leaves to its backward pass."""

    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads = True

    def __init__(self) -> None:
        self.to_save: tuple[Any, ...] = ()
        self.dirty_tensors: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved."""
        return tuple(self.to_save)

    saved_variables = saved_tensors


def call(cls: Any, args: tuple[Any, ...], differentiable: Sequence[bool]) -> Any:
    """What a function gives for arguments, with its backward pass in the trace.

    Args:
      cls: a `torch.autograd.Function`.
      args: of its `apply`.
      differentiable: of each, whether it has a gradient.

    Raises:
      FrontendError: (a `ValueError`) its backward pass cannot be traced.
    """
    number = markers.new_number()
    positions = [i for i, flag in enumerate(differentiable) if flag]
    entered = markers.enter([args[i] for i in positions], number)
    inputs = list(args)
    for position, tensor in zip(positions, entered, strict=True):
        inputs[position] = tensor
    context = Context()
    context.needs_input_grad = tuple(differentiable)
    with torch.no_grad():
        outputs = _forward(cls, context, inputs)
    results = list(outputs) if isinstance(outputs, tuple) else [outputs]
    constant = {id(tensor) for tensor in context.non_differentiable}
    smooth = [i for i, x in enumerate(results) if _is_smooth(x) and id(x) not in constant]
    if smooth:
        own = [results[i] for i in smooth]
        given = markers.gradients_of(own, number)
        gradients = _backward(cls, context, results, dict(zip(smooth, given, strict=True)), args)
        wanted = [gradients[i] for i in positions]
        is_once = _once_differentiable(cls.backward) is not None
        left = markers.leave(own, entered, wanted, number, is_once=is_once)
        changed = {id(x): args[i] for i, x in zip(positions, entered, strict=True)}
        for i, before, after in zip(smooth, own, left, strict=True):
            results[i] = _in_place(context, changed, before, after)
    return tuple(results) if isinstance(outputs, tuple) else results[0]


def _in_place(context: Context, changed: dict[int, Any], before: Any, after: Any) -> Any:
    """A result, which is the argument itself where the function works in place on that."""
    is_dirty = any(before is tensor for tensor in context.dirty_tensors)
    argument = changed.get(id(before)) if is_dirty else None
    return after if argument is None else argument.copy_(after)


def _is_smooth(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and is_inexact(value)


def _forward(cls: Any, context: Context, inputs: list[Any]) -> Any:
    if cls.setup_context is Function.setup_context:
        return cls.forward(context, *inputs)
    outputs = cls.forward(*inputs)
    cls.setup_context(context, tuple(inputs), outputs)
    return outputs


def _backward(
    cls: Any,
    context: Context,
    results: Sequence[Any],
    given: dict[int, torch.Tensor],
    args: Sequence[Any],
) -> list[torch.Tensor | None]:
    """The gradients of all arguments, of the forms that these have."""
    tensors = [isinstance(result, torch.Tensor) for result in results]
    zeros = context.materialize_grads
    slopes = [
        given.get(i, torch.zeros_like(result) if is_tensor and zeros else None)
        for i, (result, is_tensor) in enumerate(zip(results, tensors, strict=True))
    ]
    function = cls.backward if cls.vjp is Function.vjp else cls.vjp
    function = _once_differentiable(function) or function
    try:
        found = function(context, *slopes)
        gradients = list(found) if isinstance(found, tuple | list) else [found]
        if any(gradient is not None for gradient in gradients[len(args) :]):
            raise RuntimeError(f"it gives {len(gradients)} gradients for {len(args)} arguments")
        if len(gradients) < len(args):
            raise RuntimeError(f"it gives {len(gradients)} gradients for {len(args)} arguments")
        pairs = zip(gradients, args, strict=False)
        return [None if g is None else _as_form(g, x) for g, x in pairs]
    except IPUError:
        raise
    except Exception as error:
        name = f"torch.autograd.Function {cls.__qualname__}"
        is_missing = cls.backward is Function.backward and cls.vjp is Function.vjp
        where = line_of(cls.forward if is_missing else function)
        raise untraceable_backward(name, where, error) from error


def _once_differentiable(function: Any) -> Callable[..., Any] | None:
    """The backward pass itself of one that is marked as such; None for others."""
    code = getattr(function, "__code__", None)
    is_marked = code is not None and code.co_qualname.startswith("once_differentiable.")
    return function.__wrapped__ if is_marked else None


def _as_form(gradient: torch.Tensor, value: Any) -> torch.Tensor | None:
    """A gradient in the shape and dtype of what it is the gradient of."""
    if not isinstance(value, torch.Tensor) or not is_inexact(value):
        return None
    if gradient.shape != value.shape:
        gradient = gradient.sum_to_size(value.shape)
    if gradient.is_complex() and not value.is_complex():
        gradient = gradient.real
    return gradient if gradient.dtype == value.dtype else gradient.to(value.dtype)
