"""The initial values of a host embedding."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable
from typing import cast

import jax
import numpy as np

from ipujax.ground import PyTree, check

# Elements that are drawn at a time: a large table then needs little memory beside its own.
_BLOCK = 1 << 20


def initialize_table(table: np.ndarray, initializer: object, name: str) -> None:
    """Fills a table with its initial values, in place.

    Args:
      table: `[rows, columns]`.
      initializer: as `create_host_embedding` takes it.
      name: what randomness is drawn from, so that a program gives the same table in every run.
    """
    if initializer is None:
        _fill_glorot_uniform(table, zlib.crc32(name.encode()))
        return
    values = np.asarray(_call_initializer(table, initializer, name))
    if values.shape not in (table.shape, ()):
        raise check.value_error(
            f"the initializer of host embedding `{name}` gives shape {list(values.shape)}",
            f"it must give {list(table.shape)}, or one number for all",
        )
    table[...] = values


def _call_initializer(table: np.ndarray, initializer: object, name: str) -> PyTree:
    if callable(initializer):
        key = (jax.random.key(zlib.crc32(name.encode())),) if _takes_key(initializer) else ()
        return initializer(*key, table.shape, table.dtype)
    if isinstance(initializer, (int, float, np.ndarray, np.generic, jax.Array)):
        return cast(PyTree, initializer)
    raise check.type_error(
        f"the initializer of host embedding `{name}` is {initializer!r}",
        "give a function of JAX's form, (key, shape, dtype), or (shape, dtype), or an array",
    )


def _takes_key(function: Callable[..., PyTree]) -> bool:
    """Returns whether an initializer has JAX's form with a key; NumPy's `ones` takes no key."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        return False  # NumPy's own functions do not always say what they take
    required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return len(required) > 2 or (bool(parameters) and parameters[0].name in ("key", "rng"))


def _fill_glorot_uniform(table: np.ndarray, seed: int) -> None:
    """Fills a table uniformly in +-sqrt(6 / (rows + columns)), TensorFlow's default."""
    generator = np.random.default_rng(seed)
    limit = np.sqrt(6.0 / max(sum(table.shape), 1))
    rows = max(1, _BLOCK // max(table.shape[1], 1))
    for start in range(0, len(table), rows):
        block = table[start : start + rows]
        block[...] = generator.random(block.shape, np.float32) * (2 * limit) - limit
