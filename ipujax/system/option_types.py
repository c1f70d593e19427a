"""Spells the types of options and checks values against them, containers element by element."""

from __future__ import annotations

import types
import typing
from typing import Any, cast

from ipujax.ground import ConfigTypeError


def type_name(hint: Any) -> str:
    """Spells a type as the `typing` module did before `|`: `typing.Union[int, typing.List[int]]`.

    Python's own spelling differs between versions.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Ellipsis:
        return "..."
    if origin is None:
        return getattr(hint, "__name__", str(hint))
    if all(arg is Any for arg in args):
        return origin.__name__
    name = "Union" if origin in (typing.Union, types.UnionType) else origin.__name__.capitalize()
    return f"typing.{name}[{', '.join(type_name(arg) for arg in args)}]"


def is_instance(value: object, hint: Any) -> bool:
    """Returns whether a value has a type, checking containers element by element.

    Stricter than Python's numeric tower: a `bool` is no `int`, and an `int` is no `float`.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(is_instance(value, arg) for arg in args)
    if origin is None:
        return isinstance(value, hint) and not (hint is int and isinstance(value, bool))
    if not isinstance(value, origin):
        return False
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        elements = cast(tuple[Any, ...], value)
        return len(elements) == len(args) and all(map(is_instance, elements, args))
    if origin in (list, tuple):
        return all(is_instance(element, args[0]) for element in cast(list[Any], value))
    if origin is dict:
        items = cast(dict[Any, Any], value).items()
        return all(is_instance(k, args[0]) and is_instance(v, args[1]) for k, v in items)
    raise ConfigTypeError(f"options of type {type_name(hint)} are not supported by the schema")
