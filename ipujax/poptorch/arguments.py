"""The arguments of a wrapped module: bound to its parameters, and compared with the first ones."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple, cast

import torch

from ipujax.errors import PopTorchError
from ipujax.poptorch.structures import flatten, rebuild

_ENDS = (
    "the model was compiled for other arguments; make another wrapper for these, or call "
    "destroy() on this one"
)


class Arguments(NamedTuple):
    """Of one call, with the defaults of what is not given.

    Attributes:
      args: by position, as many as the signature lets have positions.
      kwargs: the others, by name.
      names: of `args`.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: tuple[str, ...]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors in them, in order."""
        return flatten((self.args, self.kwargs))

    def forms(self) -> Arguments:
        """Arguments of the same forms, which keep no data: one number stands for a tensor's."""
        tensors = [tensor.new_zeros(()).expand(tensor.shape) for tensor in self.tensors]
        args, kwargs = rebuild((self.args, self.kwargs), tensors)
        return Arguments(args, kwargs, self.names)


class Signature:
    """What a module's `forward` takes.

    Args:
      module: whose.
    """

    def __init__(self, module: torch.nn.Module):
        self._signature = inspect.signature(module.forward)
        self._parameters = tuple(self._signature.parameters.values())
        self._names = tuple(self._signature.parameters)
        by_position = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        self._is_plain = all(p.kind in by_position for p in self._parameters)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The arguments of a call.

        Raises:
          PopTorchError: (a `ValueError`) too few, too many or unknown ones.
        """
        if self._is_plain and not kwargs and len(args) == len(self._names):
            return Arguments(args, kwargs, self._names)  # as almost always
        try:
            given = self._signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            raise PopTorchError(f"the arguments do not fit the model's forward: {error}") from error
        given.apply_defaults()
        for name in self._names:
            if name not in given.arguments:
                raise PopTorchError(f"Mandatory parameter {name} missing")
        names: list[str] = []
        for parameter in self._parameters:
            if parameter.kind is parameter.VAR_POSITIONAL:
                more = len(given.arguments[parameter.name])
                names += [f"*{parameter.name}[{i}]" for i in range(more)]
            else:
                names.append(parameter.name)
        return Arguments(given.args, given.kwargs, tuple(names[: len(given.args)]))


def tensors_like(compiled: Arguments, given: Arguments) -> list[torch.Tensor]:
    """The tensors of a call, in the order of those that the program was compiled for.

    Raises:
      PopTorchError: (a `ValueError`) arguments of other structures, types, shapes, dtypes or
        constants than those.
    """
    found: list[torch.Tensor] = []
    if len(compiled.args) != len(given.args):
        raise _mismatch(
            f"Number of positional arguments mismatch: expected {len(compiled.args)} arguments "
            f"but got {len(given.args)}"
        )
    for name, wanted, value in zip(compiled.names, compiled.args, given.args, strict=True):
        _collect(name, wanted, value, found)
    if compiled.kwargs.keys() != given.kwargs.keys():
        raise _other_keys("named arguments", compiled.kwargs, given.kwargs)
    for name, wanted in compiled.kwargs.items():
        _collect(name, wanted, given.kwargs[name], found)
    return found


def _collect(name: str, wanted: Any, given: Any, found: list[torch.Tensor]) -> None:
    if isinstance(wanted, torch.Tensor) and isinstance(given, torch.Tensor):
        if wanted.dtype != given.dtype:
            raise _differ("Data type", name, wanted.dtype, given.dtype)
        if wanted.shape != given.shape:
            raise _differ("Shape", name, wanted.shape, given.shape)
        found.append(given)
    elif type(wanted) is not type(given):
        raise _differ("Type", name, type(wanted), type(given))
    elif isinstance(wanted, list | tuple):
        if len(wanted) != len(given):
            raise _differ("Length", name, f"{len(wanted)} elements", len(given))
        for index, (one, other) in enumerate(zip(wanted, given, strict=True)):
            _collect(f"{name}[{index}]", one, other, found)
    elif isinstance(wanted, dict):
        entries = cast(dict[Any, Any], wanted)
        if entries.keys() != given.keys():
            raise _other_keys(name, entries, given)
        for key, one in entries.items():
            _collect(f"{name}[{key}]", one, given[key], found)
    elif tensors := flatten(wanted):  # of a type of the user's
        _collect(name, tensors, flatten(given), found)
    elif wanted is not given and wanted != given:
        raise _differ("Value", name, wanted, given)


def _differ(what: str, name: str, wanted: object, given: object) -> PopTorchError:
    return _mismatch(f"{what} mismatch for {name}: expected {wanted} but got {given}")


def _other_keys(name: str, wanted: dict[Any, Any], given: dict[Any, Any]) -> PopTorchError:
    differences = {
        "Unexpected": sorted(map(str, given.keys() - wanted.keys())),
        "Missing": sorted(map(str, wanted.keys() - given.keys())),
    }
    details = [f"{kind} arguments: {', '.join(keys)}" for kind, keys in differences.items() if keys]
    return _mismatch(f"Keys mismatch for {name}: {'. '.join(details)}.")


def _mismatch(what: str) -> PopTorchError:
    return PopTorchError(what, fix=_ENDS)
