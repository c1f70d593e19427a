"""The original's `compile`: compiles a computation and runs it on its inputs at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ipujax.driver.compiler import compile as _compile
from ipujax.ground import PyTree, check, is_plain_list_or_tuple


@check.guard
def compile(computation: Callable[..., PyTree], inputs: Sequence[object] | None = None) -> PyTree:
    """Compiles `computation` for the device of the current `ipu_scope`, and runs it once.

    To run a computation many times, compile it once with `ipu.compile`.

    Args:
      computation: a function of n arguments, n being the number of inputs.
      inputs: a list of pytrees of arrays; None for no inputs.

    Returns:
      What `computation` returns, with two exceptions: a single value comes back as a 1-tuple, and
      None as None. Trailing Nones of a list (what enqueue returned) are dropped.

    Raises:
      ConfigTypeError: (a `TypeError`) if the computation is no function, or the inputs are
        neither a list nor a tuple.
      DeviceError: if the device in scope is not an IPU.
    """
    check.require_function(computation, "the computation of ipu_compiler.compile")
    argument, kind_of_entries = (
        "the inputs of ipu_compiler.compile",
        "arguments; a single one is [x]",
    )
    args = [] if inputs is None else check.require_sequence(inputs, argument, kind_of_entries)
    result = _compile(computation)(*args)
    if result is None:
        return None
    if is_plain_list_or_tuple(result):
        values = list(result)
        while values and values[-1] is None:
            values.pop()
        return type(result)(values)
    return result if isinstance(result, dict) or hasattr(result, "_fields") else (result,)
