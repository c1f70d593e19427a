"""Conversion of ONNX tensor types and constants to JAX dtypes."""

from __future__ import annotations

import jax
import numpy as np
import onnx
import onnx.helper
from onnx import TensorProto

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check


def dtype_of_onnx_type(onnx_type: int) -> np.dtype:
    """Returns the JAX dtype of an ONNX tensor type; 64-bit types become 32-bit ones.

    Raises:
      FrontendError: (a `ValueError`) the type is a string or undefined.
    """
    if onnx_type in (TensorProto.STRING, TensorProto.UNDEFINED):
        name = TensorProto.DataType.Name(onnx_type)
        raise check.value_error(f"tensors of type {name} hold no numbers", "use numbers")
    return jax.dtypes.canonicalize_dtype(onnx.helper.tensor_dtype_to_np_dtype(onnx_type))


def narrow_integers(value: object) -> Operand:
    """Returns a constant with 64-bit integers converted to 32 bits, as JAX holds them.

    The largest and the smallest 64-bit integer, which stand for no bound, become the 32-bit ones.

    Raises:
      FrontendError: (a `ValueError`) another integer does not fit into 32 bits.
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
        return value
    wide, narrow = np.iinfo(value.dtype), np.iinfo(jax.dtypes.canonicalize_dtype(value.dtype))
    if wide.bits == narrow.bits:
        return value
    inside = (value >= narrow.min) & (value <= narrow.max)
    if unrepresentable := value[~inside & (value != wide.min) & (value != wide.max)].tolist():
        raise check.value_error(
            f"a constant holds {unrepresentable[0]}, and integers have {narrow.bits} bits in JAX",
            "compute with smaller integers, or with floating point",
        )
    return np.clip(value, narrow.min, narrow.max).astype(narrow.dtype)
