"""Shapes and types of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ipujax.checks.arguments import dtype_of
from ipujax.popart.checks import check
from ipujax.popart.numbered import NumberedEnum

Array = np.ndarray[Any, Any]


class DataType(NumberedEnum):
    """Types of tensors, by ONNX's names; the values are the names of dtypes."""

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


def data_type_of(kind: Any) -> DataType:
    """The type of a name of ONNX, a dtype, or itself.

    Raises:
      PopARTError: (a `ValueError`) there is none.
    """
    if isinstance(kind, DataType):
        return kind
    if isinstance(kind, str) and kind.upper() in DataType.__members__:
        return DataType[kind.upper()]
    if isinstance(kind, int) and kind in TensorProto.DataType.values():
        return DataType[TensorProto.DataType.Name(kind)]
    names = {member.value: member for member in DataType}
    dtype = dtype_of(kind)
    name = str(kind) if dtype is None else dtype.name
    if name not in names:
        raise check.refuse(
            f"there is no data type {kind!r}", "say one of FLOAT, FLOAT16, INT32 ..."
        )
    return names[name]


@check.guard
class TensorInfo:
    """Type and shape of a tensor.

    Args:
      dtype: a name such as `"FLOAT"`, a `DataType`; or an array that has type and shape.
      shape: sizes of the dimensions.
    """

    def __init__(self, dtype: Any, shape: Sequence[int] | None = None):
        if shape is None:
            array = np.asarray(dtype)
            dtype, shape = array.dtype, array.shape
        self._type = data_type_of(dtype)
        sizes = check.iterable(shape, "the shape", "integers")
        self._shape = [check.integer(size, "a dimension", at_least=0) for size in sizes]

    def data_type(self) -> DataType:
        """The type."""
        return self._type

    def data_type_lcase(self) -> str:
        """The name of the dtype, such as `float32`."""
        return self._type.value

    def shape(self) -> list[int]:
        """Sizes of the dimensions."""
        return list(self._shape)

    def rank(self) -> int:
        """How many dimensions there are."""
        return len(self._shape)

    def nelms(self) -> int:
        """How many elements there are."""
        return int(np.prod(self._shape, dtype=int))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of an array of it."""
        return helper.tensor_dtype_to_np_dtype(self._type.onnx)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorInfo):
            return NotImplemented
        return (self._type, self._shape) == (other._type, other._shape)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"TensorInfo({self._type.name!r}, {self._shape})"
