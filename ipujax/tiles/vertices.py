"""Vertices: functions of one tile's arrays, with their cycles on the chip."""

from __future__ import annotations

import dataclasses as dc
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ipujax.tiles.tile_arrays import check

Cycles = Callable[..., Any] | float | None
Rule = Callable[..., Any]


@dc.dataclass(eq=False)
class Vertex:
    """A function that `map` runs on each of some tiles, as `vertex` makes it.

    Attributes:
      function: in JAX, arrays of one tile -> arrays of one tile; with `source`, their shapes ->
        the shapes of the output fields.
      name: the name of its compute sets; with `source`, of the class.
      cycles: as in `vertex`; None for the planner's estimate.
      threads: 1 or 6.
      state: the first parameters, which are kept per tile.
      source: the file in C++; None for a function in JAX.
      rule: operands and the results' cotangents -> the operands' cotangents, on one tile; None if
        JAX finds it.
    """

    function: Callable[..., Any]
    name: str
    cycles: Cycles = None
    threads: int = 6
    state: tuple[str, ...] = ()
    source: Path | None = None
    rule: Rule | None = None

    def __call__(self, *operands: Any) -> Any:
        """Calls the function with arrays of one tile."""
        return self.function(*operands)

    def defvjp(self, rule: Rule) -> Rule:
        """Sets the rule of the vertex's gradient; a decorator.

        Args:
          rule: in JAX, on one tile: a tuple of the operands, the cotangents of the results (in
            their structure) -> a tuple of the operands' cotangents, None for those without.
        """
        self.rule = check.require_function(rule, "the rule")
        return rule

    @property
    def kind(self) -> str:
        """The kind of Poplar's vertex."""
        return "Vertex" if self.threads == 1 else "MultiVertex"

    def count_cycles(self, operands: Sequence[Any]) -> Callable[[], float] | None:
        """Returns a function that returns a vertex's cycles; None for the planner's estimate.

        Args:
          operands: the shapes and dtypes of one tile's arrays.
        """
        if self.cycles is None:
            return None
        count = (
            self.cycles(**self._operands_of_cycles(operands))
            if callable(self.cycles)
            else self.cycles
        )
        if np.ndim(count):
            if self.threads == 1 or np.shape(count) != (self.threads,):
                raise check.value_error(
                    f"the cycles of vertex '{self.name}' are numbers of shape {np.shape(count)}",
                    "give one number, or with threads=6 one for each thread",
                )
            count = self.threads * np.max(count)
        return lambda: float(count)

    def _operands_of_cycles(self, operands: Sequence[Any]) -> dict[str, Any]:
        """Returns the operands that `cycles` asks for by name."""
        by_name = self.name_operands(operands)
        parameters = inspect.signature(self.cycles).parameters  # type: ignore[arg-type]
        if unknown := [name for name in parameters if name not in by_name]:
            raise check.value_error(
                f"cycles of vertex '{self.name}' asks for '{unknown[0]}'",
                f"its operands are {', '.join(by_name)}",
            )
        return {name: by_name[name] for name in parameters}

    def name_operands(self, operands: Sequence[Any]) -> dict[str, Any]:
        """Returns operands by the names of the function's parameters."""
        try:
            bound = inspect.signature(self.function).bind(*operands)
        except TypeError as error:
            raise check.type_error(
                f"vertex '{self.name}' is given {len(operands)} operands: {error}",
                f"its parameters are {inspect.signature(self.function)}",
            ) from error
        bound.apply_defaults()
        return dict(bound.arguments)


@check.guard
def vertex(
    function: Callable[..., Any] | None = None,
    *,
    cycles: Cycles = None,
    threads: int = 1,
    state: Sequence[str] = (),
    source: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> Any:
    """Makes a vertex for `map` of a function; a decorator, with or without arguments.

    Args:
      function: in JAX, arrays of one tile -> an array, or a pytree of arrays. With `source` its
        parameters are the input fields of the class of its name, and it gives, from a
        `jax.ShapeDtypeStruct` of each, a dict of those of the output fields; a field in both is an
        InOut.
      cycles: a number, or a function of the `jax.ShapeDtypeStruct` of operands, those that it
        asks for by name; the planner's estimate if it is None. With one thread they are a
        worker's, of six tile cycles each; with six the tile's, or six numbers, a worker's each.
      threads: 1 or 6.
      state: the names of the first parameters, which stay on their tiles and are returned last.
      source: a file in C++ with the class of the vertex.
      name: the name of its compute sets, or of the class; the function's by default.

    Raises:
      poplar_error: another number of threads, or a state that is no parameter.
    """
    if function is None:
        options = {"cycles": cycles, "threads": threads, "state": state, "source": source}
        return functools.partial(vertex, name=name, **options)
    check.require_function(function, "the function of a vertex")
    if threads not in (1, 6):
        raise check.value_error(f"threads is {threads}", "a vertex has 1 thread, or all 6")
    if cycles is not None and not callable(cycles):
        check.require_number(cycles, "cycles", "give a number, or a function of the operands")
    state = (state,) if isinstance(state, str) else tuple(state)
    first = tuple(inspect.signature(function).parameters)[: len(state)]
    if state != first:
        raise check.value_error(
            f"state is {', '.join(state)}, and the first parameters are {', '.join(first)}",
            "let the function take its state first",
        )
    path = None if source is None else Path(check.require_path(source, "source"))
    if state and path is not None:
        raise check.value_error("a vertex in C++ has a state", "return an InOut field instead")
    name = name or getattr(function, "__name__", type(function).__name__)
    return Vertex(function, str(name), cycles, threads, state, path)


def as_vertex(vertex_or_function: Vertex | Callable[..., Any]) -> Vertex:
    """Returns a vertex, or makes one of a JAX function, which shares the tile's six threads."""
    if isinstance(vertex_or_function, Vertex):
        return vertex_or_function
    function = check.require_function(vertex_or_function, "the vertex")
    return Vertex(function, getattr(function, "__name__", type(function).__name__))
