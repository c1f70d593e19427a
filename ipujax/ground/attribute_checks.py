"""A class decorator whose attributes refuse values of the wrong type when they are set."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import math
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ipujax.ground import annotations

if TYPE_CHECKING:
    from ipujax.ground.argument_checks import Checks

Owner = TypeVar("Owner")


def check_attribute_value(value: Any, expected_type: Any, attribute: str, check: Checks) -> Any:
    """Returns a value for an attribute, converted to the type that is expected.

    Raises:
      IPUError: it is of another type, a number below zero where things are counted, or no number.
    """
    if expected_type is bool and type(value) is int and value in (0, 1):
        return bool(value)  # as the original's options took them
    if not annotations.value_fits_annotation(value, expected_type) or (
        expected_type in (int, float) and _is_no_number(value)
    ):
        raise check.wrong_type_error(
            annotations.describe_annotation(expected_type), value, attribute
        )
    if expected_type is int and value < 0:
        raise check.value_error(f"{attribute} is {value}", "give 0 or more")
    if expected_type is float and math.isnan(value):
        raise check.value_error(f"{attribute} is not a number", "give a number")
    return value


def attribute_type(default: object) -> Any:
    """Returns the type of an attribute with such a default, widened to types with the same use."""
    for kind, widened_type in _ALIKE.items():
        if isinstance(default, kind):
            return widened_type
    return type(default)


def check_attributes(check: Checks) -> Callable[[type[Owner]], type[Owner]]:
    """Builds a class decorator that checks attributes by their annotations."""

    def add_attribute_checks(owner: type[Owner]) -> type[Owner]:
        names = vars(sys.modules[owner.__module__])
        kinds = {
            name: annotations.resolve_annotation(annotation, names)
            for name, annotation in _list_annotations(owner)
        }

        def check_and_set(self: object, name: str, value: object) -> None:
            if name in kinds:
                value = check_attribute_value(value, kinds[name], f"{owner.__name__}.{name}", check)
            object.__setattr__(self, name, value)

        owner.__setattr__ = check_and_set
        return owner

    return add_attribute_checks


def _is_no_number(value: object) -> bool:
    return isinstance(value, enum.Enum) or type(value).__name__ in ("bool", "bool_")


def _list_annotations(owner: type) -> list[tuple[str, object]]:
    return [*inspect.get_annotations(owner).items()]


_ALIKE: dict[type, object] = {
    str: str | os.PathLike[str],
    dict: collections.abc.Mapping,
    list: collections.abc.Sequence,
    set: collections.abc.Set[Any] | collections.abc.Sequence[Any],
}
