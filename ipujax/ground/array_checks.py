"""Checks of the arrays that operators compute with, their dtypes and shapes, while tracing."""

from __future__ import annotations

import contextlib
import dataclasses as dc
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Hides our frames from the lines of users that errors name; every operator imports these checks.
from ipujax.ground import user_lines as user_lines
from ipujax.ground.argument_checks import Checks
from ipujax.ground.errors import ConfigTypeError, OperatorError
from ipujax.ground.value_types import PyTree
from lowering import jaxpr


@dc.dataclass(frozen=True)
class ArrayChecks(Checks):
    """Checks of arguments and of arrays."""

    def require_array(self, x: Any, argument: str, dtype: Any = None) -> jax.Array:
        """Returns an operand as an array, cast to `dtype` if one is given."""
        try:
            return jnp.asarray(x, dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise self.type_error(
                f"{argument} cannot be an array: {error}",
                "give an array, a number, or a list of numbers",
            ) from None

    def require_array_leaves(self, args: object, argument: str) -> None:
        """Raises an error if a leaf of a user function's arguments is no array or number."""
        for leaf in jax.tree.leaves(args):
            try:
                jax.typeof(leaf)
            except TypeError:
                raise self.type_error(
                    f"{argument} was given {leaf!r}, of type {type(leaf).__name__}",
                    "give arrays and numbers only; bind anything else with functools.partial",
                ) from None

    def require_positional_arrays(
        self, args: object, kwargs: Mapping[str, object], argument: str
    ) -> None:
        """Raises an error for keyword arguments, or arguments that are no arrays."""
        if kwargs:
            raise self.type_error(
                f"{argument} was given keyword arguments ({', '.join(kwargs)})",
                "give all arguments by position",
            )
        self.require_array_leaves(args, argument)

    def require_some_array(self, results: object, argument: str) -> PyTree:
        """Returns the results of a user's function, which must hold at least one array."""
        if not jax.tree.leaves(results):
            raise self.value_error(
                f"{argument} returned {results!r}, without an array", "return at least one array"
            )
        return results

    def require_floats(self, x: object, argument: str) -> jax.Array:
        """Returns an operand as an array, which must hold floats."""
        values = self.require_array(x, argument)
        if not jnp.issubdtype(values.dtype, jnp.floating):
            raise self.value_error(
                f"{argument} is {values.dtype}, but must be floats", "cast it to jnp.float32 first"
            )
        return values

    def require_integers(
        self, value: object, dims: tuple[int | str, ...], argument: str
    ) -> jax.Array:
        """Returns integers as an int32 array of the shape `dims`."""
        values = self.require_array(value, argument)
        if not jnp.issubdtype(values.dtype, jnp.integer):
            raise self.type_error(
                f"{argument} are {values.dtype}", "give integers, such as jnp.int32"
            )
        self.require_shape(values, dims, argument)
        return values.astype(jnp.int32)

    def require_shape(self, values: jax.Array, dims: tuple[int | str, ...], argument: str) -> None:
        """Raises an error if an array's shape is not `dims`; a name in it stands for any size."""
        same_rank = values.ndim == len(dims)
        if same_rank and all(
            isinstance(want, str) or want == have
            for want, have in zip(dims, values.shape, strict=True)
        ):
            return
        expected_shape = ", ".join(map(str, dims))
        raise self.value_error(
            f"{argument} have shape {list(values.shape)}", f"give them the shape [{expected_shape}]"
        )

    def require_in_range(self, integers: object, stop: int, argument: str) -> None:
        """Raises an error if integers that are known while tracing are not in 0..`stop` - 1."""
        values = values_if_known(integers)
        if values is None:
            return
        outside = values[(values < 0) | (values >= stop)]
        if outside.size:
            raise self.value_error(
                f"{argument} contain {outside.flat[0]}", f"give integers from 0 to {stop - 1}"
            )

    def operator_scope(self, name: str | None) -> contextlib.AbstractContextManager[object]:
        """Returns the named scope of an operator with an optional name."""
        self.require_text(name, "the name of an operator", optional=True)
        return jax.named_scope(name) if name else contextlib.nullcontext()


check = ArrayChecks(ConfigTypeError, OperatorError)
"""The checks of operators."""


def values_if_known(x: object) -> np.ndarray | None:
    """Returns the values of an operand if they are known while tracing, else None."""
    return None if any(map(jaxpr.is_tracer, jax.tree.leaves(x))) else np.asarray(x)
