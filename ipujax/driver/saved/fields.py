"""Builds nodes of a Program from file values, which are checked by the types of the fields.

A node's class gives the type of each field. Engines rely on that, and read nodes much later than
the file: a string in place of a number would fail there, far away from the file.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any

from ipujax.ground import ExecutableError
from ipujax.host import IPUInfeedQueue, IPUOutfeedQueue, Queue
from lowering import ir, ops

_MOST = 2**53  # of a number in a node
_QUEUES: dict[type, type[Queue]] = {ops.Infeed: IPUInfeedQueue, ops.Outfeed: IPUOutfeedQueue}


def make_program_node(kind: type, values: Mapping[str, object], count: int) -> Any:
    """Builds a node of a Program from its fields.

    Args:
      kind: its class, a dataclass of `lowering`.
      values: the fields by their names.
      count: how many values the Program has.

    Raises:
      ExecutableError: a field that the class does not have, or a value that it cannot hold.
    """
    hints = _field_types(kind)
    for name, value in values.items():
        if name not in hints:
            raise ExecutableError(f"a {kind.__name__} has no {name!r:.200}")
        if not _value_fits_type(value, hints[name], count):
            raise ExecutableError(f"the {name} of a {kind.__name__} cannot be {value!r:.200}")
    return kind(**values)


@functools.cache
def _field_types(kind: type) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dc.fields(kind)}


def _value_fits_type(value: Any, hint: Any, count: int) -> bool:
    if hint is Any:
        return True
    if hint is ir.ValueId:
        return type(value) is int and 0 <= value < count
    if isinstance(hint, typing.NewType):  # of an IPU, -1 for the host
        return type(value) is int and -1 <= value < _MOST
    origin, type_arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_value_fits_type(value, option, count) for option in type_arguments)
    if origin is tuple:
        return isinstance(value, tuple) and _tuple_fits_types(value, type_arguments, count)  # pyright: ignore[reportUnknownArgumentType]
    if hint is int:
        return type(value) is int and -1 <= value < _MOST
    return type(value) is hint or isinstance(value, _QUEUES.get(hint) or hint)


def _tuple_fits_types(values: tuple[object, ...], hints: tuple[object, ...], count: int) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(_value_fits_type(value, hints[0], count) for value in values)
    pairs = zip(values, hints, strict=False)
    return len(values) == len(hints) and all(_value_fits_type(v, hint, count) for v, hint in pairs)
