"""Operators before opset 7, defined by their later versions.

Arithmetic did not broadcast by itself but had the attributes `broadcast` and `axis`. Training was
an attribute of operators, and some inputs of later versions were attributes.
Source: ONNX, docs/Changelog.md, versions 1 to 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np
import onnx

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators import joining
from ipujax.doors.onnx.operators.activations import prelu
from ipujax.doors.onnx.operators.arrays import numpy_or_jax, to_int_tuple
from ipujax.doors.onnx.operators.casts import cast
from ipujax.doors.onnx.operators.elementwise import clip
from ipujax.doors.onnx.operators.joining import concat, pad
from ipujax.doors.onnx.operators.normalization import normalize_elements, select_batch_normalization
from ipujax.doors.onnx.operators.products import gemm
from ipujax.doors.onnx.operators.random_numbers import dropout
from ipujax.doors.onnx.operators.recurrent import gru, lstm, rnn
from ipujax.doors.onnx.operators.resampling import upsample
from ipujax.doors.onnx.operators.shapes import reshape
from ipujax.doors.onnx.operators.table import ONNX, operator

Array = jax.Array
Function = Callable[..., Operand]

_BROADCAST_BY_ATTRIBUTE = (
    "Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor",
)  # fmt: skip


def _make_attribute_broadcast(name: str) -> Function:
    """Returns a binary operator whose second array may have fewer dimensions."""
    function = ONNX.function_of(name, 7)

    def compute_with_broadcast(
        x: Operand, y: Operand, broadcast: int = 0, axis: int | None = None
    ) -> Operand:
        if not broadcast:
            _check_same_shape(name, x, y)
            return function(x, y)
        return function(x, _align_dimensions(name, x, y, axis))

    return compute_with_broadcast


for _name in _BROADCAST_BY_ATTRIBUTE:
    operator(_name)(_make_attribute_broadcast(_name))


def _check_same_shape(name: str, x: Operand, y: Operand) -> None:
    if x.shape != y.shape:
        raise check.value_error(
            f"{name} has arrays of shapes {x.shape} and {y.shape}, and no attribute `broadcast`",
            "set it, or convert the model to opset 7",
        )


def _align_dimensions(name: str, x: Operand, y: Operand, axis: int | None) -> Operand:
    """Returns `y` with dimensions of one appended, so that its first one meets `axis` of `x`."""
    start = x.ndim - y.ndim if axis is None else axis + x.ndim * (axis < 0)
    end = start + y.ndim
    is_inside = 0 <= start and end <= x.ndim
    if not is_inside or any(
        n not in (1, m) for m, n in zip(x.shape[start:end], y.shape, strict=True)
    ):
        along = "" if axis is None else f" along axis {axis}"
        raise check.value_error(
            f"{name} cannot broadcast an array of shape {y.shape} to {x.shape}{along}",
            "give it dimensions that the first array has, or ones",
        )
    return numpy_or_jax(y).reshape(y, (*y.shape, *[1] * (x.ndim - end)))


@operator("PRelu")
def prelu_1(x: Array, slope: Array) -> Array:
    """Computes PRelu with one slope, or one for each channel, which is axis 1."""
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
        raise check.value_error(
            f"Gemm adds an array of shape {c.shape} to one of shape {shape}, and has no attribute "
            "`broadcast`",
            "set it, or convert the model to opset 7",
        )
    return gemm(a, b, c, transA=transA, transB=transB, **factors)


@operator("BatchNormalization")
def batch_normalization_1(
    *inputs: Array, is_test: int = 0, spatial: int = 1, **attributes: object
) -> tuple[Array, ...]:
    """Normalizes a batch; trains unless `is_test` is set, per element unless `spatial`."""
    normalize = select_batch_normalization(is_training=not is_test)
    if spatial:
        return normalize(*inputs, **attributes)
    return normalize_elements(normalize, *inputs, **attributes)


@operator("Dropout", folded=False, takes_call=True)
def dropout_1(call: Call, x: Array, is_test: int = 0, ratio: float = 0.5) -> tuple[Array, Array]:
    """Drops elements unless `is_test` is set; the mask has the dtype of the input."""
    result, mask = dropout(call, x, ratio, not is_test)
    return result, mask.astype(x.dtype)


@operator("Upsample")
def upsample_1(x: Array, height_scale: float, width_scale: float, mode: str = "nearest") -> Array:
    return upsample(x, np.asarray([1, 1, height_scale, width_scale], np.float32), mode)


@operator("Reshape")
def reshape_1(x: Operand, shape: Sequence[int] = ()) -> Operand:
    return reshape(x, np.asarray(shape, np.int64))


@operator("Cast")
def cast_1(x: Operand, to: str) -> Operand:
    """Casts to a type that is named by a text."""
    if to.upper() not in onnx.TensorProto.DataType.keys():
        raise check.value_error(
            f"Cast is to {to!r}, which is no type of ONNX", "export the model again"
        )
    return cast(x, onnx.TensorProto.DataType.Value(to.upper()))


@operator("Pad")
def pad_1(x: Array, paddings: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    return pad(x, list(paddings), mode=mode, value=value)


@operator("Tile", static=("tiles", "axis"))
def tile_1(x: Operand, tiles: Operand, axis: Operand) -> Operand:
    """Repeats an array along a single axis."""
    (along,), (count,) = to_int_tuple(axis), to_int_tuple(tiles)
    return numpy_or_jax(x).concatenate([x] * count, along)


@operator("Split", static=("sizes",), takes_call=True)
def split_1(
    call: Call, x: Operand, sizes: Operand = None, axis: int = 0, split: Sequence[int] | None = None
) -> tuple[Operand, ...]:
    """Splits an array; the sizes are an input or an attribute."""
    return joining.split(call, x, split if sizes is None else sizes, axis)


@operator("Concat")
def concat_1(*arrays: Operand, axis: int = 1) -> Operand:
    return concat(*arrays, axis=axis)


@operator("Clip")
def clip_1(x: Operand, min: float | None = None, max: float | None = None) -> Operand:
    return clip(x, min, max)


def _accept_output_sequence(layer: Function) -> Function:
    """Returns a layer that ignores `output_sequence`: it always returns all steps."""

    def run_layer(*inputs: Operand, output_sequence: int = 0, **attributes: object) -> Operand:
        return layer(*inputs, **attributes)

    return run_layer


for _name, _layer in (("RNN", rnn), ("GRU", gru), ("LSTM", lstm)):
    operator(_name)(_accept_output_sequence(_layer))
