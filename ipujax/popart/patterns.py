"""Patterns: PopART's rewriting of graphs, which XLA does here in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipujax.popart.checks import check
from ipujax.popart.numbered import NumberedEnum


class PatternsLevel(NumberedEnum):
    """How many patterns were on to begin with."""

    NoPatterns = 0
    Minimal = 1
    Default = 2
    All = 3


@check.guard
class Patterns:
    """Which patterns are on. Nothing depends on it: XLA rewrites the program, all the same.

    Any name is accepted, by the methods and as attributes: `patterns.OpToIdentity = False`.

    Args:
      level: a level, or the names of those that are on.
    """

    def __init__(self, level: PatternsLevel | Sequence[str] = PatternsLevel.Default):
        if isinstance(level, PatternsLevel):
            kind, on = level, dict[str, bool]()
        else:
            names = check.iterable(level, "the level of patterns", "names")
            kind, on = PatternsLevel.NoPatterns, dict.fromkeys(names, True)
        object.__setattr__(self, "_on", on)
        object.__setattr__(self, "_default", kind.value >= PatternsLevel.Default.value)

    def enablePattern(self, name: str, value: bool) -> Patterns:
        """Switches a pattern."""
        self._on[check.text(name, "a pattern")] = check.flag(value, f"pattern {name}")
        return self

    def isPatternEnabled(self, name: str) -> bool:
        """Whether a pattern is on."""
        return self._on.get(check.text(name, "a pattern"), self._default)

    def enableRuntimeAsserts(self, enable: bool) -> Patterns:
        """Changes nothing: what can be checked is always checked."""
        check.flag(enable, "enable")
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        self.enablePattern(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.isPatternEnabled(name)

    def __repr__(self) -> str:
        return f"Patterns({', '.join(f'{name}={on}' for name, on in self._on.items())})"
