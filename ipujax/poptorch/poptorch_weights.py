"""The tensors of a trained module, which are updated from the device whenever they are read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from ipujax.doors.torch import to_torch
from ipujax.poptorch.poptorch_checks import check

Refresh = Callable[[], object]
"""A function that updates a module's tensors from the device."""


class _WatchedTensor:
    """A mixin of tensors that are updated whenever PyTorch uses them."""

    refresh: ClassVar[Any]
    """The wrapper's method that updates them: each watch has subclasses of its own."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> object:
        for kind in types:
            if issubclass(kind, _WatchedTensor):
                kind.update_from_device()
        with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
            return func(*args, **(kwargs or {}))

    @classmethod
    def update_from_device(cls) -> None:
        """Updates the tensors from the device, if there are newer weights."""
        cls.refresh()

    @classmethod
    def get_trainer(cls) -> Any:
        """Returns the wrapper that trains the tensors."""
        return cls.refresh.__self__

    def replicaGrouping(self, *_: object) -> None:
        """Raises an error: groups of replicas cannot have different values of a parameter.

        Raises:
          PopTorchError: (a `ValueError`) always: it is missing.
        """
        raise check.value_error(
            "replicaGrouping: all replicas have the same values of a parameter",
            "split the parameter over IPUs: give each part to a Block of its own",
        )

    def __reduce_ex__(self, protocol: object) -> Any:
        # Files and copies hold plain tensors, so that they can be read without us.
        return _copy_as_plain_tensor(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        memo[id(self)] = copied = _copy_as_plain_tensor(self, is_deep=True)
        return copied


def _copy_as_plain_tensor(tensor: Any, is_deep: bool = False) -> torch.Tensor:
    values = tensor.detach()
    values = values.clone() if is_deep else values
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(values, tensor.requires_grad)
    return values


class Watch:
    """A watch of a module's tensors that updates them from the device when they are read.

    The module itself gets a method `destroy`, which ends the watch. Until then the module and its
    tensors keep the wrapper alive, as it has their newest values.

    Args:
      module: the module.
      refresh: the wrapper's method that updates the tensors.
      destroy: the wrapper's method behind the module's `destroy`.
    """

    def __init__(self, module: torch.nn.Module, refresh: Refresh, destroy: Refresh):
        self._module = module
        self._plain = type(module)
        module.__class__ = _make_trained_class(self._plain, destroy)
        members = {"refresh": staticmethod(refresh)}
        self._kinds: dict[type, type[Any]] = {
            plain: type(f"Watched{plain.__name__}", (_WatchedTensor, plain), members)
            for plain in (torch.nn.Parameter, torch.Tensor)
        }
        for tensor in collect_named_tensors(module).values():
            if type(tensor) in self._kinds:
                tensor.__class__ = self._kinds[type(tensor)]

    def stop_watching(self) -> None:
        """Makes the tensors plain tensors again, and the module a plain module."""
        self._module.__class__ = self._plain
        plain: dict[type, type[Any]] = {kind: base for base, kind in self._kinds.items()}
        for tensor in collect_named_tensors(self._module).values():
            if type(tensor) in plain:
                tensor.__class__ = plain[type(tensor)]


def _make_trained_class(plain: type[torch.nn.Module], destroy_wrapper: Refresh) -> Any:
    """Makes the class of a module that is trained: its own class with a method `destroy`."""

    def destroy(self: torch.nn.Module) -> None:
        del self
        destroy_wrapper()

    def reduce_to_user_class(self: Any, protocol: Any) -> object:
        # Copies, and objects read from files, are of the user's own class. With later protocols,
        # `pickle` requires the object's class.
        constructor, (_, *args), *remaining_state = super(kind, self).__reduce_ex__(
            min(protocol, 1)
        )
        return (constructor, (plain, *args), *remaining_state)

    members = {"destroy": destroy, "__reduce_ex__": reduce_to_user_class, "__doc__": plain.__doc__}
    names = {"__module__": plain.__module__, "__qualname__": plain.__qualname__}
    kind = type(plain.__name__, (plain,), members | names)
    return kind


def find_trainer(parameter: torch.nn.Parameter) -> Any:
    """Returns the wrapper that trains a parameter of a module; None if none does."""
    return type(parameter).get_trainer() if isinstance(parameter, _WatchedTensor) else None


def collect_named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns a module's parameters and buffers by name, each once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


@contextlib.contextmanager
def suspend_watching(module: torch.nn.Module) -> Generator[None]:
    """Makes a module's tensors plain tensors with current values, in the block."""
    watched_tensors = [
        t for t in collect_named_tensors(module).values() if isinstance(t, _WatchedTensor)
    ]
    kinds = [type(tensor) for tensor in watched_tensors]
    for tensor in watched_tensors:
        type(tensor).update_from_device()
        tensor.__class__ = type(tensor).__mro__[2]
    try:
        yield
    finally:
        for tensor, kind in zip(watched_tensors, kinds, strict=True):
            tensor.__class__ = kind


@torch.no_grad()
def write_module_tensors(module: torch.nn.Module, values: Mapping[str, object]) -> None:
    """Writes values into a module's tensors, in their own memory and dtypes."""
    tensors = collect_named_tensors(module)
    with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
        for name, value in values.items():
            if name in tensors:
                tensors[name].data.copy_(to_torch(np.asarray(value)))
