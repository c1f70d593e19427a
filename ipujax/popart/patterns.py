"""The rewriting patterns of PopART, which do nothing here: XLA rewrites programs in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipujax.popart.numbered_enum import NumberedEnum
from ipujax.popart.popart_checks import check


class PatternsLevel(NumberedEnum):
    """The choice of how many patterns are enabled by default."""

    NoPatterns = 0
    Minimal = 1
    Default = 2
    All = 3


@check.guard
class Patterns:
    """The set of enabled patterns. Nothing depends on it: XLA rewrites programs by itself.

    Any name is accepted, by the methods and as attributes: `patterns.OpToIdentity = False`.

    Args:
      level: a level, or the names of the enabled patterns.
    """

    def __init__(self, level: PatternsLevel | Sequence[str] = PatternsLevel.Default):
        if isinstance(level, PatternsLevel):
            kind, on = level, dict[str, bool]()
        else:
            names = check.require_iterable(level, "the level of patterns", "names")
            kind, on = PatternsLevel.NoPatterns, dict.fromkeys(names, True)
        object.__setattr__(self, "_on", on)
        object.__setattr__(self, "_default", kind.value >= PatternsLevel.Default.value)

    def enablePattern(self, name: str, value: bool) -> Patterns:
        """Enables or disables a pattern."""
        self._on[check.require_text(name, "a pattern")] = check.require_flag(
            value, f"pattern {name}"
        )
        return self

    def isPatternEnabled(self, name: str) -> bool:
        """Returns whether a pattern is enabled."""
        return self._on.get(check.require_text(name, "a pattern"), self._default)

    def enableRuntimeAsserts(self, enable: bool) -> Patterns:
        """Changes nothing: all checks are always made."""
        check.require_flag(enable, "enable")
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        self.enablePattern(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.isPatternEnabled(name)

    def __repr__(self) -> str:
        return f"Patterns({', '.join(f'{name}={on}' for name, on in self._on.items())})"
