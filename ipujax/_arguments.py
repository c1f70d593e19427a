"""The arguments of a compiled function: which are static, and what JAX knows of the others."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax

from lowering import jaxpr


@dc.dataclass(frozen=True)
class Settings:
    """What `ipu.compile` was told about a function."""

    device: str
    engine: str
    static_argnums: tuple[int, ...]
    donate_argnums: tuple[int, ...]
    name: str


def split_static(
    args: tuple[Any, ...], static_argnums: tuple[int, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The static positional arguments, and the others."""
    static = {number % len(args) for number in static_argnums if -len(args) <= number < len(args)}
    chosen = tuple(arg for i, arg in enumerate(args) if i in static)
    return chosen, tuple(arg for i, arg in enumerate(args) if i not in static)


def join_static(
    args: tuple[Any, ...], static_argnums: tuple[int, ...], dynamic: tuple[Any, ...]
) -> list[Any]:
    """All positional arguments, with others in the place of the dynamic ones."""
    static = {number % len(args) for number in static_argnums if -len(args) <= number < len(args)}
    rest = iter(dynamic)
    return [arg if i in static else next(rest) for i, arg in enumerate(args)]


def struct(leaf: Any) -> Any:
    """An argument's shape and dtype, weak types kept."""
    aval = leaf if isinstance(leaf, jaxpr.ShapedArray) else jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
