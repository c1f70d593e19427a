"""The inputs of a model: what the user says of them beside what the model does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import onnx
import onnx.helper

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.dtypes import dtype_of

Infos = Mapping[str, onnx.ValueInfoProto]
Shapes = Mapping[str, Sequence[int]]


def check_names(what: str, given: Any, inputs: Infos) -> None:
    """Makes sure that what is given by name is for inputs that there are.

    Raises:
      FrontendError: (a `ValueError`) it is not.
      FrontendTypeError: (a `TypeError`) it is not by name.
    """
    check.instance(given, Mapping, what)
    if other := [name for name in given if name not in inputs]:
        raise check.refuse(
            f"{what} names {', '.join(map(repr, other))}, which is no input of the model",
            f"the inputs are {', '.join(inputs) or 'none'}",
        )


def constants_of(
    inputs: Infos, constants: Mapping[str, Any], shapes: Shapes
) -> dict[str, np.ndarray[Any, Any]]:
    """The values of inputs that are constants, in the model's own types.

    Raises:
      FrontendError: (a `ValueError`) values of another kind or shape than the model says.
    """
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in constants.items():
        if name in shapes:
            raise check.refuse(
                f"input {name!r} is in shapes and in constants", "leave it out of shapes"
            )
        kind = inputs[name].type.tensor_type.elem_type
        dtype_of(kind)
        wanted, array = onnx.helper.tensor_dtype_to_np_dtype(kind), np.asarray(value)
        if array.dtype != wanted and not _converts(array.dtype, wanted):
            raise check.refuse(
                f"constants[{name!r}] is of {array.dtype}, and the input of {wanted}",
                f"give an array of {wanted}",
            )
        _fits(f"constants[{name!r}] has shape", told_shape(inputs[name]), array.shape)
        found[name] = array.astype(wanted)
    return found


def avals_of(inputs: Infos, shapes: Shapes) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and dtypes of the other inputs.

    Raises:
      FrontendError: (a `ValueError`) inputs that are no tensors, or dimensions that are left open.
    """
    avals: dict[str, jax.ShapeDtypeStruct] = {}
    unknown: dict[str, list[Any]] = {}
    for name, info in inputs.items():
        told = told_shape(info)
        if name in shapes:
            told = _given_shape(name, told, shapes[name])
        if told is None or any(isinstance(size, str) for size in told):
            unknown[name] = ["..."] if told is None else told
        else:
            dtype = dtype_of(info.type.tensor_type.elem_type)
            avals[name] = jax.ShapeDtypeStruct(tuple(told), dtype)
    if unknown:
        listed = ", ".join(f"{name} [{', '.join(map(str, s))}]" for name, s in unknown.items())
        example = ", ".join(f"{name!r}: (...)" for name in unknown)
        raise check.refuse(
            f"the model leaves dimensions of its inputs open: {listed}",
            f"an IPU runs static graphs: from_onnx(..., shapes={{{example}}})",
        )
    return avals


def told_shape(info: onnx.ValueInfoProto) -> list[Any] | None:
    """What the model says of an input's shape: names where it is open; None if nothing.

    Raises:
      FrontendError: (a `ValueError`) the input is no dense tensor.
    """
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise check.refuse(f"input {info.name!r} is a {kind}", "use dense tensors")
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    sizes = tensor.shape.dim  # some write -1 for a size that is open
    known = [d.HasField("dim_value") and d.dim_value >= 0 for d in sizes]
    return [d.dim_value if k else d.dim_param or "?" for d, k in zip(sizes, known, strict=True)]


def _given_shape(name: str, told: list[Any] | None, given: Any) -> list[Any]:
    what = f"shapes[{name!r}]"
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise check.other_than("a shape", given, what, "give a tuple of integers")
    shape = [check.integer(size, f"a dimension of {what}", 0) for size in given]
    _fits(f"{what} is", told, shape)
    return shape


def _fits(what: str, told: list[Any] | None, shape: Sequence[int]) -> None:
    fits = told is None or (
        len(told) == len(shape)
        and all(isinstance(t, str) or t == s for t, s in zip(told, shape, strict=True))
    )
    if not fits:
        raise check.refuse(
            f"{what} {tuple(shape)}, and the model says {told}", "give one that fits"
        )


def _converts(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether numbers can be written in the other type without becoming something else."""
    orders = "biuf"  # a Python list of integers may stand for floating point
    if given.kind not in orders or wanted.kind not in orders:
        return False
    return np.can_cast(given, wanted, "same_kind") or (given.kind, wanted.kind) == ("i", "u")
