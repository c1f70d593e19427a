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
