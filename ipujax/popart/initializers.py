"""The conversion of arrays to a model's initializers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

_TYPED = (np.dtype("float32"), np.dtype("int32"), np.dtype("int64"))


def make_initializer(name: str, value: object) -> onnx.TensorProto:
    """Makes an initializer from an array.

    As in the original, scripts find its numbers in `float_data`, `int32_data` or `int64_data`;
    those of other dtypes are in `raw_data`.
    """
    array = np.asarray(value)
    if array.dtype not in _TYPED:
        return onnx.numpy_helper.from_array(array, name)
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor(name, kind, array.shape, array.ravel())


def replace_initializer_value(tensor: onnx.TensorProto, value: object) -> None:
    """Replaces the value of an initializer, in the protobuf field that holds it."""
    array = np.asarray(value)
    if tensor.HasField("raw_data"):
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    else:
        tensor.CopyFrom(make_initializer(tensor.name, array))
