"""Tracing of backward hooks of tensors, parameters and modules."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from ipujax.doors.torch.backward import markers
from ipujax.doors.torch.backward.differentiable_values import BackwardUse, find_differentiable
from ipujax.doors.torch.torch_errors import first_line_of_function, untraceable_backward_error
from ipujax.ground import FrontendError, IPUError, PyTree

Hook = Callable[..., Any]


def trace_tensor_hook(tensor: torch.Tensor, hook: Hook) -> RemovableHandle:
    """Records a hook of `Tensor.register_hook` in the trace."""
    number = markers.new_backward_number()
    (incoming,) = markers.mark_output_gradients([tensor], number)
    hook_result = _call_hook(hook, "Tensor.register_hook", incoming)
    gradient = incoming if hook_result is None else hook_result
    markers.mark_hooked_tensors([tensor], [gradient], number)
    return RemovableHandle(OrderedDict())


def _call_hook(hook: Hook, name: str, *args: object) -> PyTree:
    """Calls a hook and returns its result.

    Raises:
      FrontendError: (a `ValueError`) the hook cannot be traced.
    """
    try:
        return hook(*args)
    except IPUError:
        raise
    except Exception as error:
        raise untraceable_backward_error(
            f"the hook of {name}", first_line_of_function(hook), error
        ) from error


def refuse_post_accumulate(owner: str, location: str | None) -> FrontendError:
    """Returns the error for a hook that runs after gradients are accumulated."""
    return FrontendError(
        f"{owner} has a hook of register_post_accumulate_grad_hook, which cannot be converted: "
        "gradients are accumulated on IPUs",
        where=location,
        fix="use Tensor.register_hook for what changes a gradient, and the optimizer for the rest",
    )


@contextlib.contextmanager
def trace_parameter_hooks(module: torch.nn.Module, kept_backward: Any) -> Generator[None]:
    """Traces a module so that its parameters' hooks come first."""
    parameters = dict(module.named_parameters())
    hooks = {
        name: list(parameter._backward_hooks.values())
        for name, parameter in parameters.items()
        if parameter._backward_hooks
    }
    kept_backward.has_any = bool(hooks)

    def trace_hooks_first(*_args: object) -> None:
        _refuse_untraceable_hooks(module, kept_backward)
        for name, parameter_hooks in hooks.items():
            module_path, _, attribute = name.rpartition(".")
            tensor = getattr(module.get_submodule(module_path), attribute)
            for hook in parameter_hooks:
                trace_tensor_hook(tensor, hook)

    handle = module.register_forward_pre_hook(trace_hooks_first, prepend=True)
    try:
        yield
    finally:
        handle.remove()


def _refuse_untraceable_hooks(module: torch.nn.Module, kept_backward: Any) -> None:
    for name, parameter in module.named_parameters():
        accumulate_hooks: Mapping[int, Hook] = (
            getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
        )
        for hook in accumulate_hooks.values():
            kept_backward.has_any = True
            raise refuse_post_accumulate(f"parameter {name!r}", first_line_of_function(hook))
    for path, part in module.named_modules():
        if part._is_full_backward_hook is False and part._backward_hooks:
            kept_backward.has_any = True
            hook = next(iter(part._backward_hooks.values()))
            raise FrontendError(
                f"module {path!r} ({type(part).__name__}) has a hook of register_backward_hook, "
                "which takes the gradients of the module's last operator only",
                where=first_line_of_function(hook),
                fix="use register_full_backward_hook",
            )


