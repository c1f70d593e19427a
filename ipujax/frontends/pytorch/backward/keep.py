"""Traces a module with the backward passes that its user wrote."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import contextvars
import dataclasses as dc
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import Function
from torch.nn.modules import module as module_code
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from ipujax.errors import FrontendError
from ipujax.frontends.pytorch.backward import functions, hooks
from ipujax.frontends.pytorch.backward.needs import BackwardUse as BackwardUse
from ipujax.frontends.pytorch.backward.needs import is_differentiable
from ipujax.frontends.pytorch.errors import is_users


@dc.dataclass(eq=False)
class KeptBackward:
    """The backward passes of the user's that a trace came to.

    Attributes:
      use: whose gradients are wanted.
      has_any: whether there is any.
    """

    use: BackwardUse
    has_any: bool = False


_current: contextvars.ContextVar[KeptBackward | None] = contextvars.ContextVar(
    "kept backward passes", default=None
)

# Whose `apply` that of `Function` calls: users keep `MyFunction.apply` in variables of their own.
_BASE: Any = Function.__bases__[0]


@contextlib.contextmanager
def keep_backward(module: torch.nn.Module, use: BackwardUse) -> Generator[KeptBackward]:
    """Traces in the block have the backward passes of functions and hooks in them.

    Args:
      module: what is traced.
      use: whose gradients are wanted; without any, forward passes alone are traced.
    """
    kept = KeptBackward(use)
    token = _current.set(kept)
    with contextlib.ExitStack() as stack:
        stack.callback(_current.reset, token)
        _substitute(stack, _BASE, "apply", classmethod(_apply))
        _substitute(stack, torch.autograd, "_engine_run_backward", _run_backward)
        if use is not BackwardUse.NONE:
            _substitute(stack, module_code, "BackwardHook", _module_hook)
            saved_hooks: Any = torch.autograd.graph.saved_tensors_hooks
            _substitute(stack, saved_hooks, "__enter__", _enter_saved_hooks)
            stack.enter_context(hooks.of_parameters(module, kept))
            stack.enter_context(_Hooking(kept))
        yield kept


_MISSING = object()


def _substitute(stack: contextlib.ExitStack, holder: Any, name: str, substitute: Any) -> None:
    """Replaces an attribute until the stack ends."""
    before = vars(holder).get(name, _MISSING)
    setattr(holder, name, substitute)
    if before is _MISSING:
        stack.callback(delattr, holder, name)
    else:
        stack.callback(setattr, holder, name, before)


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """As `Function.apply`, in a trace with the function's own backward pass."""
    kept = _current.get()
    if kept is None or not torch.is_grad_enabled():
        return super(_BASE, cls).apply(*args, **kwargs)
    if cls is CheckpointFunction:
        return _checkpointed(kept.use, *args)
    differentiable = is_differentiable(args, kept.use)
    if not issubclass(cls, Function) or _is_pytorchs(cls) or not any(differentiable):
        return super(_BASE, cls).apply(*args, **kwargs)
    kept.has_any = True
    return functions.call(cls, args, differentiable)


def _is_pytorchs(cls: type) -> bool:
    """Whether a function is PyTorch's own, whose forward pass has the same derivative."""
    name = cls.__module__
    return name.startswith("torch.") and not name.startswith("torch._functorch.")


def _checkpointed(use: BackwardUse, function: Callable[..., Any], _: Any, *args: Any) -> Any:
    """What a checkpoint gives: without gradients where none of its arguments has any."""
    with torch.set_grad_enabled(use is BackwardUse.ALL or any(is_differentiable(args, use))):
        return function(*args)


def _module_hook(module: Any, user_hooks: Any, user_pre_hooks: Any) -> Any:
    kept = _current.get()
    if kept is None:
        return torch.utils.hooks.BackwardHook(module, user_hooks, user_pre_hooks)
    kept.has_any = True
    return hooks.ModuleHook(module, user_hooks, user_pre_hooks, kept.use)


_enter_before: Any = torch.autograd.graph.saved_tensors_hooks.__enter__


def _run_backward(*_: Any, accumulate_grad: bool = False, **__: Any) -> Any:
    """Refuses what PyTorch computes beside the trace: its gradients would be constants."""
    kept = _current.get()
    if kept is not None:
        kept.has_any = True
    raise FrontendError(
        f"{'backward()' if accumulate_grad else 'torch.autograd.grad'} in a model that is traced "
        "cannot be converted",
        where=user_line(),
        fix="write the derivative as operators of PyTorch",
    )


def _enter_saved_hooks(self: Any) -> Any:
    """As PyTorch's; hooks of the user's could change what is saved, and JAX saves it here."""
    kept = _current.get()
    code = getattr(self.pack_hook, "__code__", None)
    if kept is not None and torch.is_grad_enabled() and code and is_users(code.co_filename):
        kept.has_any = True
        raise FrontendError(
            "torch.autograd.graph.saved_tensors_hooks changes what a backward pass is given, and "
            "cannot be converted",
            where=f"{code.co_filename}:{code.co_firstlineno}",
            fix="write a torch.autograd.Function that saves what its backward needs",
        )
    return _enter_before(self)


def user_line() -> str | None:
    """The innermost line of the user's that is running."""
    frame = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


class _Hooking(TorchFunctionMode):
    """Has hooks of tensors be part of the trace."""

    def __init__(self, kept: KeptBackward) -> None:
        super().__init__()
        self._kept = kept

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.Tensor.register_hook:
            self._kept.has_any = True
            return hooks.register(*args, **(kwargs or {}))
        if func is torch.Tensor.register_post_accumulate_grad_hook:
            self._kept.has_any = True
            raise hooks.refuse_post_accumulate("a tensor", user_line())
        return func(*args, **(kwargs or {}))
