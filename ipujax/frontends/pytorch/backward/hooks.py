"""Hooks of tensors, parameters and modules in a trace."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from ipujax.errors import FrontendError, IPUError
from ipujax.frontends.pytorch.backward import markers
from ipujax.frontends.pytorch.backward.needs import BackwardUse, is_differentiable
from ipujax.frontends.pytorch.errors import line_of, untraceable_backward

Hook = Callable[..., Any]


def register(tensor: torch.Tensor, hook: Hook) -> RemovableHandle:
    """As `Tensor.register_hook`: the trace has what the hook computes."""
    number = markers.new_number()
    (given,) = markers.gradients_of([tensor], number)
    changed = _called(hook, "Tensor.register_hook", given)
    gradient = given if changed is None else changed
    markers.hook([tensor], [gradient], number)
    return RemovableHandle(OrderedDict())


def _called(hook: Hook, name: str, *args: Any) -> Any:
    """What a hook gives.

    Raises:
      FrontendError: (a `ValueError`) it cannot be traced.
    """
    try:
        return hook(*args)
    except IPUError:
        raise
    except Exception as error:
        raise untraceable_backward(f"the hook of {name}", line_of(hook), error) from error


def refuse_post_accumulate(what: str, where: str | None) -> FrontendError:
    """The error of a hook that PyTorch calls after it has added up gradients."""
    return FrontendError(
        f"{what} has a hook of register_post_accumulate_grad_hook, which cannot be converted: "
        "gradients are added up on IPUs",
        where=where,
        fix="use Tensor.register_hook for what changes a gradient, and the optimizer for the rest",
    )


@contextlib.contextmanager
def of_parameters(module: torch.nn.Module, kept: Any) -> Generator[None]:
    """The trace of the module begins with the hooks of its parameters, as they are now."""
    parameters = dict(module.named_parameters())
    hooks = {
        name: list(parameter._backward_hooks.values())
        for name, parameter in parameters.items()
        if parameter._backward_hooks
    }
    kept.has_any = bool(hooks)

    def begin(*_args: Any) -> None:
        _refuse_what_has_no_place(module, kept)
        for name, own in hooks.items():
            owner, _, attribute = name.rpartition(".")
            tensor = getattr(module.get_submodule(owner), attribute)
            for hook in own:
                register(tensor, hook)

    handle = module.register_forward_pre_hook(begin, prepend=True)
    try:
        yield
    finally:
        handle.remove()


def _refuse_what_has_no_place(module: torch.nn.Module, kept: Any) -> None:
    for name, parameter in module.named_parameters():
        own: Mapping[int, Hook] = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
        for hook in own.values():
            kept.has_any = True
            raise refuse_post_accumulate(f"parameter {name!r}", line_of(hook))
    for path, part in module.named_modules():
        if part._is_full_backward_hook is False and part._backward_hooks:
            kept.has_any = True
            hook = next(iter(part._backward_hooks.values()))
            raise FrontendError(
                f"module {path!r} ({type(part).__name__}) has a hook of register_backward_hook, "
                "which sees gradients of whichever operator was the last",
                where=line_of(hook),
                fix="use register_full_backward_hook",
            )


class ModuleHook:
    """As PyTorch's `BackwardHook`, in a trace.

    The gradients of a module's outputs come to the hook, which stands at the inputs, as those of
    zeros that go from the inputs to the outputs.
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

    def setup_input_hook(self, args: Any) -> Any:
        """The inputs, as the module sees them."""
        self._inputs = self._smooth(args, lambda x: x.view_as(x))
        self._input_count = len(args)
        return _with_values(args, self._inputs)

    def setup_output_hook(self, result: Any) -> Any:
        """The outputs, as all others see them."""
        values = result if isinstance(result, tuple) else (result,)
        outputs = self._smooth(values, lambda x: x)
        if not outputs:
            return result
        beside = self._hook_at_inputs(outputs, len(values)) if self._hooks else []
        number = markers.new_number()
        entered = markers.enter([*outputs.values(), *beside], number)
        own = entered[: len(outputs)]
        given = _packed(outputs, markers.gradients_of(own, number), len(values))
        for hook in self._pre_hooks:
            changed = _called(hook, "register_full_backward_pre_hook", self._module, given)
            given = _checked(changed, given, "Backward pre hook", "grad_output")
        if self._hooks and not self._inputs:
            self._call_without_inputs(given)
        gradients = [given[i] for i in outputs]
        left = markers.leave(own, entered, [*gradients, *(gradients if beside else ())], number)
        values = _with_values(values, dict(zip(outputs, left, strict=True)))
        return values if isinstance(result, tuple) else values[0]

    def _smooth(self, values: Any, change: Hook) -> dict[int, torch.Tensor]:
        if not torch.is_grad_enabled():
            return {}
        flags = is_differentiable(values, self._use)
        return {i: change(x) for i, (x, flag) in enumerate(zip(values, flags, strict=True)) if flag}

    def _hook_at_inputs(
        self, outputs: Mapping[int, torch.Tensor], count: int
    ) -> list[torch.Tensor]:
        """Zeros whose gradients are those of the outputs."""
        if not self._inputs:
            return []
        number = markers.new_number()
        zeros = [torch.zeros(x.shape, dtype=x.dtype) for x in outputs.values()]
        tensors = [*self._inputs.values(), *zeros]
        given = markers.gradients_of(tensors, number)
        of_inputs = _packed(self._inputs, given[: len(self._inputs)], self._input_count)
        of_outputs = _packed(outputs, given[len(self._inputs) :], count)
        for hook in self._hooks:
            name = "register_full_backward_hook"
            changed = _called(hook, name, self._module, of_inputs, of_outputs)
            of_inputs = _checked(changed, of_inputs, "Backward hook", "grad_input")
        gradients = [of_inputs[i] for i in self._inputs]
        changed = markers.hook(tensors, [*gradients, *(None for _ in zeros)], number)
        return changed[len(self._inputs) :]

    def _call_without_inputs(self, of_outputs: tuple[Any, ...]) -> None:
        """Calls hooks of a module none of whose inputs has a gradient: they can only observe."""
        nothing = (None,) * self._input_count
        for hook in self._hooks:
            name = "register_full_backward_hook"
            changed = _called(hook, name, self._module, nothing, of_outputs)
            if changed is not None and any(gradient is not None for gradient in changed):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )


def _packed(
    places: Mapping[int, Any], values: Sequence[torch.Tensor], count: int
) -> tuple[Any, ...]:
    """Values at their places among others, which are None."""
    found = dict(zip(places, values, strict=True))
    return tuple(found.get(i) for i in range(count))


def _checked(changed: Any, before: tuple[Any, ...], what: str, gradients: str) -> tuple[Any, ...]:
    if changed is None:
        return before
    changed = changed if isinstance(changed, tuple | list) else (changed,)
    if len(changed) != len(before):
        raise RuntimeError(
            f"{what} returned an invalid number of {gradients}, got {len(changed)}, but expected "
            f"{len(before)}"
        )
    return tuple(changed)


def _with_values(values: Any, changed: Mapping[int, Any]) -> Any:
    items = [changed.get(i, value) for i, value in enumerate(values)]
    return type(values)(*items) if hasattr(values, "_fields") else tuple(items)
