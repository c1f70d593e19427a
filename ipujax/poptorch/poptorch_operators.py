"""The table of PyTorch's operators and of PopTorch's own ones, which exist only in traces.

Outside of a trace, PopTorch's functions compute their results directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ipujax.doors.graphs import Operators
from ipujax.doors.torch import ATEN, current_trace
from ipujax.ground import PyTree

_NAMESPACE = "ipujax_poptorch"

OPERATORS = Operators(ATEN)
"""The operators by their names, such as `aten.add.Tensor` and `ipujax_poptorch.nop.default`."""

operator = OPERATORS.register

Function = Callable[..., Any]


def define_traced_operator(schema: str, form: Function) -> Callable[[Function], Function]:
    """Declares an operator to PyTorch, and decorates the function that computes it with JAX.

    Args:
      schema: its name and arguments, such as `nop(Tensor x) -> Tensor`.
      form: a function of its arguments that returns empty tensors like its results.
    """
    name = schema.partition("(")[0]
    torch.library.define(f"{_NAMESPACE}::{name}", schema.removeprefix(name))
    torch.library.register_fake(f"{_NAMESPACE}::{name}")(form)
    return operator(qualify_operator_name(name))


def qualify_operator_name(name: str) -> str:
    """Returns an operator's name in the table."""
    return f"{_NAMESPACE}.{name}.default"


def trace_operator(name: str, *args: object) -> PyTree:
    """Calls an operator of ours, which the current trace records."""
    return getattr(getattr(torch.ops, _NAMESPACE), name)(*args)


def isRunningOnIpu() -> bool:
    """Returns whether a module is being traced for virtual IPUs."""
    return current_trace() is not None
