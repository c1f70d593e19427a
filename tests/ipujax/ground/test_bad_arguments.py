"""Whatever is passed to a public function, what it raises is an error of ours."""

from __future__ import annotations

import itertools
import re
import traceback
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from ipujax.errors import IPUError
from tests.ipujax import public

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

CALLABLES = public.callables()
OF_A_PROCESS = re.compile(r" at 0x[0-9a-f]+|PyTreeDef\(")
"""What tells a reader nothing: addresses, and how JAX shows structures."""


def _deleted() -> jax.Array:
    array = jax.numpy.ones(3)
    array.delete()
    return array


BAD: dict[str, Any] = {
    "None": None,
    "text": "x",
    "int": 3,
    "negative": -1,
    "float": 2.5,
    "object": object(),
    "list": [],
    "dict": {},
    "list of None": [None],
    "array": np.ones(2),
    "deleted array": _deleted(),
}
EXCEPTIONS = {
    ("optimizers.apply_gradients", "gradients"): "optax's own functions read them",
    ("optimizers.apply_gradients", "state"): "optax's own functions read it",
    ("ipu_compiler.compile", "inputs"): "a missing argument is Python's own TypeError",
}
"""What may raise errors of others, and why."""

PARAMETERS = [
    (name, parameter.name)
    for name, function in CALLABLES.items()
    for parameter in public.parameters(function)
]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def is_of_the_user(error: Exception) -> bool:
    """Whether a function that was passed raised: these of `public` are lambdas."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(f.filename == public.__file__ and f.name == "<lambda>" for f in frames[2:])


def check(name: str, parameter: str, bad: Any) -> None:
    given = public.arguments(name, CALLABLES[name]) | {parameter: bad}
    try:
        public.call(name, CALLABLES[name], given)
    except IPUError as error:
        if OF_A_PROCESS.search(str(error)):
            raise AssertionError(f"{name}({parameter}={bad!r}): {error}") from error
    except Exception as error:
        if (name, parameter) not in EXCEPTIONS and not is_of_the_user(error):
            raise AssertionError(f"{name}({parameter}={bad!r}): {error!r}") from error


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS[::5])
def test_an_object_is_refused_with_an_error_of_ours(name: str, parameter: str) -> None:
    check(name, parameter, BAD["object"])


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS[2::9])
def test_a_deleted_array_is_refused_with_an_error_of_ours(name: str, parameter: str) -> None:
    check(name, parameter, BAD["deleted array"])


def _cases() -> list[Any]:
    """Every parameter with every bad value; CI runs an eighth of them, with some of each."""
    return [
        pytest.param(
            name,
            parameter,
            bad,
            marks=pytest.mark.complete if number % 8 else pytest.mark.exhaustive,
        )
        for number, ((name, parameter), bad) in enumerate(itertools.product(PARAMETERS, BAD))
    ]


@pytest.mark.parametrize(("name", "parameter", "bad"), _cases())
def test_what_is_refused_is_refused_with_an_error_of_ours(
    name: str, parameter: str, bad: str
) -> None:
    check(name, parameter, BAD[bad])
