"""The arguments of a compiled function: which are static, and what JAX knows of the others."""

from __future__ import annotations

import dataclasses as dc
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax

from lowering import jaxpr, refs


@dc.dataclass(frozen=True)
class Static:
    """Which arguments are compile-time constants.

    Attributes:
      numbers: by position; negative ones count from the last argument.
      names: by name, for those of `numbers` that a call may give by keyword.
    """

    numbers: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, fn: Callable[..., Any], numbers: tuple[int, ...]) -> Static:
        """The static arguments of a function, given their positions."""
        try:
            parameters = list(inspect.signature(fn).parameters.values()) if numbers else []
        except (TypeError, ValueError):  # builtins may hide their signature
            parameters = []
        by_position = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        count = len(by_position)
        static = [by_position[number] for number in numbers if -count <= number < count]
        return cls(numbers, tuple(p.name for p in static if p.kind is p.POSITIONAL_OR_KEYWORD))

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, _Given]:
        """The static arguments, as something to look up by, and the others."""
        static = self._positions(args)
        chosen = tuple(arg for i, arg in enumerate(args) if i in static)
        named = tuple((name, kwargs[name]) for name in self.names if name in kwargs)
        rest = tuple(arg for i, arg in enumerate(args) if i not in static)
        return (chosen, named), (rest, {k: v for k, v in kwargs.items() if k not in self.names})

    def joined(self, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: _Given) -> _Given:
        """All arguments, with others in the place of the dynamic ones."""
        static, rest = self._positions(args), iter(dynamic[0])
        positional = tuple(arg if i in static else next(rest) for i, arg in enumerate(args))
        return positional, {**kwargs, **dynamic[1]}

    def _positions(self, args: tuple[Any, ...]) -> set[int]:
        count = len(args)
        return {number % count for number in self.numbers if -count <= number < count}


_Given = tuple[tuple[Any, ...], dict[str, Any]]


@dc.dataclass(frozen=True)
class Settings:
    """What `ipu.compile` was told about a function."""

    device: str
    engine: str
    static: Static
    donate_argnums: tuple[int, ...]
    name: str


@dc.dataclass(frozen=True)
class Refs:
    """The Refs of a program: it takes their values, and their last ones are its last results.

    Attributes:
      positions: which of the program's inputs they are.
      closed_over: those that are no arguments of the user's function; the last inputs.
    """

    positions: tuple[int, ...]
    closed_over: tuple[Any, ...]

    def among(self, inputs: Sequence[Any]) -> list[Any]:
        """All Refs of one call, in the order of the results.

        Raises:
          TypeError: arguments that were Refs are not, or the other way round.
          ValueError: one Ref is given twice.
        """
        found = tuple(i for i, value in enumerate(inputs) if refs.is_ref(value))
        if found != self.positions:
            raise TypeError(
                f"the program was lowered with Refs as inputs {list(self.positions)}, and those "
                f"given are {list(found)}\n"
                "  fix:   call the function that ipu.compile returned, or lower again"
            )
        given = [inputs[i] for i in found]
        if len(set(map(id, given))) < len(given):
            raise ValueError(
                "a program was given one Ref twice: as two arguments, or as an argument of a "
                "function that closes over it\n"
                "  fix:   give it once"
            )
        return given


def struct(leaf: Any) -> Any:
    """An argument's shape and dtype, weak types kept; a Ref stays what it is."""
    if refs.is_ref(leaf):
        return leaf
    aval = leaf if isinstance(leaf, jaxpr.ShapedArray) else jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
