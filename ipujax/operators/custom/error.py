"""The errors of custom operations."""

from __future__ import annotations

from collections.abc import Iterable

from ipujax.ground import CustomOpError
from lowering import ops

_TARGET = "ipujax"


def xla_target_name(path: str, symbol: str) -> str:
    """Returns the name under which XLA knows a function of a library."""
    return f"{_TARGET}:{path}:{symbol}"


def custom_op_error(
    program_description: str, xla_error: Exception, ops: Iterable[ops.UserOp]
) -> CustomOpError:
    """Builds an error from an XLA error, with the custom operations that may be its reason.

    Args:
      program_description: the code that failed.
      xla_error: the error of XLA, which names no operation.
      ops: all that the code has.
    """
    lines = [f"{program_description} failed: {xla_error}"]
    lines += dict.fromkeys(map(_describe_call, ops))
    return CustomOpError(
        "\n".join(lines),
        fix="give the handler the operands and results that it takes; docs/custom_operations.md "
        "says what becomes of inputs, `outs` and gradients",
    )


def _describe_call(op: ops.UserOp) -> str:
    path, _, symbol = op.target.removeprefix(f"{_TARGET}:").rpartition(":")
    line = f", called at {op.where}" if op.where else ""
    return f"  where: `{op.name}`, {symbol!r} of {path}{line}"
