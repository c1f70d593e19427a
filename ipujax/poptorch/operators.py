"""The table of PyTorch's operators and of PopTorch's, which exist in traces alone.

Outside of a trace, PopTorch's functions compute what they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ipujax.doors.graphs import Operators
from ipujax.frontends.pytorch.operators import ATEN
from ipujax.frontends.pytorch.trace import current_trace

_NAMESPACE = "ipujax_poptorch"

OPERATORS = Operators(ATEN)
"""By their names, such as `aten.add.Tensor` and `ipujax_poptorch.nop.default`."""

operator = OPERATORS.register

Function = Callable[..., Any]


def traced_operator(schema: str, form: Function) -> Callable[[Function], Function]:
    """Declares an operator to PyTorch, and decorates what it computes with JAX.

    Args:
      schema: its name and arguments, such as `nop(Tensor x) -> Tensor`.
      form: gives tensors of the shapes and dtypes of its results, from its arguments.
    """
    name = schema.partition("(")[0]
    torch.library.define(f"{_NAMESPACE}::{name}", schema.removeprefix(name))
    torch.library.register_fake(f"{_NAMESPACE}::{name}")(form)
    return operator(operator_name(name))


def operator_name(name: str) -> str:
    """An operator's name in the table."""
    return f"{_NAMESPACE}.{name}.default"


def traced(name: str, *args: Any) -> Any:
    """Puts an operator into the trace that is under way."""
    return getattr(getattr(torch.ops, _NAMESPACE), name)(*args)


def isRunningOnIpu() -> bool:
    """Whether a module is traced for virtual IPUs, here and now."""
    return current_trace() is not None
