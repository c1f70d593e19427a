"""The table of PyTorch's operators (ATen), which the modules of this package fill."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ipujax.doors.graphs import Call, Operators

ATEN = Operators()
"""By PyTorch's names, such as `aten.add.Tensor`. Results get the dtypes that PyTorch tells."""

operator = ATEN.register


def promoted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose arrays are all given in the dtype of its result, as arithmetic does."""

    @functools.wraps(function)
    def call_with_promoted(call: Call, *args: Any, **kwargs: Any) -> Any:
        dtype = call.aval.dtype

        def cast(value: Any) -> Any:
            return value.astype(dtype) if isinstance(value, jax.Array | np.ndarray) else value

        return function(*map(cast, args), **{name: cast(value) for name, value in kwargs.items()})

    # The table asks for the name of the first parameter, and `wraps` tells that of the function.
    del call_with_promoted.__wrapped__
    return call_with_promoted
