"""Functions that are called before and after a module is compiled."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch.utils.hooks import RemovableHandle

from ipujax.errors import PopTorchHookError
from ipujax.poptorch.checks import check

Hook = Callable[[], Any]


_before: OrderedDict[int, Hook] = OrderedDict()
_after: OrderedDict[int, Hook] = OrderedDict()


@check.guard
def registerPreCompileHook(hook: Hook) -> RemovableHandle:
    """Has a function be called before each compilation, after those that were there before.

    Args:
      hook: called without arguments.

    Returns:
      Something whose `remove()` takes it back.

    Raises:
      Error: (a `RuntimeError`) it is no function.
    """
    return _registered(_before, hook, "registerPreCompileHook")


@check.guard
def registerPostCompileHook(hook: Hook) -> RemovableHandle:
    """As `registerPreCompileHook`, but it is called after each compilation."""
    return _registered(_after, hook, "registerPostCompileHook")


def _registered(hooks: OrderedDict[int, Hook], hook: Hook, name: str) -> RemovableHandle:
    if not callable(hook):
        raise PopTorchHookError(f"the hook of {name} must be callable, and is {hook!r}")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def before_compilation() -> None:
    """Calls the functions of `registerPreCompileHook`."""
    for hook in list(_before.values()):
        hook()


def after_compilation() -> None:
    """Calls the functions of `registerPostCompileHook`."""
    for hook in list(_after.values()):
        hook()
