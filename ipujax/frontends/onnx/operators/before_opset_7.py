"""Operators as ONNX defined them before opset 7, in terms of what they mean since.

Shapes did not broadcast by themselves then: arithmetic had the attributes `broadcast` and `axis`.
Whether a model trains was an attribute of its operators, and some inputs of today were attributes.
Source: ONNX, docs/Changelog.md, versions 1 to 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import onnx

from ipujax.doors.graphs import Call
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators import joining
from ipujax.frontends.onnx.operators.activations import prelu
from ipujax.frontends.onnx.operators.arrays import ints, library
from ipujax.frontends.onnx.operators.casts import cast
from ipujax.frontends.onnx.operators.elementwise import clip
from ipujax.frontends.onnx.operators.joining import concat, pad
from ipujax.frontends.onnx.operators.normalization import (
    normalization,
    normalize_elements,
)
from ipujax.frontends.onnx.operators.products import gemm
from ipujax.frontends.onnx.operators.random_numbers import dropout
from ipujax.frontends.onnx.operators.recurrent import gru, lstm, rnn
from ipujax.frontends.onnx.operators.resampling import upsample
from ipujax.frontends.onnx.operators.shapes import reshape
from ipujax.frontends.onnx.operators.table import ONNX, operator

Array = jax.Array
Function = Callable[..., Any]

_BROADCAST_BY_ATTRIBUTE = (
    "Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor",
)  # fmt: skip


def _broadcast_by_attribute(name: str) -> Function:
    """The function of an operator of two arrays, of which the second may have fewer dimensions."""
    function = ONNX.function_of(name, 7)

    def apply(x: Any, y: Any, broadcast: int = 0, axis: int | None = None) -> Any:
        if not broadcast:
            _check_same_shape(name, x, y)
            return function(x, y)
        return function(x, _align_dimensions(name, x, y, axis))

    return apply


for _name in _BROADCAST_BY_ATTRIBUTE:
    operator(_name)(_broadcast_by_attribute(_name))


def _check_same_shape(name: str, x: Any, y: Any) -> None:
    if x.shape != y.shape:
        raise check.refuse(
            f"{name} has arrays of shapes {x.shape} and {y.shape}, and no attribute `broadcast`",
            "set it, or convert the model to opset 7",
        )


def _align_dimensions(name: str, x: Any, y: Any, axis: int | None) -> Any:
    """Returns `y` with dimensions of one appended, so that its first one meets `axis` of `x`."""
    start = x.ndim - y.ndim if axis is None else axis + x.ndim * (axis < 0)
    end = start + y.ndim
    fits = 0 <= start and end <= x.ndim
    if not fits or any(n not in (1, m) for m, n in zip(x.shape[start:end], y.shape, strict=True)):
        along = "" if axis is None else f" along axis {axis}"
        raise check.refuse(
            f"{name} cannot broadcast an array of shape {y.shape} to {x.shape}{along}",
            "give it dimensions that the first array has, or ones",
        )
    return library(y).reshape(y, (*y.shape, *[1] * (x.ndim - end)))


@operator("PRelu")
def prelu_1(x: Array, slope: Array) -> Array:
    """The slope is one number, or one for each channel, which is dimension 1."""
    is_shared = slope.size == 1
    shape = () if is_shared else (-1, *[1] * (x.ndim - 2))
    return prelu(x, slope.reshape(shape))


@operator("Gemm")
def gemm_1(
    a: Array, b: Array, c: Array, broadcast: int = 0, transA: int = 0, transB: int = 0,
    **factors: float,
) -> Array:  # fmt: skip
    shape = (a.shape[1 if transA else 0], b.shape[0 if transB else 1])
    if not broadcast and c.shape != shape:
        raise check.refuse(
            f"Gemm adds an array of shape {c.shape} to one of shape {shape}, and has no attribute "
            "`broadcast`",
            "set it, or convert the model to opset 7",
        )
    return gemm(a, b, c, transA=transA, transB=transB, **factors)


@operator("BatchNormalization")
def batch_normalization_1(
    *inputs: Array, is_test: int = 0, spatial: int = 1, **attributes: Any
) -> tuple[Array, ...]:
    """Trains unless `is_test` is set; without `spatial`, each element has its own statistics."""
    normalize = normalization(is_training=not is_test)
    if spatial:
        return normalize(*inputs, **attributes)
    return normalize_elements(normalize, *inputs, **attributes)


@operator("Dropout", folded=False)
def dropout_1(call: Call, x: Array, is_test: int = 0, ratio: float = 0.5) -> tuple[Array, Array]:
    """Drops unless `is_test` is set; the mask has the type of the input."""
    result, mask = dropout(call, x, ratio, not is_test)
    return result, mask.astype(x.dtype)


@operator("Upsample")
def upsample_1(x: Array, height_scale: float, width_scale: float, mode: str = "nearest") -> Array:
    return upsample(x, np.asarray([1, 1, height_scale, width_scale], np.float32), mode)


@operator("Reshape")
def reshape_1(x: Any, shape: Sequence[int] = ()) -> Any:
    return reshape(x, np.asarray(shape, np.int64))


@operator("Cast")
def cast_1(x: Any, to: str) -> Any:
    """The type is named by a text."""
    if to.upper() not in onnx.TensorProto.DataType.keys():
        raise check.refuse(f"Cast is to {to!r}, which is no type of ONNX", "export the model again")
    return cast(x, onnx.TensorProto.DataType.Value(to.upper()))


@operator("Pad")
def pad_1(x: Array, paddings: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    return pad(x, list(paddings), mode=mode, value=value)


@operator("Tile", static=("tiles", "axis"))
def tile_1(x: Any, tiles: Any, axis: Any) -> Any:
    """Repeats along a single axis."""
    (along,), (count,) = ints(axis), ints(tiles)
    return library(x).concatenate([x] * count, along)


@operator("Split", static=("sizes",))
def split_1(
    call: Call, x: Any, sizes: Any = None, axis: int = 0, split: Sequence[int] | None = None
) -> tuple[Any, ...]:
    """Sizes are an input or an attribute."""
    return joining.split(call, x, split if sizes is None else sizes, axis)


@operator("Concat")
def concat_1(*arrays: Any, axis: int = 1) -> Any:
    return concat(*arrays, axis=axis)


@operator("Clip")
def clip_1(x: Any, min: float | None = None, max: float | None = None) -> Any:
    return clip(x, min, max)


def _accept_output_sequence(layer: Function) -> Function:
    """The layer gives the outputs of all steps, whether or not `output_sequence` asks for them."""

    def apply(*inputs: Any, output_sequence: int = 0, **attributes: Any) -> Any:
        return layer(*inputs, **attributes)

    return apply


for _name, _layer in (("RNN", rnn), ("GRU", gru), ("LSTM", lstm)):
    operator(_name)(_accept_output_sequence(_layer))
