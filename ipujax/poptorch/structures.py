"""Tensors in nested structures: taken out in order, and put back; with the user's own types."""

from __future__ import annotations

import abc
import enum
from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import torch

from ipujax.poptorch.checks import check


@check.guard
class ICustomArgParser(abc.ABC):
    """How the tensors of a type of the user's are taken out of it, and put into a new one."""

    @abc.abstractmethod
    def yieldTensors(self, struct: Any) -> Iterable[torch.Tensor]:
        """The tensors of an object, always in the same order."""

    @abc.abstractmethod
    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[Any]) -> Any:
        """An object like the original one, with as many tensors as it has, from the iterator."""


_parsers: dict[type, ICustomArgParser] = {}


@check.guard
def registerCustomArgParser(arg_data_type: type, arg_parser: ICustomArgParser | None) -> None:
    """Has objects of a type, and of those derived from it, be taken as structures of tensors.

    Args:
      arg_data_type: the type.
      arg_parser: what takes it apart, instead of an earlier one; None for nothing any more.

    Raises:
      Error: the one is no type, or the other no parser.
    """
    check.instance(arg_data_type, type, "arg_data_type")
    wanted = "a poptorch.ICustomArgParser"
    check.instance(arg_parser, ICustomArgParser, "arg_parser", wanted, optional=True)
    _parsers.pop(arg_data_type, None)
    if arg_parser is not None:
        _parsers[arg_data_type] = arg_parser


def _parser_of(value: object) -> ICustomArgParser | None:
    kinds = type(value).__mro__ if _parsers else ()
    return next((_parsers[kind] for kind in kinds if kind in _parsers), None)


def flatten(value: Any) -> list[torch.Tensor]:
    """The tensors in a structure, in its order; whatever is neither tensor nor structure is not."""
    parser = _parser_of(value)
    if parser is not None:
        return list(parser.yieldTensors(value))
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for entry in value for tensor in flatten(entry)]


def strangers(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """What is in a structure beside tensors and constants, with its place in it.

    Constants are `None`, numbers, texts, dtypes, devices and members of enumerations.
    """
    if _parser_of(value) is not None or isinstance(value, _LEAVES):
        return
    if isinstance(value, dict):
        entries: Iterable[tuple[Any, Any]] = cast(dict[Any, Any], value).items()
    elif isinstance(value, (list, tuple)):
        entries = enumerate(cast(Iterable[Any], value))
    else:
        yield path, value
        return
    for key, entry in entries:
        yield from strangers(entry, f"{path}[{key!r}]")


_LEAVES = (
    torch.Tensor, torch.dtype, torch.device, torch.Size, enum.Enum, type(None), bool, int, float,
    complex, str, bytes, np.generic,
)  # fmt: skip


def rebuild(structure: Any, tensors: Iterable[Any]) -> Any:
    """A structure like another, with other values in the places of its tensors."""
    return _rebuild(structure, iter(tensors))


def _rebuild(structure: Any, tensors: Iterator[Any]) -> Any:
    parser = _parser_of(structure)
    if parser is not None:
        return parser.reconstruct(structure, tensors)
    if isinstance(structure, torch.Tensor):
        return next(tensors)
    if isinstance(structure, dict):
        entries = cast(dict[Any, Any], structure).items()
        return type(structure)({key: _rebuild(entry, tensors) for key, entry in entries})
    if isinstance(structure, (list, tuple)):
        entries = [_rebuild(entry, tensors) for entry in structure]
        is_named = hasattr(structure, "_fields")
        return type(structure)(*entries) if is_named else type(structure)(entries)
    return structure
