"""Checks of arguments that need no JAX: numbers, switches, names, functions, sequences."""

from __future__ import annotations

import dataclasses as dc
import enum
import inspect
import itertools
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ipujax.ground import guards
from ipujax.ground.annotations import safe_repr
from ipujax.ground.errors import IPUError

HALF_OR_SINGLE = ("float16", "float32")
"""The names of the dtypes that IPUs compute in."""

_GIVE_AN_INT = (
    "give a Python int; it must be known when the function is traced, not at run time only, as "
    "static_argnums of ipu.compile makes an argument"
)


@dc.dataclass(frozen=True)
class Checks:
    """Checks of arguments that raise the error classes of one part of the package.

    `argument` names an argument in messages, as in "the axis of all_to_all". Each check returns the
    value in the form in which the caller uses it.

    Attributes:
      wrong_type: raised for a value of a type that an argument does not take.
      wrong_value: raised for an impossible value of the right type.
    """

    wrong_type: type[IPUError]
    wrong_value: type[IPUError]

    def value_error(self, message: str, fix: str | None = None) -> IPUError:
        """Builds the error for an impossible value, with the user's line."""
        return self.wrong_value(message, where=_user_line(), fix=fix)

    def type_error(self, message: str, fix: str | None = None) -> IPUError:
        """Builds the error for a value of the wrong type, with the user's line."""
        return self.wrong_type(message, where=_user_line(), fix=fix)

    def wrong_type_error(
        self, expected: str, value: object, argument: str, fix: str | None = None
    ) -> IPUError:
        """Builds the error for a value that is not of the type that an argument takes."""
        kind = type(value).__name__
        wrong = f"{argument} is {safe_repr(value)}, of type {kind}, but must be {expected}"
        return self.type_error(wrong, fix or f"give {expected}")

    def require_integer(self, value: Any, argument: str, at_least: int | None = None) -> int:
        """Returns an integer that is known while tracing; refuses bools and enum members."""
        try:
            number = None if _is_no_number(value) else operator.index(value)
        except TypeError:
            number = None
        if number is None:
            raise self.wrong_type_error("an integer", value, argument, _GIVE_AN_INT)
        if at_least is not None and number < at_least:
            wrong = f"{argument} is {number}, but must be at least {at_least}"
            raise self.value_error(wrong, f"give at least {at_least}")
        return number

    def require_number(self, value: object, argument: str, fix: str) -> float:
        """Returns a number that is known while tracing as a float; refuses bools."""
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise self.wrong_type_error("a number known while tracing", value, argument, fix)
        return float(value)

    def require_flag(self, value: object, argument: str) -> bool:
        """Returns True or False, which must be known while tracing."""
        if not isinstance(value, (bool, np.bool_)):
            raise self.wrong_type_error("a bool", value, argument, "give True or False")
        return bool(value)

    def require_optional_flag(self, value: object, argument: str) -> bool | None:
        """Returns True, False or None."""
        if value is not None and not isinstance(value, (bool, np.bool_)):
            raise self.wrong_type_error("True, False or None", value, argument)
        return value if value is None else bool(value)

    def require_text(self, value: object, argument: str, *, optional: bool = False) -> Any:
        """Returns a string, or None if `optional`."""
        return self.require_instance(value, str, argument, "a string", optional=optional)

    def require_function(
        self, value: object, argument: str, fix: str | None = None, *, optional: bool = False
    ) -> Any:
        """Returns a callable, or None if `optional`."""
        if not callable(value) and not (optional and value is None):
            raise self.wrong_type_error("a function" + " or None" * optional, value, argument, fix)
        return value

    def require_instance(
        self, value: Any, kind: Any, argument: str, expected: str = "", *, optional: bool = False
    ) -> Any:
        """Returns an instance of a class, or of one of several, which `expected` then names."""
        if not isinstance(value, kind) and not (optional and value is None):
            name = expected or f"a{'n' * (kind.__name__[0] in 'AEIO')} {kind.__name__}"
            raise self.wrong_type_error(name + " or None" * optional, value, argument)
        return value

    def require_sequence(self, value: object, argument: str, entry_kind: str = "") -> list[Any]:
        """Returns the entries of a list or tuple; `entry_kind` names them in the message."""
        if not isinstance(value, (list, tuple)):
            raise self.wrong_type_error(
                f"a list or tuple{entry_kind and f' of {entry_kind}'}", value, argument
            )
        return list(value)  # pyright: ignore[reportUnknownArgumentType]

    def require_path(self, value: object, argument: str) -> Any:
        """Returns the path of a file."""
        return self.require_instance(value, (str, os.PathLike), argument, "a path")

    def require_iterable(self, value: object, argument: str, entry_kind: str) -> Any:
        """Returns an iterable; refuses strings."""
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise self.wrong_type_error(f"an iterable of {entry_kind}", value, argument)
        return value

    def require_bounded_entries(
        self, value: Iterable[object], argument: str, most: int = 10_000
    ) -> list[Any]:
        """Returns the entries of an iterable, of which there may be at most `most`."""
        entries = list(itertools.islice(value, most + 1))
        if len(entries) > most:
            raise self.value_error(
                f"{argument} has more than {most:,} entries", "give a list of those meant"
            )
        return entries

    def require_one_of(self, value: object, choices: Iterable[str], argument: str) -> Any:
        """Returns one of several names."""
        if not isinstance(value, str) or value not in choices:
            listed = ", ".join(map(repr, choices))
            raise self.value_error(f"{argument} is {safe_repr(value)}", f"use one of {listed}")
        return value

    def guard(self, thing: guards.Guarded) -> guards.Guarded:
        """Decorates a function or a class so that its bad arguments raise clear errors.

        Whatever these break, unless code of the user's raised it, becomes an error of these checks.
        """
        return guards.guard(thing, self)


def parse_dtype(value: Any) -> np.dtype | None:
    """Returns the dtype that a value names; None if it names none (NumPy takes None as float64)."""
    try:
        return None if value is None else np.dtype(value)
    except TypeError:
        return None


def is_plain_list_or_tuple(value: object) -> bool:
    """Returns whether a value is a list or tuple, but no named tuple."""
    return isinstance(value, (list, tuple)) and not hasattr(value, "_fields")


def as_list(values: Any) -> list[Any]:
    """Returns one value, several values, or None for none, as a list."""
    if values is None:
        return []
    return list(values) if is_plain_list_or_tuple(values) else [values]


def find_signature_mismatch(
    function: Callable[..., object], args: Iterable[object], kwargs: Mapping[str, object]
) -> tuple[inspect.Signature, TypeError] | None:
    """Returns a function's signature and why these arguments do not fit; None if they fit."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # builtins may hide their signature
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        return signature, mismatch
    return None


def _is_no_number(value: object) -> bool:
    is_member = isinstance(value, enum.Enum) and not isinstance(value, int)
    return is_member or isinstance(value, (bool, np.bool_))


def _user_line() -> str:
    # Late: it needs JAX, which tools that only list devices do not.
    from ipujax.ground import user_lines

    return user_lines.current_user_line()
