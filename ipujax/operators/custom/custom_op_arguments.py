"""Checks the arguments of the two operators that call compiled functions of users."""

from __future__ import annotations

import dataclasses as dc
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, SupportsIndex

import jax
import numpy as np
from jax.typing import DTypeLike

from ipujax.ground import ArrayChecks, CustomOpError, PyTree, parse_dtype
from ipujax.operators.custom import shared_library
from lowering import jaxpr

check = ArrayChecks(CustomOpError, CustomOpError)

Result = tuple[tuple[int, ...], str]
"""Shape and dtype name of one result."""


@dc.dataclass(frozen=True)
class Function:
    """A user's compiled function and its gradient function.

    Attributes:
      path: the path of the library.
      symbol: its C name; that of its gradient is `<symbol>_grad`.
      name: the user's name for it.
      results: the shapes and dtypes of its results.
      attributes: the string attribute that it gets.
      gradient_attributes: the string attribute that its gradient function gets.
      separate: whether each input has a gradient function of its own, `<symbol>_grad_<i>`.
      differentiable: the inputs that have gradients.
      call_line: the user's line of the call.
    """

    path: str
    symbol: str
    name: str
    results: tuple[Result, ...]
    attributes: str
    gradient_attributes: str
    separate: bool
    differentiable: tuple[int, ...]
    call_line: str


class Gradients(NamedTuple):
    """The unchecked gradient arguments of a call, named as in `cpu_user_operation`."""

    separate_gradients: object
    inputs_with_gradients: Iterable[SupportsIndex] | None
    gradient_attributes: object


def check_custom_op_call(
    inputs: PyTree,
    library_path: object,
    outs: Mapping[str, Any] | None,
    name: str,
    op_name: str,
    attributes: object,
    gradients: Gradients,
) -> tuple[Function, list[jax.Array]]:
    """Checks a call; returns the function and its inputs as arrays.

    Raises:
      CustomOpError: an argument of a wrong type or value, or a library that does not exist.
    """
    call_line = jaxpr.current_user_line()
    listed = check.require_sequence(inputs, f"`{name}`: inputs", "arrays")
    arrays = [check.require_array(operand, f"`{name}`: an input") for operand in listed]
    for argument, text in (("name", name), ("op_name", op_name)):
        if not check.require_text(text, argument):
            raise check.value_error(
                f"{argument} is {text!r}", f"{argument} is a text that is not empty"
            )
    separate, indices, text = gradients
    attributes_argument = f"`{name}`: gradient_attributes"
    function = Function(
        path=shared_library.resolve_library_path(library_path, call_line),
        symbol=op_name,
        name=name,
        results=_check_output_types(outs, name),
        attributes=check.require_text(attributes, f"`{name}`: attributes", optional=True) or "",
        gradient_attributes=check.require_text(text, attributes_argument, optional=True) or "",
        separate=check.require_flag(separate, f"`{name}`: separate_gradients"),
        differentiable=_check_gradient_inputs(indices, len(arrays), name),
        call_line=call_line,
    )
    return function, arrays


def _check_output_types(outs: Mapping[str, Any] | None, name: str) -> tuple[Result, ...]:
    if outs is None:
        return ()
    keys = ("output_types", "output_shapes")
    fix = 'outs = {"output_types": [dtype, ...], "output_shapes": [shape, ...]}'
    present_keys = set(outs) if isinstance(outs, Mapping) else None  # pyright: ignore
    if present_keys != set(keys):
        has = (
            "no dict"
            if present_keys is None
            else f"a dict with the keys {sorted(map(str, present_keys))}"
        )
        raise check.value_error(f"`{name}`: outs is {has}", fix)
    types, shapes = (outs[key] for key in keys)
    for key, value in zip(keys, (types, shapes), strict=True):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise check.value_error(f"`{name}`: {key} is {value!r}, no list", fix)
    if len(types) != len(shapes):
        problem = f"`{name}`: {len(types)} output_types and {len(shapes)} output_shapes"
        raise check.value_error(problem, "give a dtype and a shape for each result")
    return tuple(
        (_check_output_shape(shape, name), _check_output_dtype(dtype, name))
        for dtype, shape in zip(types, shapes, strict=True)
    )


def _check_output_shape(shape: Iterable[SupportsIndex], name: str) -> tuple[int, ...]:
    try:
        extents = tuple(operator.index(extent) for extent in shape)
    except TypeError:
        extents = (-1,)
    if any(extent < 0 for extent in extents):
        problem = f"`{name}`: a shape in output_shapes is {shape!r}"
        raise check.value_error(problem, "a shape is a list of integers that are not negative")
    return extents


def _check_output_dtype(dtype: DTypeLike, name: str) -> str:
    parsed_dtype = parse_dtype(dtype)
    if parsed_dtype is None:
        problem = f"`{name}`: a dtype in output_types is {dtype!r}"
        raise check.value_error(problem, "name it as NumPy or JAX does")
    if jax.dtypes.canonicalize_dtype(parsed_dtype) != parsed_dtype:
        problem = f"`{name}`: JAX holds no {parsed_dtype.name} as it is configured"
        raise check.value_error(problem, 'jax.config.update("jax_enable_x64", True)')
    return parsed_dtype.name


def _check_gradient_inputs(
    indices: Iterable[SupportsIndex] | None, count: int, name: str
) -> tuple[int, ...]:
    if indices is None:
        return tuple(range(count))
    try:
        numbers = tuple(operator.index(index) for index in indices)
    except TypeError:
        numbers = (-1,)
    is_number = not any(isinstance(index, (bool, np.bool_)) for index in numbers)
    if not is_number or len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(count)):
        problem = f"`{name}`: inputs_with_gradients is {indices!r}, of {count} inputs"
        raise check.value_error(problem, "list each input at most once, by its number from 0")
    return numbers
