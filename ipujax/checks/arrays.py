"""Checks of what operators compute with: arrays, their dtypes and shapes, while tracing."""

from __future__ import annotations

import contextlib
import dataclasses as dc
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.checks import lines as lines  # hides frames of ours from JAX
from ipujax.checks.arguments import Checks
from ipujax.errors import ConfigTypeError, OperatorError
from lowering import jaxpr


@dc.dataclass(frozen=True)
class ArrayChecks(Checks):
    """Checks of arguments and of arrays."""

    def array(self, x: Any, what: str, dtype: Any = None) -> jax.Array:
        """An operand as an array, of the dtype if one is given."""
        try:
            return jnp.asarray(x, dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise self.refuse_type(
                f"{what} cannot be an array: {error}",
                "give an array, a number, or a list of numbers",
            ) from None

    def leaves(self, args: Any, what: str) -> None:
        """Refuses what is no array or number in the arguments (any pytree) of a user's function."""
        for leaf in jax.tree.leaves(args):
            try:
                jax.typeof(leaf)
            except TypeError:
                raise self.refuse_type(
                    f"{what} was given {leaf!r}, of type {type(leaf).__name__}",
                    "give arrays and numbers only; bind anything else with functools.partial",
                ) from None

    def by_position(self, args: object, kwargs: Mapping[str, object], what: str) -> None:
        """Refuses keyword arguments of a user's function, and arguments that are no arrays."""
        if kwargs:
            raise self.refuse_type(
                f"{what} was given keyword arguments ({', '.join(kwargs)})",
                "give all arguments by position",
            )
        self.leaves(args, what)

    def some_array(self, results: Any, what: str) -> Any:
        """The results of a user's function, with at least one array."""
        if not jax.tree.leaves(results):
            raise self.refuse(
                f"{what} returned {results!r}, without an array", "return at least one array"
            )
        return results

    def floats(self, x: Any, what: str) -> jax.Array:
        """An operand that must hold floats, as an array."""
        values = self.array(x, what)
        if not jnp.issubdtype(values.dtype, jnp.floating):
            raise self.refuse(
                f"{what} is {values.dtype}, but must be floats", "cast it to jnp.float32 first"
            )
        return values

    def integers(self, value: Any, dims: tuple[int | str, ...], what: str) -> jax.Array:
        """An int32 array of integers, in the plural, of a shape as `shape` takes it."""
        values = self.array(value, what)
        if not jnp.issubdtype(values.dtype, jnp.integer):
            raise self.refuse_type(f"{what} are {values.dtype}", "give integers, such as jnp.int32")
        self.shape(values, dims, what)
        return values.astype(jnp.int32)

    def shape(self, values: jax.Array, dims: tuple[int | str, ...], what: str) -> None:
        """Refuses an array whose shape is not `dims`; a name in it stands for any extent."""
        same_rank = values.ndim == len(dims)
        if same_rank and all(
            isinstance(want, str) or want == have
            for want, have in zip(dims, values.shape, strict=True)
        ):
            return
        wanted = ", ".join(map(str, dims))
        raise self.refuse(
            f"{what} have shape {list(values.shape)}", f"give them the shape [{wanted}]"
        )

    def inside(self, given: Any, stop: int, what: str) -> None:
        """Refuses integers that are known while tracing and not from 0 to `stop` - 1."""
        values = known(given)
        if values is None:
            return
        outside = values[(values < 0) | (values >= stop)]
        if outside.size:
            raise self.refuse(
                f"{what} contain {outside.flat[0]}", f"give integers from 0 to {stop - 1}"
            )

    def scope(self, name: str | None) -> contextlib.AbstractContextManager[Any]:
        """The named scope of an operator's optional name."""
        self.text(name, "the name of an operator", optional=True)
        return jax.named_scope(name) if name else contextlib.nullcontext()


check = ArrayChecks(ConfigTypeError, OperatorError)
"""The checks of operators."""


def known(x: Any) -> np.ndarray[Any, Any] | None:
    """The values of an operand, if they are known while tracing."""
    return None if any(map(jaxpr.is_tracer, jax.tree.leaves(x))) else np.asarray(x)
