"""The table of PyTorch's ATen operators, which the modules of this package fill."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import numpy as np

from ipujax.doors.graphs import Call, Operand, Operators

ATEN = Operators()
"""The table by PyTorch's names, such as `aten.add.Tensor`. Results get the traced dtypes."""

operator = ATEN.register


def promote_arguments(function: Callable[..., Operand]) -> Callable[..., Operand]:
    """Wraps a function so that its array arguments are cast to the dtype of the call's result.

    The wrapper takes a `Call` before these arguments.
    """

    @functools.wraps(function)
    def call_promoted(call: Call, *args: Operand, **kwargs: object) -> Operand:
        dtype = call.aval.dtype

        def cast(value: Operand) -> Operand:
            return value.astype(dtype) if isinstance(value, jax.Array | np.ndarray) else value

        return function(*map(cast, args), **{name: cast(value) for name, value in kwargs.items()})

    return call_promoted