class ModuleHook:
    """A replacement of PyTorch's `BackwardHook` that works in a trace.

    The hook is recorded at the module's inputs. Zeros that run from the inputs to the outputs carry
    the gradients of the outputs to it.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        user_hooks: Sequence[Hook],
        user_pre_hooks: Sequence[Hook],
        use: BackwardUse,
    ) -> None:
        self._module, self._use = module, use
        self._hooks, self._pre_hooks = list(user_hooks), list(user_pre_hooks)
        self._inputs: dict[int, torch.Tensor] = {}
        self._input_count = 0

    def setup_input_hook(self, args: Any) -> PyTree:
        """Returns the inputs as the module sees them."""
        self._inputs = self._map_differentiable(args, lambda x: x.view_as(x))
        self._input_count = len(args)
        return _replace_items(args, self._inputs)

    def setup_output_hook(self, result: Any) -> PyTree:
        """Returns the outputs as operators outside of the module see them."""
        values = result if isinstance(result, tuple) else (result,)
        outputs = self._map_differentiable(values, lambda x: x)
        if not outputs:
            return result
        carriers = self._trace_hooks_at_inputs(outputs, len(values)) if self._hooks else []
        number = markers.new_backward_number()
        marked = markers.mark_inputs([*outputs.values(), *carriers], number)
        marked_outputs = marked[: len(outputs)]
        output_gradients = _pack_with_none(
            outputs, markers.mark_output_gradients(marked_outputs, number), len(values)
        )
        for hook in self._pre_hooks:
            hook_result = _call_hook(
                hook, "register_full_backward_pre_hook", self._module, output_gradients
            )
            output_gradients = _check_hook_result(
                hook_result, output_gradients, "Backward pre hook", "grad_output"
            )
        if self._hooks and not self._inputs:
            self._call_without_inputs(output_gradients)
        gradients = [output_gradients[i] for i in outputs]
        hooked_outputs = markers.mark_outputs(
            marked_outputs, marked, [*gradients, *(gradients if carriers else ())], number
        )
        values = _replace_items(values, dict(zip(outputs, hooked_outputs, strict=True)))
        return values if isinstance(result, tuple) else values[0]

    def _map_differentiable(self, values: Any, change: Hook) -> dict[int, torch.Tensor]:
        if not torch.is_grad_enabled():
            return {}
        flags = find_differentiable(values, self._use)
        return {i: change(x) for i, (x, flag) in enumerate(zip(values, flags, strict=True)) if flag}

    def _trace_hooks_at_inputs(
        self, outputs: Mapping[int, torch.Tensor], count: int
    ) -> list[torch.Tensor]:
        """Records the hooks at the inputs; returns zeros whose gradients are the outputs'."""
        if not self._inputs:
            return []
        number = markers.new_backward_number()
        zeros = [torch.zeros(x.shape, dtype=x.dtype) for x in outputs.values()]
        tensors = [*self._inputs.values(), *zeros]
        incoming = markers.mark_output_gradients(tensors, number)
        input_gradients = _pack_with_none(
            self._inputs, incoming[: len(self._inputs)], self._input_count
        )
        output_gradients = _pack_with_none(outputs, incoming[len(self._inputs) :], count)
        for hook in self._hooks:
            name = "register_full_backward_hook"
            changed = _call_hook(hook, name, self._module, input_gradients, output_gradients)
            input_gradients = _check_hook_result(
                changed, input_gradients, "Backward hook", "grad_input"
            )
        gradients = [input_gradients[i] for i in self._inputs]
        changed = markers.mark_hooked_tensors(tensors, [*gradients, *(None for _ in zeros)], number)
        return changed[len(self._inputs) :]

    def _call_without_inputs(self, output_gradients: tuple[object, ...]) -> None:
        """Calls the hooks of a module without differentiable inputs: they only observe."""
        no_gradients = (None,) * self._input_count
        for hook in self._hooks:
            name = "register_full_backward_hook"
            hook_result = _call_hook(hook, name, self._module, no_gradients, output_gradients)
            if hook_result is not None and any(gradient is not None for gradient in hook_result):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )


def _pack_with_none(
    positions: Mapping[int, object], values: Sequence[torch.Tensor], count: int
) -> tuple[torch.Tensor | None, ...]:
    """Returns a tuple with values at their positions and None elsewhere."""
    value_at = dict(zip(positions, values, strict=True))
    return tuple(value_at.get(i) for i in range(count))


def _check_hook_result(
    hook_result: object, incoming: tuple[object, ...], hook_name: str, gradient_name: str
) -> tuple[Any, ...]:
    if hook_result is None:
        return incoming
    hook_result = hook_result if isinstance(hook_result, tuple | list) else (hook_result,)
    if len(hook_result) != len(incoming):
        raise RuntimeError(
            f"{hook_name} returned an invalid number of {gradient_name}, got {len(hook_result)}, "
            f"but expected {len(incoming)}"
        )
    return tuple(hook_result)


def _replace_items(values: Any, replacements: Mapping[int, Any]) -> PyTree:
    items = [replacements.get(i, value) for i, value in enumerate(values)]
    return type(values)(*items) if hasattr(values, "_fields") else tuple(items)
