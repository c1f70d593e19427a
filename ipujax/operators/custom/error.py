"""The errors of custom operations."""

from __future__ import annotations

from collections.abc import Iterable

from ipujax.errors import CustomOpError
from lowering import ops

_TARGET = "ipujax"


def target_name(path: str, symbol: str) -> str:
    """What XLA knows a function of a library as."""
    return f"{_TARGET}:{path}:{symbol}"


def failure(what: str, wrong: Exception, ops: Iterable[ops.UserOp]) -> CustomOpError:
    """What XLA says of code that failed, and the custom operations that may be the reason.

    Args:
      what: failed.
      wrong: what XLA raised, which names no operation.
      ops: all that the code has.
    """
    lines = [f"{what} failed: {wrong}"]
    lines += dict.fromkeys(map(_place, ops))
    return CustomOpError(
        "\n".join(lines),
        fix="give the handler the operands and results that it takes; docs/custom_operations.md "
        "says what becomes of inputs, `outs` and gradients",
    )


def _place(op: ops.UserOp) -> str:
    path, _, symbol = op.target.removeprefix(f"{_TARGET}:").rpartition(":")
    line = f", called at {op.where}" if op.where else ""
    return f"  where: `{op.name}`, {symbol!r} of {path}{line}"
