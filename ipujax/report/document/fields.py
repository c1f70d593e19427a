"""Data classes out of objects of a document."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping
from typing import Any, TypeVar

_Described = TypeVar("_Described")


def described(kind: type[_Described], entry: Mapping[str, Any]) -> _Described:
    """An instance of a data class, whose fields are named as the entry's keys are.

    Keys that are no fields are passed over: a later version may have added them.

    Raises:
      LookupError: a field without a default that has no key.
    """
    cls: Any = kind
    fields = dc.fields(cls)
    there = [f.name for f in fields if f.name in entry or f.default is dc.MISSING]
    return kind(**{name: entry[name] for name in there})
