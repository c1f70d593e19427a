"""The storage of PopTorch's options: typed values by name, frozen once a model uses them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Self

from ipujax.ground import Keywords, PopTorchOptionError, suggest_closest_name
from ipujax.poptorch.poptorch_checks import check

_FROZEN = "_is_frozen"


class Freezable:
    """A base class of options that a model or a data loader freezes; copies can be changed."""

    def __init__(self) -> None:
        self._is_frozen = False

    def checkIsFrozen(self, option: str | None = None) -> None:
        """Raises an error if a model or a data loader has taken the options.

        Raises:
          Error: (an `AttributeError`) the options are frozen.
        """
        if option != _FROZEN and vars(self).get(_FROZEN, False):
            raise PopTorchOptionError(
                "Can't modify frozen Options: a model or a data loader already uses them",
                fix="set all options before; or change and use a copy, options.clone()",
            )

    def _freeze(self) -> None:
        """Freezes the options, and the groups of options that they hold."""
        self._set_frozen(True)

    def _unfreeze(self) -> None:
        self._set_frozen(False)

    def _set_frozen(self, state: bool) -> None:
        for part in self._walk_option_groups():
            vars(part)[_FROZEN] = state

    def _walk_option_groups(self) -> Iterator[Freezable]:
        yield self
        for value in vars(self).values():
            if isinstance(value, Freezable):
                yield from value._walk_option_groups()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        vars(copied).update(copy.deepcopy(vars(self), memo))
        vars(copied)[_FROZEN] = False
        return copied

    def __eq__(self, other: object) -> bool:
        """Returns whether two sets of options have the same values, frozen or not."""
        if not isinstance(other, Freezable):
            return NotImplemented
        return (
            type(self) is type(other)
            and self._values_without_freezing() == other._values_without_freezing()
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType] - options change

    def _values_without_freezing(self) -> Keywords:
        return {name: value for name, value in vars(self).items() if name != _FROZEN}


class OptionsDict(Freezable):
    """A set of named options that are read as attributes: `options.device_iterations`.

    A value can be replaced only by one of the same type; an unknown name is an error.
    """

    def __init__(self, **default_values: object):
        super().__init__()
        self._values = default_values

    def set(self, **values: object) -> None:
        """Replaces the values of options.

        Raises:
          Error: the options are frozen, or have no value of that name and type.
        """
        self.checkIsFrozen()
        for name, value in values.items():
            if name not in self._values:
                raise self._unknown_option_error(name)
            expected_type = type(self._values[name])
            if not isinstance(value, expected_type) or (
                isinstance(value, bool) and expected_type is int
            ):
                type_text = f"of type {expected_type.__name__}"
                raise check.wrong_type_error(f"a value {type_text}", value, f"option {name}")
            self._values[name] = value

    def createOrSet(self, **values: object) -> None:
        """Replaces the values of options, or adds new options."""
        self.checkIsFrozen()
        for name, value in values.items():
            if name in self._values:
                self.set(**{name: value})
            else:
                self._values[name] = value

    def exists(self, name: str) -> bool:
        """Returns whether an option has a value: some options have none until they are set."""
        return name in self._values

    def deleteIfExists(self, name: str) -> None:
        """Removes the value of an option, if it has one."""
        self._values.pop(name, None)

    def update(self, other: dict[str, object]) -> Keywords:
        """Adds the options to a dictionary that has none of their names, and returns it."""
        if both := sorted(self._values.keys() & other.keys()):
            raise check.value_error(f"options cannot be merged: both have {', '.join(both)}")
        other.update(self._values)
        return other

    def toDict(self) -> Keywords:
        """Returns the options' values by name."""
        return self.update({})

    def _unknown_option_error(self, name: str) -> PopTorchOptionError:
        known_names = ", ".join(sorted(self._values))
        return PopTorchOptionError(
            f"{type(self).__name__} has no option {name!r}"
            f"{suggest_closest_name(name, self._values)}",
            fix=f"its options are {known_names}",
        )

    def __getattr__(self, name: str) -> Any:
        if "_values" not in vars(self):  # a copy or a pickle is being made
            raise AttributeError(name)
        if name not in self._values:
            raise self._unknown_option_error(name)
        return self._values[name]

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            self.checkIsFrozen(name)
            super().__setattr__(name, value)
        else:
            self.set(**{name: value})

    def __call__(self, name: str) -> Any:
        """Returns the value of an option."""
        return getattr(self, name)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{type(self).__name__}({values})"
