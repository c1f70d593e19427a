"""Checks values against type annotations; accepts a value where the annotation is unclear."""

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


def describe_annotation_mismatch(
    value: object, annotation: object, function: Callable[..., object]
) -> str | None:
    """Describes what a value must be by an annotation of a function; None if it fits."""
    expected = resolve_annotation(annotation, getattr(inspect.unwrap(function), "__globals__", {}))
    return None if value_fits_annotation(value, expected) else describe_annotation(expected)


def iterate_arguments(
    signature: inspect.Signature, bound_arguments: Mapping[str, Any]
) -> Iterator[tuple[inspect.Parameter, Any]]:
    """Yields each parameter with its value; variadic parameters once for every value."""
    for name, value in bound_arguments.items():
        parameter = signature.parameters[name]
        if name in ("self", "cls"):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from ((parameter, item) for item in value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            yield from ((parameter.replace(name=key), item) for key, item in value.items())
        else:
            yield parameter, value


def is_deleted(value: Any) -> bool:
    """Returns whether a value is a JAX array whose memory was donated."""
    try:
        return bool(value.is_deleted())
    except Exception:  # it has no such method, or one of its own
        return False


def safe_repr(value: Any) -> str:
    """Returns the repr of a value; a deleted array, or one without a repr, by its type."""
    if is_deleted(value):
        return f"a deleted array of {value.dtype}{list(value.shape)}"
    try:
        return repr(value)
    except Exception:  # a class of the user's with a broken text
        return f"an object of type {type(value).__name__}"


def describe_arguments(bound_arguments: Mapping[str, object]) -> str:
    """Describes arguments and their values in short form."""
    pairs = (
        (name, safe_repr(value))
        for name, value in bound_arguments.items()
        if name not in ("self", "cls")
    )
    short = reprlib.Repr()
    short.maxother = _LONGEST
    return ", ".join(
        f"{name}={text if len(text) <= _LONGEST else text[: _LONGEST - 3] + '...'}"
        for name, text in pairs
    )


def value_fits_annotation(value: object, annotation: object) -> bool:
    """Returns whether a value may be of the type that an annotation names."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(value_fits_annotation(value, option) for option in typing.get_args(annotation))
    if origin is typing.Literal:
        return any(
            value is choice or _equals_with_type(value, choice)
            for choice in typing.get_args(annotation)
        )
    if origin is typing.Annotated:
        return value_fits_annotation(value, typing.get_args(annotation)[0])
    if annotation is None or annotation is type(None):
        return value is None
    kind = annotation if origin is None else origin
    if not isinstance(kind, type) or kind is object:
        return True
    return _is_a(value, kind) and _entries_fit(value, kind, typing.get_args(annotation))


def describe_annotation(annotation: object) -> str:
    """Returns an annotation in words."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        words = [describe_annotation(option) for option in typing.get_args(annotation)]
        return " or ".join(dict.fromkeys(words))
    if origin is typing.Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(annotation)))
    if annotation is None or annotation is type(None):
        return "None"
    kind = annotation if origin is None else origin
    element_types = [
        choice
        for choice in typing.get_args(annotation)
        if isinstance(choice, type) and choice is not object
    ]
    if kind in _WORDS:
        plural = (
            f" of {element_types[0].__name__}"
            if len(element_types) == 1 and kind in _SERIES
            else ""
        )
        return _WORDS[kind] + plural
    name = getattr(kind, "__name__", str(kind))
    return f"a{'n' * (name[:1] in 'AEIO')} {name}"


_WORDS: dict[object, str] = {
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
_SERIES: tuple[object, ...] = (
    *(list, tuple, set, frozenset, collections.abc.Iterable, collections.abc.Collection),
    *(collections.abc.Sequence, collections.abc.Set),
)


def _is_a(value: object, expected_type: type) -> bool:
    if expected_type is bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")
    if expected_type is int:
        return _is_index(value)
    if expected_type in (float, complex):
        return not isinstance(value, (str, bytes)) and _is_number(value)
    if expected_type in (list, tuple, collections.abc.Sequence):
        return not isinstance(value, (str, bytes, Mapping)) and _has_methods(
            value, "__len__", "__iter__"
        )
    if expected_type.__name__ in _KINDS_OF_ARRAYS:
        return not isinstance(value, (str, bytes)) and value is not None
    if (
        expected_type in _WORDS
        or issubclass(expected_type, enum.Enum)
        or expected_type.__module__.startswith("ipujax")
    ):
        return isinstance(value, expected_type)
    return True


def _entries_fit(value: object, kind: type, entry_types: tuple[object, ...]) -> bool:
    """Returns whether the entries of a list, tuple or dict fit; other iterables are not read."""
    if (
        kind is tuple
        and isinstance(value, tuple)
        and entry_types
        and entry_types[-1] is not Ellipsis
    ):
        entries: tuple[object, ...] = value
        return len(entries) == len(entry_types) and all(
            map(value_fits_annotation, entries, entry_types)
        )
    if not entry_types:
        return True
    if isinstance(value, (list, tuple)) and kind in _SERIES:
        return all(
            value_fits_annotation(entry, entry_types[0])
            for entry in typing.cast("list[object]", value)
        )
    if isinstance(value, dict) and len(entry_types) == 2:
        pairs = typing.cast("dict[object, object]", value).items()
        return all(
            value_fits_annotation(key, entry_types[0])
            and value_fits_annotation(entry, entry_types[1])
            for key, entry in pairs
        )
    return True


def _is_index(value: Any) -> bool:
    try:
        operator.index(value)
    except Exception:  # a deleted array, or a value that is not known yet
        return _has_methods(value, "aval") and not _has_methods(value, "is_deleted")
    return True


def _is_number(value: Any) -> bool:
    if _has_methods(value, "aval"):
        return True
    try:
        float(value)
    except Exception:
        return isinstance(value, complex)
    return True


def _has_methods(value: object, *methods: str) -> bool:
    return all(hasattr(type(value), name) for name in methods)


def _equals_with_type(value: object, literal: object) -> bool:
    return type(value) is type(literal) and value == literal


def resolve_annotation(annotation: object, names: dict[str, object]) -> Any:
    """Returns the type that an annotation names; Any if it cannot be resolved at run time."""
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except Exception:  # imported for type checkers only
        return Any
