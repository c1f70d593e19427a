"""The names that a function gives its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence


def parameter_names(fn: Callable[..., object], positions: Sequence[int]) -> tuple[str, ...]:
    """What a function calls its arguments at these positions."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # builtins may hide their signature
        return ()
    own = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    count = len(own)
    return tuple(own[i] if i < count else f"{rest}[{i - count}]" for i in positions)
