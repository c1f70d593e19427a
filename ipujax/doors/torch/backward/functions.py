"""Tracing of `torch.autograd.Function` with the user's own backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from ipujax.doors.torch.backward import markers
from ipujax.doors.torch.backward.differentiable_values import is_inexact
from ipujax.doors.torch.torch_errors import first_line_of_function, untraceable_backward_error
from ipujax.ground import IPUError, PyTree


class Context(FunctionCtx):
    """The values that a function's forward pass saves for its backward pass."""

    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads = True

    def __init__(self) -> None:
        self.to_save: tuple[object, ...] = ()
        self.dirty_tensors: tuple[object, ...] = ()
        self.non_differentiable: tuple[object, ...] = ()

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors."""
        return tuple(self.to_save)

    saved_variables = saved_tensors


def trace_autograd_function(
    cls: Any, args: tuple[Any, ...], differentiable: Sequence[bool]
) -> PyTree:
    """Calls an autograd function with its own backward pass recorded in the trace.

    Args:
      cls: a `torch.autograd.Function`.
      args: the arguments of its `apply`.
      differentiable: for each argument, whether it has a gradient.

    Raises:
      FrontendError: (a `ValueError`) its backward pass cannot be traced.
    """
    number = markers.new_backward_number()
    positions = [i for i, flag in enumerate(differentiable) if flag]
    marked_inputs = markers.mark_inputs([args[i] for i in positions], number)
    inputs = list(args)
    for position, tensor in zip(positions, marked_inputs, strict=True):
        inputs[position] = tensor
    context = Context()
    context.needs_input_grad = tuple(differentiable)
    with torch.no_grad():
        outputs = _run_user_forward(cls, context, inputs)
    results = list(outputs) if isinstance(outputs, tuple) else [outputs]
    constant_ids = {id(tensor) for tensor in context.non_differentiable}
    smooth_positions = [
        i for i, x in enumerate(results) if _is_inexact_tensor(x) and id(x) not in constant_ids
    ]
    if smooth_positions:
        smooth_results = [results[i] for i in smooth_positions]
        output_gradients = markers.mark_output_gradients(smooth_results, number)
        gradients = _run_user_backward(
            cls, context, results, dict(zip(smooth_positions, output_gradients, strict=True)), args
        )
        input_gradients = [gradients[i] for i in positions]
        is_once = _unwrap_once_differentiable(cls.backward) is not None
        marked_outputs = markers.mark_outputs(
            smooth_results, marked_inputs, input_gradients, number, is_once=is_once
        )
        argument_of_marked = {id(x): args[i] for i, x in zip(positions, marked_inputs, strict=True)}
        for i, result, marked_result in zip(
            smooth_positions, smooth_results, marked_outputs, strict=True
        ):
            results[i] = _write_in_place(context, argument_of_marked, result, marked_result)
    return tuple(results) if isinstance(outputs, tuple) else results[0]


def _write_in_place(
    context: Context, argument_of_marked: dict[int, Any], result: Any, marked_result: Any
) -> PyTree:
    """Returns a result; writes it to the argument if the function declares it changed in place."""
    is_dirty = any(result is tensor for tensor in context.dirty_tensors)
    argument = argument_of_marked.get(id(result)) if is_dirty else None
    return marked_result if argument is None else argument.copy_(marked_result)


def _is_inexact_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor) and is_inexact(value)


def _run_user_forward(cls: Any, context: Context, inputs: list[Any]) -> PyTree:
    if cls.setup_context is Function.setup_context:
        return cls.forward(context, *inputs)
    outputs = cls.forward(*inputs)
    cls.setup_context(context, tuple(inputs), outputs)
    return outputs


def _run_user_backward(
    cls: Any,
    context: Context,
    results: Sequence[Any],
    gradient_of_result: dict[int, torch.Tensor],
    args: Sequence[object],
) -> list[torch.Tensor | None]:
    """Returns the gradients of all arguments, in their shapes and dtypes."""
    is_tensor_result = [isinstance(result, torch.Tensor) for result in results]
    fills_zeros = context.materialize_grads
    output_gradients = [
        gradient_of_result.get(i, torch.zeros_like(result) if is_tensor and fills_zeros else None)
        for i, (result, is_tensor) in enumerate(zip(results, is_tensor_result, strict=True))
    ]
    function = cls.backward if cls.vjp is Function.vjp else cls.vjp
    function = _unwrap_once_differentiable(function) or function
    try:
        returned = function(context, *output_gradients)
        gradients = list(returned) if isinstance(returned, tuple | list) else [returned]
        if any(gradient is not None for gradient in gradients[len(args) :]):
            raise RuntimeError(f"it gives {len(gradients)} gradients for {len(args)} arguments")
        if len(gradients) < len(args):
            raise RuntimeError(f"it gives {len(gradients)} gradients for {len(args)} arguments")
        pairs = zip(gradients, args, strict=False)
        return [None if g is None else _cast_gradient(g, x) for g, x in pairs]
    except IPUError:
        raise
    except Exception as error:
        name = f"torch.autograd.Function {cls.__qualname__}"
        is_missing = cls.backward is Function.backward and cls.vjp is Function.vjp
        location = first_line_of_function(cls.forward if is_missing else function)
        raise untraceable_backward_error(name, location, error) from error


def _unwrap_once_differentiable(function: Any) -> Callable[..., Any] | None:
    """Returns the backward pass inside `once_differentiable`; None if it is not wrapped."""
    code = getattr(function, "__code__", None)
    is_marked = code is not None and code.co_qualname.startswith("once_differentiable.")
    return function.__wrapped__ if is_marked else None


def _cast_gradient(gradient: torch.Tensor, value: object) -> torch.Tensor | None:
    """Returns a gradient in the shape and dtype of the value it belongs to."""
    if not isinstance(value, torch.Tensor) or not is_inexact(value):
        return None
    if gradient.shape != value.shape:
        gradient = gradient.sum_to_size(value.shape)
    if gradient.is_complex() and not value.is_complex():
        gradient = gradient.real
    return gradient if gradient.dtype == value.dtype else gradient.to(value.dtype)
