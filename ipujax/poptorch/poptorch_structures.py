"""The nested structures of tensors: flattening, rebuilding, and parsers of the user's types."""

from __future__ import annotations

import abc
import enum
from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import torch

from ipujax.ground import PyTree
from ipujax.poptorch.poptorch_checks import check


@check.guard
class ICustomArgParser(abc.ABC):
    """An interface that takes the tensors out of a user's type, and puts them into a new object."""

    @abc.abstractmethod
    def yieldTensors(self, struct: object) -> Iterable[torch.Tensor]:
        """Yields the tensors of an object, always in the same order."""

    @abc.abstractmethod
    def reconstruct(self, original_structure: object, tensor_iterator: Iterator[object]) -> PyTree:
        """Returns an object like the original one, with tensors from the iterator."""


_parsers: dict[type, ICustomArgParser] = {}


@check.guard
def registerCustomArgParser(arg_data_type: type, arg_parser: ICustomArgParser | None) -> None:
    """Registers a parser for objects of a type, and of types derived from it.

    Args:
      arg_data_type: the type.
      arg_parser: the parser, which replaces an earlier one; None removes it.

    Raises:
      Error: arg_data_type is no type, or arg_parser no parser.
    """
    check.require_instance(arg_data_type, type, "arg_data_type")
    expected = "a poptorch.ICustomArgParser"
    check.require_instance(arg_parser, ICustomArgParser, "arg_parser", expected, optional=True)
    _parsers.pop(arg_data_type, None)
    if arg_parser is not None:
        _parsers[arg_data_type] = arg_parser


def _find_parser(value: object) -> ICustomArgParser | None:
    kinds = type(value).__mro__ if _parsers else ()
    return next((_parsers[kind] for kind in kinds if kind in _parsers), None)


def flatten_tensors(value: object) -> list[torch.Tensor]:
    """Returns the tensors in a nested structure, in order, and skips other values."""
    parser = _find_parser(value)
    if parser is not None:
        return list(parser.yieldTensors(value))
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for entry in value for tensor in flatten_tensors(entry)]


def find_unsupported_values(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values in a structure that are neither tensors nor constants, with their paths.

    Constants are `None`, numbers, texts, dtypes, devices, members of enumerations, ranges and
    classes. A function is none: it may hold the tensors of the trace.
    """
    if _find_parser(value) is not None or isinstance(value, _LEAVES):
        return
    if isinstance(value, dict):
        entries: Iterable[tuple[Any, Any]] = cast(dict[object, object], value).items()
    elif isinstance(value, (list, tuple)):
        entries = enumerate(cast(Iterable[object], value))
    else:
        yield path, value
        return
    for key, entry in entries:
        yield from find_unsupported_values(entry, f"{path}[{key!r}]")


_LEAVES = (
    torch.Tensor, torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format,
    enum.Enum, type(None), bool, int, float, complex, str, bytes, range, slice, np.generic, type,
)  # fmt: skip


def rebuild_structure(structure: object, tensors: Iterable[object]) -> PyTree:
    """Returns a copy of a structure with other values in place of its tensors."""
    return _rebuild_from_iterator(structure, iter(tensors))


def _rebuild_from_iterator(structure: object, tensors: Iterator[object]) -> PyTree:
    parser = _find_parser(structure)
    if parser is not None:
        return parser.reconstruct(structure, tensors)
    if isinstance(structure, torch.Tensor):
        return next(tensors)
    if isinstance(structure, dict):
        entries = cast(dict[object, object], structure).items()
        return type(structure)(
            {key: _rebuild_from_iterator(entry, tensors) for key, entry in entries}
        )
    if isinstance(structure, (list, tuple)):
        entries = [_rebuild_from_iterator(entry, tensors) for entry in structure]
        is_named = hasattr(structure, "_fields")
        return type(structure)(*entries) if is_named else type(structure)(entries)
    return structure
