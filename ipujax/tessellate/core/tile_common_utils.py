"""Element types: NumPy's, the IPU's, and their names in C++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipujax.tessellate.lib.pytessellate_ipu_core import Base64Data as Base64Data
from ipujax.tessellate.lib.pytessellate_ipu_core import IpuShapedArray, IpuType

_TYPES: dict[IpuType, tuple[np.dtype, str]] = {
    IpuType.BOOL: (np.dtype(np.bool_), "bool"),
    IpuType.UNSIGNED_CHAR: (np.dtype(np.uint8), "unsigned char"),
    IpuType.UNSIGNED_SHORT: (np.dtype(np.uint16), "unsigned short"),
    IpuType.UNSIGNED_INT: (np.dtype(np.uint32), "unsigned int"),
    IpuType.CHAR: (np.dtype(np.int8), "signed char"),
    IpuType.SHORT: (np.dtype(np.int16), "short"),
    IpuType.INT: (np.dtype(np.int32), "int"),
    IpuType.HALF: (np.dtype(np.float16), "half"),
    IpuType.FLOAT: (np.dtype(np.float32), "float"),
}
_TYPE_OF_DTYPE = {dtype: kind for kind, (dtype, _) in _TYPES.items()}


def from_numpy_dtype_to_ipu_type(v: Any) -> IpuType:
    """Returns the IPU's element type for NumPy's, or for its own."""
    return v if isinstance(v, IpuType) else _TYPE_OF_DTYPE[np.dtype(v)]


def from_ipu_type_to_numpy_dtype(v: Any) -> np.dtype:
    """Returns NumPy's element type for the IPU's, or for its own."""
    return _TYPES[v][0] if isinstance(v, IpuType) else np.dtype(v)


def get_ipu_type_name(v: Any) -> str:
    """Returns the name of an element type in names of vertices."""
    return _TYPES[from_numpy_dtype_to_ipu_type(v)][1]


def make_ipu_shaped_array(shape: Sequence[int], dtype: Any) -> IpuShapedArray:
    """Returns the IPU's description of a shape and an element type."""
    return IpuShapedArray(list(shape), from_numpy_dtype_to_ipu_type(dtype))
