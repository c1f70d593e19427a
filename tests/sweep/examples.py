"""What a table of examples is made of, and the small arrays that most of them take."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import ipujax as ipu


@dc.dataclass(frozen=True, eq=False)
class Example:
    """One public function with arguments for it.

    Attributes:
      name: the function's full name, with a note where it has several examples.
      function: the full name alone.
      call: calls the function; its arguments are arrays or Python numbers, what is static is
        closed over.
      args: the arguments.
      casts: whether the function is also called with another dtype, if it takes that.
      exact: whether its numbers are those of `jax.jit` up to a few roundings; otherwise its
        sums may cancel, or it iterates, and only half of the digits are compared.
      lacks: what JAX does not have of it, out of `derivative` and `batch`.
    """

    name: str
    function: str
    call: Callable[..., Any]
    args: tuple[Any, ...]
    casts: bool = False
    exact: bool = True
    lacks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name.removeprefix("jax.").replace(": ", "-").replace(" ", "-")


@dc.dataclass(frozen=True)
class Table:
    """Collects the examples of one module.

    Attributes:
      module: the module's full name.
      find: the module's function of some name.
      examples: those that `__call__` added.
    """

    module: str
    find: Callable[[str], Callable[..., Any]]
    examples: list[Example] = dc.field(default_factory=list[Example])

    def __call__(
        self,
        names: str,
        *args: Any,
        by: Callable[..., Any] | None = None,
        note: str = "",
        casts: bool = False,
        exact: bool = True,
        lacks: str = "",
    ) -> None:
        """Adds one example for each of the names, all with the same arguments.

        Args:
          names: names of functions, between spaces.
          args: what the functions are called with.
          by: how they are called, `by(function, *args)`, if not with the arguments alone.
          note: what this example is about, if the function has another one.
          casts: as in `Example`, like the other two.
          exact: see there.
          lacks: see there; in words between spaces.
        """
        for name in names.split():
            full = f"{self.module}.{name}"
            title = f"{full}: {note}" if note else full
            call = _called(self.find, name, by)
            self.examples.append(
                Example(title, full, call, args, casts, exact, tuple(lacks.split()))
            )


def table(module: Any, name: str = "") -> Table:
    """An empty table for a module, or for a class of the given full name."""
    return Table(name or module.__name__, lambda function: getattr(module, function))


def _called(
    find: Callable[[str], Callable[..., Any]], name: str, by: Callable[..., Any] | None
) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return find(name)(*args) if by is None else by(find(name), *args)

    return call


def on(shard: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with everything that it does marked for one IPU."""

    def marked(*args: Any) -> Any:
        with ipu.scopes.ipu_shard(shard):
            return function(*args)

    return marked


def _frozen(values: Any, dtype: Any = np.float32) -> np.ndarray:
    array = np.array(values, dtype)
    array.setflags(write=False)
    return array


# Between 0 and 1, all different and in no order.
X = _frozen([[0.21, 0.53, 0.94], [0.37, 0.72, 0.16]])
Y = _frozen([[0.64, 0.18, 0.45], [0.83, 0.29, 0.57]])
Z = _frozen([[0.92, 0.77, 0.96], [0.95, 0.81, 0.88]])
SIGNED = _frozen([[-1.3, 0.5, 2.2], [0.7, -0.6, -1.9]])
LARGE = 1 + X  # above 1
V = _frozen([0.3, 0.9, 0.5, 0.7])
W = _frozen([0.6, -0.2, 0.8, -0.4])
SORTED = _frozen([0.1, 0.4, 0.6, 0.9])
I = _frozen([[3, 1, 2], [5, 4, 7]], np.int32)  # noqa: E741
J = _frozen([[1, 2, 3], [2, 5, 4]], np.int32)
COUNTS = _frozen([3, 0, 2, 1, 3], np.int32)
U = _frozen([[3, 1, 2], [5, 4, 7]], np.uint32)
B = _frozen([[True, False, True], [False, False, True]], np.bool_)
D = _frozen([[False, True, True], [False, True, False]], np.bool_)
MASK = _frozen([True, False, True, True], np.bool_)
C = _frozen([[0.3 + 0.4j, 1.2 - 0.5j, -0.7j], [0.9, -0.4 + 0.2j, 1j]], np.complex64)
CV = _frozen([0.3 + 0.4j, 1.2 - 0.5j, -0.7j, 0.9], np.complex64)
# A matrix with real and distinct eigenvalues, one that is symmetric and positive, triangular ones.
A = _frozen([[4, 1, 0.5], [0.3, 2, 0.7], [0.2, 0.1, 1]])
S = _frozen([[4, 1, 0.5], [1, 3, 0.2], [0.5, 0.2, 2]])
L = np.tril(A)
R = np.triu(A)
CUBE = _frozen(np.linspace(-1, 1, 24).reshape(2, 3, 4))
KEY = _frozen([7, 11], np.uint32)


def with_key(function: Callable[..., Any], data: Any, *args: Any) -> Any:
    """Calls a function of `jax.random` with a key of the given data."""
    return function(jax.random.wrap_key_data(data), *args)
