"""The module stays the owner of its parameters: whoever reads them sees what the device has."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Generator, Mapping
from typing import Any

import numpy as np
import torch

from ipujax.frontends.pytorch.arrays import to_torch
from ipujax.poptorch.checks import check

Refresh = Callable[[], object]
"""Brings the values of a module's tensors up to date."""

_refreshes: dict[type, weakref.ReferenceType[Any]] = {}


class _Read:
    """A mixin of tensors that are brought up to date whenever PyTorch does anything with them."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for kind in types:
            if issubclass(kind, _Read):
                kind.refresh()
        with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
            return func(*args, **(kwargs or {}))

    @classmethod
    def refresh(cls) -> None:
        """Asks whoever trains the tensors, if there still is somebody."""
        if (refresh := _refreshes[cls]()) is not None:
            refresh()

    @classmethod
    def watcher(cls) -> Any:
        """Whoever trains the tensors; None if nobody does any more."""
        refresh = _refreshes[cls]()
        return None if refresh is None else refresh.__self__

    def replicaGrouping(self, *_: Any) -> None:
        """A value of its own for each group of replicas.

        Raises:
          PopTorchError: (a `ValueError`) always: it is missing.
        """
        raise check.refuse(
            "replicaGrouping: all replicas have the same values of a parameter",
            "split the parameter over IPUs: give each part to a Block of its own",
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Files and copies hold plain tensors, so that they can be read without us.
        return _plain_copy(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo[id(self)] = copied = _plain_copy(self, is_deep=True)
        return copied


def _plain_copy(tensor: Any, is_deep: bool = False) -> Any:
    values = tensor.detach()
    values = values.clone() if is_deep else values
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(values, tensor.requires_grad)
    return values


class Watch:
    """Has a module's tensors ask for their values when they are read.

    The module itself gets a method `destroy`, which ends that.

    Args:
      module: whose.
      refresh: a bound method, which is not kept alive.
      destroy: another one.
    """

    def __init__(self, module: torch.nn.Module, refresh: Refresh, destroy: Refresh):
        self._module = module
        self._plain = type(module)
        module.__class__ = _wrapped(self._plain, weakref.WeakMethod(destroy))  # pyright: ignore[reportArgumentType]
        self._kinds: dict[type, type[Any]] = {
            plain: type(f"Watched{plain.__name__}", (_Read, plain), {})
            for plain in (torch.nn.Parameter, torch.Tensor)
        }
        for kind in self._kinds.values():
            _refreshes[kind] = weakref.WeakMethod(refresh)  # pyright: ignore[reportArgumentType]
        for tensor in tensors_of(module).values():
            if type(tensor) in self._kinds:
                tensor.__class__ = self._kinds[type(tensor)]

    def end(self) -> None:
        """Makes them plain tensors again, and the module a plain module."""
        self._module.__class__ = self._plain
        plain: dict[type, type[Any]] = {kind: base for base, kind in self._kinds.items()}
        for tensor in tensors_of(self._module).values():
            if type(tensor) in plain:
                tensor.__class__ = plain[type(tensor)]


def _wrapped(plain: type[torch.nn.Module], end: Callable[[], Refresh | None]) -> Any:
    """The class of a module that is trained: its own, with `destroy`."""

    def destroy(self: torch.nn.Module) -> None:
        del self
        if (owner := end()) is not None:
            owner()

    def reduced(self: Any, protocol: Any) -> Any:
        # Copies, and what is read from files, are of the user's own class. Of later protocols,
        # `pickle` wants the object's.
        how, (_, *args), *rest = super(kind, self).__reduce_ex__(min(protocol, 1))
        return (how, (plain, *args), *rest)

    members = {"destroy": destroy, "__reduce_ex__": reduced, "__doc__": plain.__doc__}
    names = {"__module__": plain.__module__, "__qualname__": plain.__qualname__}
    kind = type(plain.__name__, (plain,), members | names)
    return kind


def watcher_of(parameter: torch.nn.Parameter) -> Any:
    """Whoever trains a parameter of a module; None if nobody does."""
    return type(parameter).watcher() if isinstance(parameter, _Read) else None


def tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A module's parameters and buffers by name; each once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


@contextlib.contextmanager
def unwatched(module: torch.nn.Module) -> Generator[None]:
    """In the block the module has plain tensors, which are up to date."""
    watched = [t for t in tensors_of(module).values() if isinstance(t, _Read)]
    kinds = [type(tensor) for tensor in watched]
    for tensor in watched:
        type(tensor).refresh()
        tensor.__class__ = type(tensor).__mro__[2]
    try:
        yield
    finally:
        for tensor, kind in zip(watched, kinds, strict=True):
            tensor.__class__ = kind


@torch.no_grad()
def write(module: torch.nn.Module, values: Mapping[str, Any]) -> None:
    """Gives a module's tensors new values, in their own memory and dtypes."""
    tensors = tensors_of(module)
    with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
        for name, value in values.items():
            if name in tensors:
                tensors[name].data.copy_(to_torch(np.asarray(value)))
