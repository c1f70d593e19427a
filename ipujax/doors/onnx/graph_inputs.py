"""Checks of a model's inputs against the shapes and constants given by the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import onnx
import onnx.helper

from ipujax.doors.models import check
from ipujax.doors.onnx.dtypes import dtype_of_onnx_type

Infos = Mapping[str, onnx.ValueInfoProto]
Shapes = Mapping[str, Sequence[int]]


def check_input_names(argument_name: str, values_of_input: Any, inputs: Infos) -> None:
    """Checks that a mapping's names are inputs of the model.

    Raises:
      FrontendError: (a `ValueError`) a name is no input.
      FrontendTypeError: (a `TypeError`) the argument is no mapping.
    """
    check.require_instance(values_of_input, Mapping, argument_name)
    if unknown_names := [name for name in values_of_input if name not in inputs]:
        raise check.value_error(
            f"{argument_name} names {', '.join(map(repr, unknown_names))}, which is no input of "
            "the model",
            f"the inputs are {', '.join(inputs) or 'none'}",
        )


def convert_constant_inputs(
    inputs: Infos, constants: Mapping[str, object], shapes: Shapes
) -> dict[str, np.ndarray]:
    """Returns the values of constant inputs, in the model's own types.

    Raises:
      FrontendError: (a `ValueError`) a value's dtype or shape does not match the model.
    """
    constant_of_input: dict[str, np.ndarray] = {}
    for name, value in constants.items():
        if name in shapes:
            raise check.value_error(
                f"input {name!r} is in shapes and in constants", "leave it out of shapes"
            )
        onnx_type = inputs[name].type.tensor_type.elem_type
        dtype_of_onnx_type(onnx_type)
        onnx_dtype, array = onnx.helper.tensor_dtype_to_np_dtype(onnx_type), np.asarray(value)
        if array.dtype != onnx_dtype and not _is_convertible(array.dtype, onnx_dtype):
            raise check.value_error(
                f"constants[{name!r}] is of {array.dtype}, and the input of {onnx_dtype}",
                f"give an array of {onnx_dtype}",
            )
        _check_shape_matches(
            f"constants[{name!r}] has shape", shape_of_input(inputs[name]), array.shape
        )
        constant_of_input[name] = array.astype(onnx_dtype)
    return constant_of_input


def find_input_avals(inputs: Infos, shapes: Shapes) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns shapes and dtypes of the inputs that are not constant.

    Raises:
      FrontendError: (a `ValueError`) an input is no tensor, or a dimension is left open.
    """
    avals: dict[str, jax.ShapeDtypeStruct] = {}
    unknown: dict[str, list[Any]] = {}
    for name, info in inputs.items():
        shape = shape_of_input(info)
        if name in shapes:
            shape = _check_input_shape(name, shape, shapes[name])
        if shape is None or any(isinstance(size, str) for size in shape):
            unknown[name] = ["..."] if shape is None else shape
        else:
            dtype = dtype_of_onnx_type(info.type.tensor_type.elem_type)
            avals[name] = jax.ShapeDtypeStruct(tuple(shape), dtype)
    if unknown:
        listed = ", ".join(f"{name} [{', '.join(map(str, s))}]" for name, s in unknown.items())
        example = ", ".join(f"{name!r}: (...)" for name in unknown)
        raise check.value_error(
            f"the model leaves dimensions of its inputs open: {listed}",
            f"an IPU runs static graphs: from_onnx(..., shapes={{{example}}})",
        )
    return avals


def shape_of_input(info: onnx.ValueInfoProto) -> list[Any] | None:
    """Returns an input's shape in the model: names for open sizes, None if it has no shape.

    Raises:
      FrontendError: (a `ValueError`) the input is no dense tensor.
    """
    value_type = info.type.WhichOneof("value")
    if value_type != "tensor_type":
        raise check.value_error(f"input {info.name!r} is a {value_type}", "use dense tensors")
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    sizes = tensor.shape.dim  # some exporters write -1 for an open size
    is_fixed = [d.HasField("dim_value") and d.dim_value >= 0 for d in sizes]
    return [d.dim_value if k else d.dim_param or "?" for d, k in zip(sizes, is_fixed, strict=True)]


def _check_input_shape(name: str, declared: list[object] | None, user_shape: object) -> list[Any]:
    argument_name = f"shapes[{name!r}]"
    if isinstance(user_shape, str) or not isinstance(user_shape, Sequence):
        raise check.wrong_type_error(
            "a shape", user_shape, argument_name, "give a tuple of integers"
        )
    shape = [
        check.require_integer(size, f"a dimension of {argument_name}", 0) for size in user_shape
    ]
    _check_shape_matches(f"{argument_name} is", declared, shape)
    return shape


def _check_shape_matches(
    description: str, declared: list[object] | None, shape: Sequence[int]
) -> None:
    is_match = declared is None or (
        len(declared) == len(shape)
        and all(isinstance(t, str) or t == s for t, s in zip(declared, shape, strict=True))
    )
    if not is_match:
        raise check.value_error(
            f"{description} {tuple(shape)}, and the model says {declared}", "give one that fits"
        )


def _is_convertible(source: np.dtype, target: np.dtype) -> bool:
    """Returns whether numbers of one dtype can be written in another without loss of kind."""
    orders = "biuf"  # kinds by generality: a list of integers may stand for floats
    if source.kind not in orders or target.kind not in orders:
        return False
    return np.can_cast(source, target, "same_kind") or (source.kind, target.kind) == ("i", "u")
