"""Texts that a document has once, however often it uses them."""

from __future__ import annotations


class Strings:
    """Numbers texts as they come; 0 is the empty one."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        """What stands for a text."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        """All of them, by number."""
        return list(self._numbers)
