"""Whether two outcomes of a program are the same.

Integers, booleans and keys must agree bit for bit. Floats may differ by the rounding of the
coarsest dtype that the program uses, since XLA fuses other operations in other kernels.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

TOLERANCE = {"float32": 2e-5, "float16": 2e-2, "bfloat16": 1e-1}


@dc.dataclass(frozen=True)
class Outcome:
    """What a program did in one run.

    Attributes:
      results: what it returned.
      seen: what ordered effects told, in order.
      heard: what other effects told; their order is their own.
      sent: what outfeeds got.
      left: what Refs that it was given hold afterwards.
    """

    results: Any
    seen: Sequence[Any]
    heard: Sequence[Any]
    sent: Sequence[Any]
    left: Sequence[Any]


def difference(
    got: Outcome, wanted: Outcome, precision: str, noise: Sequence[Outcome] = ()
) -> str | None:
    """What differs, in words; None if nothing does.

    Args:
      got: what an engine did.
      wanted: what `jax.jit` did.
      precision: the coarsest float of the program.
      noise: what `jax.jit` did with arguments a few last bits away: the program's own sensitivity
        is allowed for.
    """
    for part in ("results", "seen", "heard", "sent", "left"):
        mine, right = getattr(got, part), getattr(wanted, part)
        others = [getattr(each, part) for each in noise]
        if part == "heard":
            digits = 4 if precision == "float32" else 1
            mine, right = _sorted(mine, digits), _sorted(right, digits)
            others = [_sorted(other, digits) for other in others]
        structure = _structure(right)
        if _structure(mine) != structure:
            return f"{part}: structure\n  got    {_structure(mine)}\n  wanted {structure}"
        near = [jax.tree.leaves(other) for other in others if _structure(other) == structure]
        paths = jax.tree_util.tree_leaves_with_path(right)
        for number, (path, theirs) in enumerate(paths):
            name = part + jax.tree_util.keystr(path)
            found = _leaf(
                jax.tree.leaves(mine)[number],
                theirs,
                precision,
                [leaves[number] for leaves in near],
            )
            if found:
                return f"{name}: {found}"
    return None


def _structure(tree: Any) -> str:
    """In words: each run defines the program's own classes anew."""
    return str(jax.tree.structure(tree))


def _sorted(told: Sequence[Any], digits: int) -> list[Any]:
    """Effects without an order, by what was told: first the tag, then the numbers, rounded."""

    def key(values: Sequence[Any]) -> list[list[float]]:
        flat = (np.ravel(np.asarray(value)).astype(complex).real for value in values)
        return [np.nan_to_num(numbers).round(digits).tolist() for numbers in flat]

    return sorted(told, key=key)


def _leaf(mine: Any, theirs: Any, precision: str, near: Sequence[Any]) -> str | None:
    if _type_of(mine) != _type_of(theirs):
        return f"type {_type_of(mine)}, wanted {_type_of(theirs)}"
    a, b = _numbers(mine), _numbers(theirs)
    if a.tobytes() == b.tobytes() and a.shape == b.shape:
        return None
    if np.issubdtype(b.dtype, np.inexact):
        limit = TOLERANCE[precision] * (1.0 + np.abs(b).max(initial=0.0, where=np.isfinite(b)))
        spread = [np.abs(_numbers(other) - b) for other in near]
        allowed = limit + 20 * np.max([np.zeros(b.shape), *spread], axis=0)
        unequal = (np.isfinite(a) != np.isfinite(b)) | (np.isnan(a) != np.isnan(b))
        with np.errstate(invalid="ignore"):
            unequal |= np.isfinite(a) & np.isfinite(b) & ~(np.abs(a - b) <= allowed)
    else:
        unequal = a != b
    if not np.any(unequal):
        return None
    return (
        f"{int(np.sum(unequal))} of {b.size} differ\n  got    {a.tolist()}\n  wanted {b.tolist()}"
    )


def _type_of(leaf: Any) -> tuple[Any, ...]:
    aval = jax.typeof(leaf) if isinstance(leaf, jax.Array) else leaf
    return type(leaf).__name__, aval.shape, aval.dtype, getattr(aval, "weak_type", False)


def _numbers(leaf: Any) -> np.ndarray:
    """As numbers that NumPy compares: keys as their data, floats wide."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return np.asarray(leaf).astype(np.float64)
    return np.asarray(leaf)
