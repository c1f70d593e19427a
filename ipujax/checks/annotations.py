"""What annotations say that a value must be; in doubt, a value fits."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import operator
import os
import reprlib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_LONGEST = 60
_KINDS_OF_ARRAYS = ("Array", "ndarray", "Tensor")


def misfit(value: Any, annotation: Any, function: Callable[..., Any]) -> str | None:
    """What the value must be by the annotation of a function; None if it may be that."""
    wanted = read(annotation, getattr(inspect.unwrap(function), "__globals__", {}))
    return None if fits(value, wanted) else said(wanted)


def spread(
    signature: inspect.Signature, given: Mapping[str, Any]
) -> Iterator[tuple[inspect.Parameter, Any]]:
    """Parameters and what was given for them; one of many values several times."""
    for name, value in given.items():
        parameter = signature.parameters[name]
        if name in ("self", "cls"):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from ((parameter, each) for each in value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            yield from ((parameter.replace(name=key), each) for key, each in value.items())
        else:
            yield parameter, value


def is_deleted(value: Any) -> bool:
    """Whether a value is an array of JAX whose memory was given away."""
    try:
        return bool(value.is_deleted())
    except Exception:  # it has no such method, or one of its own
        return False


def shown(value: Any) -> str:
    """A value as Python shows it; a deleted array, or what cannot be shown, by its type."""
    if is_deleted(value):
        return f"a deleted array of {value.dtype}{list(value.shape)}"
    try:
        return repr(value)
    except Exception:  # a class of the user's with a broken text
        return f"an object of type {type(value).__name__}"


def listed(given: Mapping[str, Any]) -> str:
    """Arguments and their values, short."""
    pairs = ((name, shown(value)) for name, value in given.items() if name not in ("self", "cls"))
    short = reprlib.Repr()
    short.maxother = _LONGEST
    return ", ".join(
        f"{name}={text if len(text) <= _LONGEST else text[: _LONGEST - 3] + '...'}"
        for name, text in pairs
    )


def fits(value: Any, wanted: Any) -> bool:
    """Whether a value may be what an annotation says."""
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in typing.get_args(wanted))
    if origin is typing.Literal:
        return any(value is each or _same(value, each) for each in typing.get_args(wanted))
    if origin is typing.Annotated:
        return fits(value, typing.get_args(wanted)[0])
    if wanted is None or wanted is type(None):
        return value is None
    kind = wanted if origin is None else origin
    if not isinstance(kind, type) or kind is object:
        return True
    return _is_a(value, kind) and _holds(value, kind, typing.get_args(wanted))


def said(wanted: Any) -> str:
    """An annotation in words."""
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        words = [said(each) for each in typing.get_args(wanted)]
        return " or ".join(dict.fromkeys(words))
    if origin is typing.Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(wanted)))
    if wanted is None or wanted is type(None):
        return "None"
    kind = wanted if origin is None else origin
    of = [each for each in typing.get_args(wanted) if isinstance(each, type) and each is not object]
    if kind in _WORDS:
        plural = f" of {of[0].__name__}" if len(of) == 1 and kind in _SERIES else ""
        return _WORDS[kind] + plural
    name = getattr(kind, "__name__", str(kind))
    return f"a{'n' * (name[:1] in 'AEIO')} {name}"


_WORDS: dict[Any, str] = {
    bool: "a bool",
    int: "an integer",
    float: "a number",
    complex: "a number",
    str: "a string",
    bytes: "bytes",
    os.PathLike: "a path",
    list: "a list",
    tuple: "a tuple",
    dict: "a dict",
    set: "a set",
    frozenset: "a set",
    collections.abc.Callable: "a function",
    collections.abc.Iterable: "an iterable",
    collections.abc.Iterator: "an iterator",
    collections.abc.Collection: "a collection",
    collections.abc.Sequence: "a list or tuple",
    collections.abc.Set: "a set",
    collections.abc.Mapping: "a dict",
    collections.abc.MutableMapping: "a dict",
}
_SERIES: tuple[Any, ...] = (
    *(list, tuple, set, frozenset, collections.abc.Iterable, collections.abc.Collection),
    *(collections.abc.Sequence, collections.abc.Set),
)


def _is_a(value: Any, kind: type) -> bool:
    if kind is bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")
    if kind is int:
        return _is_index(value)
    if kind in (float, complex):
        return not isinstance(value, (str, bytes)) and _is_number(value)
    if kind in (list, tuple, collections.abc.Sequence):
        return not isinstance(value, (str, bytes, Mapping)) and _has(value, "__len__", "__iter__")
    if kind.__name__ in _KINDS_OF_ARRAYS:
        return not isinstance(value, (str, bytes)) and value is not None
    if kind in _WORDS or issubclass(kind, enum.Enum) or kind.__module__.startswith("ipujax"):
        return isinstance(value, kind)
    return True


def _holds(value: Any, kind: type, of: tuple[Any, ...]) -> bool:
    """Whether the entries of a list, tuple or dict fit; what else there is may be used up."""
    if kind is tuple and isinstance(value, tuple) and of and of[-1] is not Ellipsis:
        entries: tuple[Any, ...] = value
        return len(entries) == len(of) and all(map(fits, entries, of))
    if not of:
        return True
    if isinstance(value, (list, tuple)) and kind in _SERIES:
        return all(fits(each, of[0]) for each in typing.cast("list[Any]", value))
    if isinstance(value, dict) and len(of) == 2:
        pairs = typing.cast("dict[Any, Any]", value).items()
        return all(fits(key, of[0]) and fits(each, of[1]) for key, each in pairs)
    return True


def _is_index(value: Any) -> bool:
    try:
        operator.index(value)
    except Exception:  # a deleted array, or a value that is not known yet
        return _has(value, "aval") and not _has(value, "is_deleted")
    return True


def _is_number(value: Any) -> bool:
    if _has(value, "aval"):
        return True
    try:
        float(value)
    except Exception:
        return isinstance(value, complex)
    return True


def _has(value: Any, *methods: str) -> bool:
    return all(hasattr(type(value), name) for name in methods)


def _same(value: Any, wanted: Any) -> bool:
    return type(value) is type(wanted) and value == wanted


def read(annotation: Any, names: dict[str, Any]) -> Any:
    """The type that an annotation names; Any where it names nothing that is there at run time."""
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except Exception:  # imported for type checkers only
        return Any
