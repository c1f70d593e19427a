"""Types of ONNX's tensors."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import onnx.helper
from onnx import TensorProto

from ipujax.frontends.checks import check


def dtype_of(kind: int) -> np.dtype[Any]:
    """The dtype of a type of ONNX, as JAX has it: of 64 bits only among constants.

    Raises:
      FrontendError: (a `ValueError`) strings, or nothing.
    """
    if kind in (TensorProto.STRING, TensorProto.UNDEFINED):
        name = TensorProto.DataType.Name(kind)
        raise check.refuse(f"tensors of type {name} hold no numbers", "use numbers")
    return jax.dtypes.canonicalize_dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))


def narrowed(value: Any) -> Any:
    """A constant as JAX can hold it: integers of 64 bits have 32.

    The largest and the smallest number of 64 bits, which stand for no bound, become those of 32.

    Raises:
      FrontendError: (a `ValueError`) there are other integers that do not fit.
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
        return value
    wide, narrow = np.iinfo(value.dtype), np.iinfo(jax.dtypes.canonicalize_dtype(value.dtype))
    if wide.bits == narrow.bits:
        return value
    inside = (value >= narrow.min) & (value <= narrow.max)
    if other := value[~inside & (value != wide.min) & (value != wide.max)].tolist():
        raise check.refuse(
            f"a constant holds {other[0]}, and integers have {narrow.bits} bits in JAX",
            "compute with smaller integers, or with floating point",
        )
    return np.clip(value, narrow.min, narrow.max).astype(narrow.dtype)
