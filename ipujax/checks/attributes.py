"""Attributes that refuse values of other kinds than theirs, when they are set."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import math
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ipujax.checks import annotations

if TYPE_CHECKING:
    from ipujax.checks.arguments import Checks

Owner = TypeVar("Owner")


def checked(value: Any, wanted: Any, what: str, check: Checks) -> Any:
    """A value for an attribute, as one of the type that is wanted.

    Raises:
      IPUError: it is of another type, a number below zero where things are counted, or no number.
    """
    if wanted is bool and type(value) is int and value in (0, 1):
        return bool(value)  # as the original's options took them
    if not annotations.fits(value, wanted) or (wanted in (int, float) and _is_no_number(value)):
        raise check.other_than(annotations.said(wanted), value, what)
    if wanted is int and value < 0:
        raise check.refuse(f"{what} is {value}", "give 0 or more")
    if wanted is float and math.isnan(value):
        raise check.refuse(f"{what} is not a number", "give a number")
    return value


def kind_of(default: Any) -> Any:
    """The type of attributes that have such a default; others of the same use count as it."""
    for kind, wanted in _ALIKE.items():
        if isinstance(default, kind):
            return wanted
    return type(default)


def check_attributes(check: Checks) -> Callable[[type[Owner]], type[Owner]]:
    """A decorator of classes whose attributes have to be what their annotations say."""

    def decorate(owner: type[Owner]) -> type[Owner]:
        names = vars(sys.modules[owner.__module__])
        kinds = {name: annotations.read(said, names) for name, said in _annotated(owner)}

        def set_checked(self: Any, name: str, value: Any) -> None:
            if name in kinds:
                value = checked(value, kinds[name], f"{owner.__name__}.{name}", check)
            object.__setattr__(self, name, value)

        owner.__setattr__ = set_checked
        return owner

    return decorate


def _is_no_number(value: Any) -> bool:
    return isinstance(value, enum.Enum) or type(value).__name__ in ("bool", "bool_")


def _annotated(owner: type) -> list[tuple[str, Any]]:
    return [*inspect.get_annotations(owner).items()]


_ALIKE: dict[type, Any] = {
    str: str | os.PathLike[str],
    dict: collections.abc.Mapping,
    list: collections.abc.Sequence,
    set: collections.abc.Set[Any] | collections.abc.Sequence[Any],
}
