"""Graphcore's custom operations: functions of a compiled library, and expressions over elements.

How to write a library is in docs/custom_operations.md.
"""

from __future__ import annotations

from ipujax.operators import custom_operators as _custom_ops

__all__ = [
    "codelet_expression_op",
    "cpu_user_operation",
    "precompiled_user_op",
]


def __dir__() -> list[str]:
    return __all__


codelet_expression_op = _custom_ops.codelet_expression_op
cpu_user_operation = _custom_ops.cpu_user_operation
precompiled_user_op = _custom_ops.precompiled_user_op
