"""What PopTorch's options are kept in: values by name, of fixed types, fixed once they are used."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Self

from ipujax.errors import PopTorchOptionError
from ipujax.poptorch.checks import check

_FROZEN = "_is_frozen"


class Freezable:
    """Something with private state that can be fixed, and whose copies can be changed again."""

    def __init__(self) -> None:
        self._is_frozen = False

    def checkIsFrozen(self, option: str | None = None) -> None:
        """Refuses a change once a model or a data loader has taken the options.

        Raises:
          Error: (an `AttributeError`) it has.
        """
        if option != _FROZEN and vars(self).get(_FROZEN, False):
            raise PopTorchOptionError(
                "Can't modify frozen Options: a model or a data loader already uses them",
                fix="set all options before; or change and use a copy, options.clone()",
            )

    def _freeze(self) -> None:
        """Fixes the options, and the groups of options that they hold."""
        self._set_frozen(True)

    def _unfreeze(self) -> None:
        self._set_frozen(False)

    def _set_frozen(self, state: bool) -> None:
        for part in self._parts():
            vars(part)[_FROZEN] = state

    def _parts(self) -> Iterator[Freezable]:
        yield self
        for value in vars(self).values():
            if isinstance(value, Freezable):
                yield from value._parts()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        vars(copied).update(copy.deepcopy(vars(self), memo))
        vars(copied)[_FROZEN] = False
        return copied

    def __eq__(self, other: object) -> bool:
        """Whether two sets of options say the same, be they fixed or not."""
        if not isinstance(other, Freezable):
            return NotImplemented
        return type(self) is type(other) and self._state() == other._state()

    __hash__ = None  # pyright: ignore[reportAssignmentType] - options change

    def _state(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != _FROZEN}


class OptionsDict(Freezable):
    """Options that are read as attributes: `options.device_iterations`.

    A value can be replaced by one of its type only; a name that nobody has introduced is an error.
    """

    def __init__(self, **default_values: Any):
        super().__init__()
        self._values = default_values

    def set(self, **values: Any) -> None:
        """Replaces values.

        Raises:
          Error: the options are fixed, have no such value, or hold one of another type.
        """
        self.checkIsFrozen()
        for name, value in values.items():
            if name not in self._values:
                raise self._unknown(name)
            wanted = type(self._values[name])
            if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is int):
                of = f"of type {wanted.__name__}"
                raise check.other_than(f"a value {of}", value, f"option {name}")
            self._values[name] = value

    def createOrSet(self, **values: Any) -> None:
        """Replaces values, or introduces them."""
        self.checkIsFrozen()
        for name, value in values.items():
            if name in self._values:
                self.set(**{name: value})
            else:
                self._values[name] = value

    def exists(self, name: str) -> bool:
        """Whether there is a value of this name: some options have none until they are set."""
        return name in self._values

    def deleteIfExists(self, name: str) -> None:
        """Takes a value away."""
        self._values.pop(name, None)

    def update(self, other: dict[str, Any]) -> dict[str, Any]:
        """Adds the values to a dictionary that has none of them, and gives it back."""
        if both := sorted(self._values.keys() & other.keys()):
            raise check.refuse(f"options cannot be merged: both have {', '.join(both)}")
        other.update(self._values)
        return other

    def toDict(self) -> dict[str, Any]:
        """The values by name."""
        return self.update({})

    def _unknown(self, name: str) -> PopTorchOptionError:
        known = ", ".join(sorted(self._values))
        return PopTorchOptionError(
            f"{type(self).__name__} has no option {name!r}", fix=f"its options are {known}"
        )

    def __getattr__(self, name: str) -> Any:
        if "_values" not in vars(self):  # a copy or a pickle is being made
            raise AttributeError(name)
        if name not in self._values:
            raise self._unknown(name)
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            self.checkIsFrozen(name)
            super().__setattr__(name, value)
        else:
            self.set(**{name: value})

    def __call__(self, name: str) -> Any:
        """The value of this name."""
        return getattr(self, name)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{type(self).__name__}({values})"
