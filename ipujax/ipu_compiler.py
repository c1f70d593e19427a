"""The original's way of compiling: a computation and its inputs, run at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipujax.driver.compiler import compile as _compile


def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """Compiles `computation` for the device of the current `ipu_scope`, and runs it once.

    To run a computation many times, compile it once with `ipu.compile`.

    Args:
      computation: a function of n arguments, n being the number of inputs.
      inputs: a list of pytrees of arrays; None for no inputs.

    Returns:
      What `computation` returns, with two exceptions: a single value comes back as a 1-tuple, and
      None as None. Trailing Nones of a list (what enqueue returned) are dropped.

    Raises:
      TypeError: if the inputs are neither a list nor a tuple.
      DeviceError: if the device in scope is not an IPU.
    """
    if inputs is not None and not isinstance(inputs, (list, tuple)):
        raise TypeError(
            f"ipu_compiler.compile takes its inputs as a list, not as {type(inputs).__name__}; a "
            "single one is [x]"
        )
    result = _compile(computation)(*(inputs or ()))
    if result is None:
        return None
    if isinstance(result, (list, tuple)) and not hasattr(result, "_fields"):
        values = list(result)
        while values and values[-1] is None:
            values.pop()
        return type(result)(values)
    return result if isinstance(result, dict) or hasattr(result, "_fields") else (result,)
