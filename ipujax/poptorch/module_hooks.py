"""The user's hooks that are called before and after a module is compiled."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch.utils.hooks import RemovableHandle

from ipujax.ground import PopTorchHookError
from ipujax.poptorch.poptorch_checks import check

Hook = Callable[[], Any]


_pre_compile_hooks: OrderedDict[int, Hook] = OrderedDict()
_post_compile_hooks: OrderedDict[int, Hook] = OrderedDict()


@check.guard
def registerPreCompileHook(hook: Hook) -> RemovableHandle:
    """Registers a function that is called before each compilation, after earlier hooks.

    Args:
      hook: called without arguments.

    Returns:
      A handle whose `remove()` unregisters the function.

    Raises:
      Error: (a `RuntimeError`) the hook is not callable.
    """
    return _register_hook(_pre_compile_hooks, hook, "registerPreCompileHook")


@check.guard
def registerPostCompileHook(hook: Hook) -> RemovableHandle:
    """Registers a function that is called after each compilation, after earlier hooks."""
    return _register_hook(_post_compile_hooks, hook, "registerPostCompileHook")


def _register_hook(hooks: OrderedDict[int, Hook], hook: Hook, name: str) -> RemovableHandle:
    if not callable(hook):
        raise PopTorchHookError(f"the hook of {name} must be callable, and is {hook!r}")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def call_pre_compile_hooks() -> None:
    """Calls the hooks of `registerPreCompileHook`."""
    for hook in list(_pre_compile_hooks.values()):
        hook()


def call_post_compile_hooks() -> None:
    """Calls the hooks of `registerPostCompileHook`."""
    for hook in list(_post_compile_hooks.values()):
        hook()
