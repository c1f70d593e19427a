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

from ipujax.checks import guards
from ipujax.checks.annotations import shown
from ipujax.errors import IPUError

HALF_OR_SINGLE = ("float16", "float32")
"""The names of the dtypes that IPUs compute in."""

_GIVE_AN_INT = (
    "give a Python int; it must be known when the function is traced, not at run time only, as "
    "static_argnums of ipu.compile makes an argument"
)


@dc.dataclass(frozen=True)
class Checks:
    """Checks that raise the errors of one part of the package.

    `what` names an argument for messages, as in "the axis of all_to_all". Each check gives the
    value in the form that the caller goes on with.

    Attributes:
      wrong_type: raised for a value of a type that an argument does not take.
      wrong_value: raised for one that cannot be, though its type could.
    """

    wrong_type: type[IPUError]
    wrong_value: type[IPUError]

    def refuse(self, what: str, fix: str | None = None) -> IPUError:
        """The error for an impossible value, with the user's line."""
        return self.wrong_value(what, where=_user_line(), fix=fix)

    def refuse_type(self, what: str, fix: str | None = None) -> IPUError:
        """The error for a value of the wrong type, with the user's line."""
        return self.wrong_type(what, where=_user_line(), fix=fix)

    def other_than(self, wanted: str, value: Any, what: str, fix: str | None = None) -> IPUError:
        """The error for a value that is not what an argument takes."""
        kind = type(value).__name__
        wrong = f"{what} is {shown(value)}, of type {kind}, but must be {wanted}"
        return self.refuse_type(wrong, fix or f"give {wanted}")

    def integer(self, value: Any, what: str, at_least: int | None = None) -> int:
        """An integer that is known while tracing; a bool, or a member of an enum, is none."""
        try:
            number = None if _is_no_number(value) else operator.index(value)
        except TypeError:
            number = None
        if number is None:
            raise self.other_than("an integer", value, what, _GIVE_AN_INT)
        if at_least is not None and number < at_least:
            wrong = f"{what} is {number}, but must be at least {at_least}"
            raise self.refuse(wrong, f"give at least {at_least}")
        return number

    def number(self, value: Any, what: str, fix: str) -> float:
        """A number that is known while tracing; a bool is none."""
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise self.other_than("a number known while tracing", value, what, fix)
        return float(value)

    def flag(self, value: Any, what: str) -> bool:
        """True or False, known while tracing."""
        if not isinstance(value, (bool, np.bool_)):
            raise self.other_than("a bool", value, what, "give True or False")
        return bool(value)

    def optional_flag(self, value: Any, what: str) -> bool | None:
        """True, False or None."""
        if value is not None and not isinstance(value, (bool, np.bool_)):
            raise self.other_than("True, False or None", value, what)
        return value if value is None else bool(value)

    def text(self, value: Any, what: str, *, optional: bool = False) -> Any:
        """A string; None too, where that is an answer."""
        return self.instance(value, str, what, "a string", optional=optional)

    def function(
        self, value: Any, what: str, fix: str | None = None, *, optional: bool = False
    ) -> Any:
        """Something that can be called."""
        if not callable(value) and not (optional and value is None):
            raise self.other_than("a function" + " or None" * optional, value, what, fix)
        return value

    def instance(
        self, value: Any, kind: Any, what: str, wanted: str = "", *, optional: bool = False
    ) -> Any:
        """An instance of a class, or of one of several, which `wanted` then names."""
        if not isinstance(value, kind) and not (optional and value is None):
            name = wanted or f"a{'n' * (kind.__name__[0] in 'AEIO')} {kind.__name__}"
            raise self.other_than(name + " or None" * optional, value, what)
        return value

    def sequence(self, value: Any, what: str, of: str = "") -> list[Any]:
        """The entries of a list or tuple; `of` says what they are."""
        if not isinstance(value, (list, tuple)):
            raise self.other_than(f"a list or tuple{of and f' of {of}'}", value, what)
        return list(value)  # pyright: ignore[reportUnknownArgumentType]

    def path(self, value: Any, what: str) -> Any:
        """The path of a file."""
        return self.instance(value, (str, os.PathLike), what, "a path")

    def iterable(self, value: Any, what: str, of: str) -> Any:
        """Something that can be iterated over; a string counts as one that holds none of `of`."""
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise self.other_than(f"an iterable of {of}", value, what)
        return value

    def entries(self, value: Iterable[Any], what: str, most: int = 10_000) -> list[Any]:
        """The entries of an iterable that may be endless."""
        entries = list(itertools.islice(value, most + 1))
        if len(entries) > most:
            raise self.refuse(
                f"{what} has more than {most:,} entries", "give a list of those meant"
            )
        return entries

    def one_of(self, value: Any, choices: Iterable[str], what: str) -> Any:
        """One of several names."""
        if not isinstance(value, str) or value not in choices:
            listed = ", ".join(map(repr, choices))
            raise self.refuse(f"{what} is {shown(value)}", f"use one of {listed}")
        return value

    def guard(self, thing: guards.Guarded) -> guards.Guarded:
        """A decorator: a function, or a class whose public methods, answer wrong arguments so.

        Whatever these break, unless code of the user's raised it, becomes an error of these checks.
        """
        return guards.guard(thing, self)


def dtype_of(value: Any) -> np.dtype[Any] | None:
    """The dtype that a value names; None if it names none, as None does (NumPy's float64)."""
    try:
        return None if value is None else np.dtype(value)
    except TypeError:
        return None


def is_series(value: object) -> bool:
    """Whether a value stands for several: a list or tuple, but no named one."""
    return isinstance(value, (list, tuple)) and not hasattr(value, "_fields")


def as_list(values: Any) -> list[Any]:
    """Several values, one alone, or None for none, as a list."""
    if values is None:
        return []
    return list(values) if is_series(values) else [values]


def misfit(
    function: Callable[..., object], args: Iterable[object], kwargs: Mapping[str, object]
) -> tuple[inspect.Signature, TypeError] | None:
    """What a function takes, and why not these; None if it takes them, or does not say."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # builtins may hide their signature
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        return signature, mismatch
    return None


def _is_no_number(value: Any) -> bool:
    is_member = isinstance(value, enum.Enum) and not isinstance(value, int)
    return is_member or isinstance(value, (bool, np.bool_))


def _user_line() -> str:
    from ipujax.checks import lines  # late: it needs JAX, which tools that only list devices do not

    return lines.current_user_line()
