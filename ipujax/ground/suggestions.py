"""What messages about unknown names end with: the name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest_closest_name(name: str, candidates: Iterable[str], name_format: str = "'{}'") -> str:
    """Returns the end of an error message that suggests the closest name, or ''."""
    matches = difflib.get_close_matches(name, list(candidates), n=1)
    return f"; did you mean {name_format.format(matches[0])}?" if matches else ""
