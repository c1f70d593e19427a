"""The arguments of a wrapped module: bound to its parameters, compared with the first call's."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple, cast

import torch

from ipujax.ground import PopTorchError
from ipujax.poptorch.poptorch_structures import flatten_tensors, rebuild_structure

_ENDS = (
    "the model was compiled for other arguments; make another wrapper for these, or call "
    "destroy() on this one"
)


class Arguments(NamedTuple):
    """The arguments of one call, with defaults filled in.

    Attributes:
      args: the positional arguments, as many as the signature allows.
      kwargs: the other arguments, by name.
      names: the parameter names of `args`.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: tuple[str, ...]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors in the arguments, in order."""
        return flatten_tensors((self.args, self.kwargs))

    def drop_data(self) -> Arguments:
        """Returns arguments of the same structure, shapes and dtypes whose tensors hold no data."""
        tensors = [tensor.new_zeros(()).expand(tensor.shape) for tensor in self.tensors]
        args, kwargs = rebuild_structure((self.args, self.kwargs), tensors)
        return Arguments(args, kwargs, self.names)


class Signature:
    """The signature of a module's `forward`.

    Args:
      module: the module.
    """

    def __init__(self, module: torch.nn.Module):
        self._signature = inspect.signature(module.forward)
        self._parameters = tuple(self._signature.parameters.values())
        self._names = tuple(self._signature.parameters)
        by_position = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        self._is_plain = all(p.kind in by_position for p in self._parameters)

    def bind_forward_arguments(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Arguments:
        """Binds the arguments of a call to the parameters of `forward`.

        Raises:
          PopTorchError: (a `ValueError`) too few, too many or unknown ones.
        """
        if self._is_plain and not kwargs and len(args) == len(self._names):
            return Arguments(args, kwargs, self._names)  # as almost always
        try:
            bound = self._signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            raise PopTorchError(f"the arguments do not fit the model's forward: {error}") from error
        bound.apply_defaults()
        for name in self._names:
            if name not in bound.arguments:
                raise PopTorchError(f"Mandatory parameter {name} missing")
        names: list[str] = []
        for parameter in self._parameters:
            if parameter.kind is parameter.VAR_POSITIONAL:
                count = len(bound.arguments[parameter.name])
                names += [f"*{parameter.name}[{i}]" for i in range(count)]
            else:
                names.append(parameter.name)
        return Arguments(bound.args, bound.kwargs, tuple(names[: len(bound.args)]))


def collect_matching_tensors(compiled: Arguments, arguments: Arguments) -> list[torch.Tensor]:
    """Collects the tensors of a call, checked against the arguments of the compiled program.

    Raises:
      PopTorchError: (a `ValueError`) arguments of other structures, types, shapes, dtypes or
        constants than those.
    """
    tensors: list[torch.Tensor] = []
    if len(compiled.args) != len(arguments.args):
        raise _mismatch_error(
            f"Number of positional arguments mismatch: expected {len(compiled.args)} arguments "
            f"but got {len(arguments.args)}"
        )
    for name, expected, value in zip(compiled.names, compiled.args, arguments.args, strict=True):
        _collect_tensors(name, expected, value, tensors)
    if compiled.kwargs.keys() != arguments.kwargs.keys():
        raise _key_mismatch_error("named arguments", compiled.kwargs, arguments.kwargs)
    for name, expected in compiled.kwargs.items():
        _collect_tensors(name, expected, arguments.kwargs[name], tensors)
    return tensors


def _collect_tensors(name: str, expected: Any, value: Any, collected: list[torch.Tensor]) -> None:
    if isinstance(expected, torch.Tensor) and isinstance(value, torch.Tensor):
        if expected.dtype != value.dtype:
            raise _property_mismatch_error("Data type", name, expected.dtype, value.dtype)
        if expected.shape != value.shape:
            raise _property_mismatch_error("Shape", name, expected.shape, value.shape)
        collected.append(value)
    elif type(expected) is not type(value):
        raise _property_mismatch_error("Type", name, type(expected), type(value))
    elif isinstance(expected, list | tuple):
        if len(expected) != len(value):
            raise _property_mismatch_error("Length", name, f"{len(expected)} elements", len(value))
        for index, (expected_entry, actual_entry) in enumerate(zip(expected, value, strict=True)):
            _collect_tensors(f"{name}[{index}]", expected_entry, actual_entry, collected)
    elif isinstance(expected, dict):
        entries = cast(dict[Any, Any], expected)
        if entries.keys() != value.keys():
            raise _key_mismatch_error(name, entries, value)
        for key, expected_entry in entries.items():
            _collect_tensors(f"{name}[{key}]", expected_entry, value[key], collected)
    elif tensors := flatten_tensors(expected):  # of a type of the user's
        _collect_tensors(name, tensors, flatten_tensors(value), collected)
    elif expected is not value and expected != value:
        raise _property_mismatch_error("Value", name, expected, value)


def _property_mismatch_error(
    property_name: str, name: str, expected: object, actual: object
) -> PopTorchError:
    return _mismatch_error(
        f"{property_name} mismatch for {name}: expected {expected} but got {actual}"
    )


def _key_mismatch_error(
    name: str, expected: dict[Any, Any], actual: dict[Any, Any]
) -> PopTorchError:
    differences = {
        "Unexpected": sorted(map(str, actual.keys() - expected.keys())),
        "Missing": sorted(map(str, expected.keys() - actual.keys())),
    }
    details = [f"{kind} arguments: {', '.join(keys)}" for kind, keys in differences.items() if keys]
    return _mismatch_error(f"Keys mismatch for {name}: {'. '.join(details)}.")


def _mismatch_error(message: str) -> PopTorchError:
    return PopTorchError(message, fix=_ENDS)
