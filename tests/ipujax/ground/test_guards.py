"""What guarded functions and methods say of wrong arguments, and what they leave alone."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ipujax.errors import (
    ConfigError,
    ConfigTypeError,
    MissingPathError,
    OutOfBoundsError,
)
from ipujax.ground import Checks

check = Checks(ConfigTypeError, ConfigError)


def _made(source: str) -> Any:
    """What a text defines, as if a module of the package's held it."""
    import ipujax.ground

    file = f"{ipujax.ground.__path__[0]}/pretended.py"
    names: dict[str, Any] = {"check": check, "Sequence": Sequence, "__name__": "ipujax.pretended"}
    exec(compile(source, file, "exec"), names)
    return names


THINGS = _made('''
class Thing:
    """Of the test."""

    def total(self, numbers: Sequence[float], scale: float = 1.0) -> float:
        """A sum."""
        return sum(numbers) * scale

    @classmethod
    def read(cls, path: str) -> str:
        return open(path).read()

    @property
    def size(self) -> int:
        return 3

    @size.setter
    def size(self, value: str) -> None:
        self._size = value.upper()

    def call(self, function, argument):
        return function(argument)

    def entry(self, index: int) -> int:
        return [1, 2][index]

    def indirect(self, numbers):
        try:
            return self.total(numbers)
        except TypeError as error:
            return type(error)

    def fail(self):
        raise ValueError("not about arguments")

Thing = check.guard(Thing)
''')
Thing = THINGS["Thing"]


def test_the_wrong_argument_is_named_with_what_it_must_be() -> None:
    with pytest.raises(ConfigTypeError, match=r"numbers of Thing.total is 5") as caught:
        Thing().total(5)
    assert "must be a list or tuple of float" in str(caught.value)
    assert "test_guards.py" in caught.value.where
    with pytest.raises(ConfigTypeError, match=r"scale of Thing.total is 'a'"):
        Thing().total([1.0, 2.0], scale="a")


def test_other_arguments_than_there_are_get_the_signature() -> None:
    with pytest.raises(ConfigTypeError, match="missing a required argument: 'numbers'") as caught:
        Thing().total()
    assert "Thing.total(numbers, scale=1.0)" in str(caught.value)
    with pytest.raises(ConfigTypeError, match="unexpected keyword argument 'other'"):
        Thing().total([1], other=2)


def test_deleted_arrays_are_named() -> None:
    gone = jnp.ones(3)
    gone.delete()
    with pytest.raises(ConfigError, match=r"numbers of Thing.total is an array that has been"):
        Thing().total(gone)


def test_properties_and_class_methods_are_guarded() -> None:
    thing = Thing()
    with pytest.raises(ConfigTypeError, match=r"value of Thing.size is 3"):
        thing.size = 3
    with pytest.raises(MissingPathError, match="no_such_file") as caught:
        Thing.read("no_such_file")
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.filename == "no_such_file"


def test_errors_of_the_users_functions_pass_unchanged() -> None:
    own = KeyError("mine")

    def fail(_: Any) -> None:
        raise own

    with pytest.raises(KeyError) as caught:
        Thing().call(fail, 1)
    assert caught.value is own


def test_errors_stay_what_handlers_expect() -> None:
    with pytest.raises(OutOfBoundsError):
        Thing().entry(7)
    with pytest.raises(ValueError, match=r"^not about arguments$"):
        Thing().fail()


def test_code_of_ours_sees_what_was_raised() -> None:
    assert Thing().indirect(5) is TypeError


def test_names_and_signatures_stay() -> None:
    assert Thing.total.__doc__ == "A sum."
    assert list(inspect.signature(Thing.total).parameters) == ["self", "numbers", "scale"]
    assert Thing().total(np.ones(2)) == 2
