"""What the two operators of compiled functions are called with, checked."""

from __future__ import annotations

import dataclasses as dc
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.operators.custom import library
from ipujax.operators.custom.error import error
from lowering import jaxpr

Result = tuple[tuple[int, ...], str]
"""Shape and dtype name of one result."""


@dc.dataclass(frozen=True)
class Function:
    """A user's compiled function, and what is known of its gradient.

    Attributes:
      path: the library's.
      symbol: its C name; that of its gradient is `<symbol>_grad`.
      name: what the user calls it.
      results: what it gives.
      attributes: the text that it is given.
      gradient_attributes: the text that its gradient is given.
      separate: whether each input has a gradient function of its own, `<symbol>_grad_<i>`.
      differentiable: the inputs that have gradients.
      where: the user's line of the call.
    """

    path: str
    symbol: str
    name: str
    results: tuple[Result, ...]
    attributes: str
    gradient_attributes: str
    separate: bool
    differentiable: tuple[int, ...]
    where: str


def checked_function(
    count: int,
    *,
    library_path: Any,
    outs: Any,
    name: Any,
    op_name: Any,
    separate_gradients: Any,
    inputs_with_gradients: Any,
    attributes: Any,
    gradient_attributes: Any,
) -> Function:
    """The function that is asked for.

    Args:
      count: how many inputs it has.

    Raises:
      CustomOpError: an argument of a wrong type or value, or a library that does not exist.
    """
    where = jaxpr.current_user_line()
    for what, text in (("name", name), ("op_name", op_name)):
        if not isinstance(text, str) or not text:
            raise error(f"{what} is {text!r}", f"{what} is a text that is not empty", where)
    if not isinstance(separate_gradients, bool):
        fix = "separate_gradients is True or False"
        raise error(f"`{name}`: separate_gradients is {separate_gradients!r}", fix, where)
    return Function(
        path=library.resolved(library_path, where),
        symbol=op_name,
        name=name,
        results=_results(outs, name, where),
        attributes=_text("attributes", attributes, name, where),
        gradient_attributes=_text("gradient_attributes", gradient_attributes, name, where),
        separate=separate_gradients,
        differentiable=_indices(inputs_with_gradients, count, name, where),
        where=where,
    )


def checked_inputs(inputs: Any, name: Any) -> list[jax.Array]:
    """The inputs as arrays.

    Raises:
      CustomOpError: they are no list or tuple of arrays.
    """
    if not isinstance(inputs, (list, tuple)):
        fix = "give a list of arrays; of one array, a list of one"
        where = jaxpr.current_user_line()
        raise error(f"`{name}`: inputs are {type(inputs).__name__}, no list", fix, where)
    return as_arrays(inputs, f"`{name}`: an input")  # pyright: ignore[reportUnknownArgumentType]


def as_arrays(values: Sequence[Any], what: str) -> list[jax.Array]:
    """Values as arrays.

    Args:
      values: what is given.
      what: one of them, for messages.

    Raises:
      CustomOpError: one is no array.
    """
    try:
        return [jnp.asarray(each) for each in values]
    except (TypeError, ValueError) as wrong:
        where = jaxpr.current_user_line()
        raise error(f"{what} is no array: {wrong}", "give arrays or numbers", where) from wrong


def _results(outs: Any, name: str, where: str) -> tuple[Result, ...]:
    if outs is None:
        return ()
    keys = ("output_types", "output_shapes")
    fix = 'outs = {"output_types": [dtype, ...], "output_shapes": [shape, ...]}'
    given = set(outs) if isinstance(outs, Mapping) else None  # pyright: ignore
    if given != set(keys):
        has = "no dict" if given is None else f"a dict with the keys {sorted(map(str, given))}"
        raise error(f"`{name}`: outs is {has}", fix, where)
    types, shapes = (outs[key] for key in keys)
    for key, value in zip(keys, (types, shapes), strict=True):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise error(f"`{name}`: {key} is {value!r}, no list", fix, where)
    if len(types) != len(shapes):
        what = f"`{name}`: {len(types)} output_types and {len(shapes)} output_shapes"
        raise error(what, "give a dtype and a shape for each result", where)
    return tuple(
        (_shape(shape, name, where), _dtype(dtype, name, where))
        for dtype, shape in zip(types, shapes, strict=True)
    )


def _shape(shape: Any, name: str, where: str) -> tuple[int, ...]:
    try:
        extents = tuple(operator.index(extent) for extent in shape)
    except TypeError:
        extents = (-1,)
    if any(extent < 0 for extent in extents):
        what = f"`{name}`: a shape in output_shapes is {shape!r}"
        raise error(what, "a shape is a list of integers that are not negative", where)
    return extents


def _dtype(dtype: Any, name: str, where: str) -> str:
    try:
        found = jnp.dtype(dtype if dtype is not None else "None")  # NumPy takes None for float64
    except TypeError as wrong:
        what = f"`{name}`: a dtype in output_types is {dtype!r}"
        raise error(what, "name it as NumPy or JAX does", where) from wrong
    if jax.dtypes.canonicalize_dtype(found) != found:
        what = f"`{name}`: JAX holds no {found.name} as it is configured"
        raise error(what, 'jax.config.update("jax_enable_x64", True)', where)
    return found.name


def _text(what: str, text: Any, name: str, where: str) -> str:
    if text is not None and not isinstance(text, str):
        raise error(f"`{name}`: {what} is {text!r}", f"{what} is a str or None", where)
    return text or ""


def _indices(indices: Any, count: int, name: str, where: str) -> tuple[int, ...]:
    if indices is None:
        return tuple(range(count))
    try:
        found = tuple(operator.index(index) for index in indices)
    except TypeError:
        found = (-1,)
    is_number = not any(isinstance(index, (bool, np.bool_)) for index in found)
    if not is_number or len(set(found)) < len(found) or not set(found) <= set(range(count)):
        what = f"`{name}`: inputs_with_gradients is {indices!r}, of {count} inputs"
        raise error(what, "list each input at most once, by its number from 0", where)
    return found
