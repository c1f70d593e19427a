"""The names that a function gives its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence


def parameter_names(fn: Callable[..., object], positions: Sequence[int]) -> tuple[str, ...]:
    """Returns the parameter names of the arguments at some positions of a function."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # builtins may hide their signature
        return ()
    positional_names = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    variadic_name = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    count = len(positional_names)
    return tuple(
        positional_names[i] if i < count else f"{variadic_name}[{i - count}]" for i in positions
    )
