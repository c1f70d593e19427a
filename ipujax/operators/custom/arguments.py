"""What the two operators of compiled functions are called with, checked."""

from __future__ import annotations

import dataclasses as dc
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ipujax.checks.arguments import dtype_of
from ipujax.checks.arrays import ArrayChecks
from ipujax.errors import CustomOpError
from ipujax.operators.custom import library
from lowering import jaxpr

check = ArrayChecks(CustomOpError, CustomOpError)

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


class Gradients(NamedTuple):
    """What a call says of its gradient, unchecked; as the arguments of `cpu_user_operation`."""

    separate_gradients: Any
    inputs_with_gradients: Any
    gradient_attributes: Any


def checked_call(
    inputs: Any,
    library_path: Any,
    outs: Any,
    name: Any,
    op_name: Any,
    attributes: Any,
    gradients: Gradients,
) -> tuple[Function, list[jax.Array]]:
    """The function that is asked for, and its inputs as arrays.

    Raises:
      CustomOpError: an argument of a wrong type or value, or a library that does not exist.
    """
    where = jaxpr.current_user_line()
    listed = check.sequence(inputs, f"`{name}`: inputs", "arrays")
    arrays = [check.array(each, f"`{name}`: an input") for each in listed]
    for what, text in (("name", name), ("op_name", op_name)):
        if not check.text(text, what):
            raise check.refuse(f"{what} is {text!r}", f"{what} is a text that is not empty")
    separate, indices, text = gradients
    more = f"`{name}`: gradient_attributes"
    function = Function(
        path=library.resolved(library_path, where),
        symbol=op_name,
        name=name,
        results=_results(outs, name),
        attributes=check.text(attributes, f"`{name}`: attributes", optional=True) or "",
        gradient_attributes=check.text(text, more, optional=True) or "",
        separate=check.flag(separate, f"`{name}`: separate_gradients"),
        differentiable=_indices(indices, len(arrays), name),
        where=where,
    )
    return function, arrays


def _results(outs: Any, name: str) -> tuple[Result, ...]:
    if outs is None:
        return ()
    keys = ("output_types", "output_shapes")
    fix = 'outs = {"output_types": [dtype, ...], "output_shapes": [shape, ...]}'
    there = set(outs) if isinstance(outs, Mapping) else None  # pyright: ignore
    if there != set(keys):
        has = "no dict" if there is None else f"a dict with the keys {sorted(map(str, there))}"
        raise check.refuse(f"`{name}`: outs is {has}", fix)
    types, shapes = (outs[key] for key in keys)
    for key, value in zip(keys, (types, shapes), strict=True):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise check.refuse(f"`{name}`: {key} is {value!r}, no list", fix)
    if len(types) != len(shapes):
        what = f"`{name}`: {len(types)} output_types and {len(shapes)} output_shapes"
        raise check.refuse(what, "give a dtype and a shape for each result")
    return tuple(
        (_shape(shape, name), _dtype(dtype, name))
        for dtype, shape in zip(types, shapes, strict=True)
    )


def _shape(shape: Any, name: str) -> tuple[int, ...]:
    try:
        extents = tuple(operator.index(extent) for extent in shape)
    except TypeError:
        extents = (-1,)
    if any(extent < 0 for extent in extents):
        what = f"`{name}`: a shape in output_shapes is {shape!r}"
        raise check.refuse(what, "a shape is a list of integers that are not negative")
    return extents


def _dtype(dtype: Any, name: str) -> str:
    known = dtype_of(dtype)
    if known is None:
        what = f"`{name}`: a dtype in output_types is {dtype!r}"
        raise check.refuse(what, "name it as NumPy or JAX does")
    if jax.dtypes.canonicalize_dtype(known) != known:
        what = f"`{name}`: JAX holds no {known.name} as it is configured"
        raise check.refuse(what, 'jax.config.update("jax_enable_x64", True)')
    return known.name


def _indices(indices: Any, count: int, name: str) -> tuple[int, ...]:
    if indices is None:
        return tuple(range(count))
    try:
        numbers = tuple(operator.index(index) for index in indices)
    except TypeError:
        numbers = (-1,)
    is_number = not any(isinstance(index, (bool, np.bool_)) for index in numbers)
    if not is_number or len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(count)):
        what = f"`{name}`: inputs_with_gradients is {indices!r}, of {count} inputs"
        raise check.refuse(what, "list each input at most once, by its number from 0")
    return numbers
