"""Tracing of a module with its user-written backward passes."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import contextvars
import dataclasses as dc
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch.autograd import Function
from torch.nn.modules import module as module_code
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from ipujax.doors.torch.backward import functions, gradient_hooks
from ipujax.doors.torch.backward.differentiable_values import BackwardUse as BackwardUse
from ipujax.doors.torch.backward.differentiable_values import find_differentiable
from ipujax.doors.torch.torch_errors import is_user_code
from ipujax.ground import FrontendError, PyTree


@dc.dataclass(eq=False)
class KeptBackward:
    """The user-written backward passes that a trace has met.

    Attributes:
      use: the values whose gradients are computed.
      has_any: whether the trace has met a user-written backward pass.
    """

    use: BackwardUse
    has_any: bool = False


_current: contextvars.ContextVar[KeptBackward | None] = contextvars.ContextVar(
    "kept backward passes", default=None
)

# `Function.apply` calls the `apply` of this base; patched here, since users store `F.apply`.
_BASE: Any = Function.__bases__[0]


@contextlib.contextmanager
def keep_backward(module: torch.nn.Module, use: BackwardUse) -> Generator[KeptBackward]:
    """Records the backward passes of functions and hooks in traces in the block.

    Args:
      module: the traced module.
      use: the values whose gradients are computed; with NONE, only forward passes are traced.
    """
    kept_backward = KeptBackward(use)
    token = _current.set(kept_backward)
    with contextlib.ExitStack() as stack:
        stack.callback(_current.reset, token)
        _patch_attribute(stack, _BASE, "apply", classmethod(_apply_in_trace))
        _patch_attribute(stack, torch.autograd, "_engine_run_backward", _refuse_eager_backward)
        if use is not BackwardUse.NONE:
            _patch_attribute(stack, module_code, "BackwardHook", _make_module_hook)
            saved_hooks: object = torch.autograd.graph.saved_tensors_hooks
            _patch_attribute(stack, saved_hooks, "__enter__", _refuse_user_saved_hooks)
            stack.enter_context(gradient_hooks.trace_parameter_hooks(module, kept_backward))
            stack.enter_context(_TraceTensorHooks(kept_backward))
        yield kept_backward


_MISSING = object()


def _patch_attribute(
    stack: contextlib.ExitStack, holder: object, name: str, substitute: object
) -> None:
    """Replaces an attribute until the stack closes."""
    original = vars(holder).get(name, _MISSING)
    setattr(holder, name, substitute)
    if original is _MISSING:
        stack.callback(delattr, holder, name)
    else:
        stack.callback(setattr, holder, name, original)


def _apply_in_trace(cls: Any, *args: Any, **kwargs: object) -> PyTree:
    """Replaces `Function.apply` in a trace, which then has the user's backward pass."""
    kept_backward = _current.get()
    if kept_backward is None or not torch.is_grad_enabled():
        return super(_BASE, cls).apply(*args, **kwargs)
    if cls is CheckpointFunction:
        return _run_checkpoint(kept_backward.use, *args)
    differentiable = find_differentiable(args, kept_backward.use)
    if not issubclass(cls, Function) or _is_defined_by_pytorch(cls) or not any(differentiable):
        return super(_BASE, cls).apply(*args, **kwargs)
    kept_backward.has_any = True
    return functions.trace_autograd_function(cls, args, differentiable)


def _is_defined_by_pytorch(cls: type) -> bool:
    """Returns whether PyTorch defines a function, whose forward pass then has its derivative."""
    name = cls.__module__
    return name.startswith("torch.") and not name.startswith("torch._functorch.")


def _run_checkpoint(
    use: BackwardUse, function: Callable[..., object], _: object, *args: object
) -> PyTree:
    """Runs a checkpointed function, without gradients where no argument has any."""
    with torch.set_grad_enabled(use is BackwardUse.ALL or any(find_differentiable(args, use))):
        return function(*args)


def _make_module_hook(module: Any, user_hooks: Any, user_pre_hooks: Any) -> Any:
    kept_backward = _current.get()
    if kept_backward is None:
        return torch.utils.hooks.BackwardHook(module, user_hooks, user_pre_hooks)
    kept_backward.has_any = True
    return gradient_hooks.ModuleHook(module, user_hooks, user_pre_hooks, kept_backward.use)


_original_enter_saved_hooks: Any = torch.autograd.graph.saved_tensors_hooks.__enter__


def _refuse_eager_backward(*_: object, accumulate_grad: bool = False, **__: object) -> NoReturn:
    """Refuses gradients computed during the trace, which would become constants."""
    kept_backward = _current.get()
    if kept_backward is not None:
        kept_backward.has_any = True
    raise FrontendError(
        f"{'backward()' if accumulate_grad else 'torch.autograd.grad'} in a model that is traced "
        "cannot be converted",
        where=innermost_user_line(),
        fix="write the derivative as operators of PyTorch",
    )


def _refuse_user_saved_hooks(self: Any) -> object:
    """Enters PyTorch's own saved-tensor hooks and refuses those of the user."""
    kept_backward = _current.get()
    code = getattr(self.pack_hook, "__code__", None)
    if (
        kept_backward is not None
        and torch.is_grad_enabled()
        and code
        and is_user_code(code.co_filename)
    ):
        kept_backward.has_any = True
        raise FrontendError(
            "torch.autograd.graph.saved_tensors_hooks changes what a backward pass is given, and "
            "cannot be converted",
            where=f"{code.co_filename}:{code.co_firstlineno}",
            fix="write a torch.autograd.Function that saves what its backward needs",
        )
    return _original_enter_saved_hooks(self)


def innermost_user_line() -> str | None:
    """Returns the innermost line of user code on the call stack."""
    frame = sys._getframe(1)
    while frame is not None and not is_user_code(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


class _TraceTensorHooks(TorchFunctionMode):
    """A mode in which hooks registered on tensors become part of the trace."""

    def __init__(self, kept_backward: KeptBackward) -> None:
        super().__init__()
        self._kept = kept_backward

    def __torch_function__(
        self,
        func: Any,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func is torch.Tensor.register_hook:
            self._kept.has_any = True
            return gradient_hooks.trace_tensor_hook(*args, **(kwargs or {}))
        if func is torch.Tensor.register_post_accumulate_grad_hook:
            self._kept.has_any = True
            raise gradient_hooks.refuse_post_accumulate("a tensor", innermost_user_line())
        return func(*args, **(kwargs or {}))
