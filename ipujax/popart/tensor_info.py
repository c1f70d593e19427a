"""The shapes and data types of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ipujax.ground import parse_dtype
from ipujax.popart.numbered_enum import NumberedEnum
from ipujax.popart.popart_checks import check

Array = np.ndarray


class DataType(NumberedEnum):
    """The data types of tensors, by ONNX's names; the values are names of dtypes."""

    UINT8 = "uint8"
    INT8 = "int8"
    UINT16 = "uint16"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"
    FLOAT = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    DOUBLE = "float64"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"
    STRING = "string"
    UNDEFINED = "undefined"

    @property
    def onnx(self) -> int:
        """The type's number in ONNX."""
        return TensorProto.DataType.Value(self.name)


def to_data_type(kind: object) -> DataType:
    """Returns the data type that an ONNX name, an ONNX number or a dtype stands for.

    Raises:
      PopARTError: (a `ValueError`) there is no such data type.
    """
    if isinstance(kind, DataType):
        return kind
    if isinstance(kind, str) and kind.upper() in DataType.__members__:
        return DataType[kind.upper()]
    if isinstance(kind, int) and kind in TensorProto.DataType.values():
        return DataType[TensorProto.DataType.Name(kind)]
    names = {member.value: member for member in DataType}
    dtype = parse_dtype(kind)
    name = str(kind) if dtype is None else dtype.name
    if name not in names:
        raise check.value_error(
            f"there is no data type {kind!r}", "say one of FLOAT, FLOAT16, INT32 ..."
        )
    return names[name]


@check.guard
class TensorInfo:
    """The data type and the shape of a tensor.

    Args:
      dtype: a name such as `"FLOAT"`, a `DataType`; or an array with the type and the shape.
      shape: the sizes of the dimensions.
    """

    def __init__(self, dtype: Any, shape: Sequence[int] | None = None):
        if shape is None:
            array = np.asarray(dtype)
            dtype, shape = array.dtype, array.shape
        self._type = to_data_type(dtype)
        sizes = check.require_iterable(shape, "the shape", "integers")
        self._shape = [check.require_integer(size, "a dimension", at_least=0) for size in sizes]

    def data_type(self) -> DataType:
        """Returns the data type."""
        return self._type

    def data_type_lcase(self) -> str:
        """Returns the name of the dtype, such as `float32`."""
        return self._type.value

    def shape(self) -> list[int]:
        """Returns the sizes of the dimensions."""
        return list(self._shape)

    def rank(self) -> int:
        """Returns the number of dimensions."""
        return len(self._shape)

    def nelms(self) -> int:
        """Returns the number of elements."""
        return int(np.prod(self._shape, dtype=int))

    @property
    def dtype(self) -> np.dtype:
        """The dtype of an array of this data type."""
        return helper.tensor_dtype_to_np_dtype(self._type.onnx)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorInfo):
            return NotImplemented
        return (self._type, self._shape) == (other._type, other._shape)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"TensorInfo({self._type.name!r}, {self._shape})"
