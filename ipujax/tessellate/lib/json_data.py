"""Dataclasses with the same JSON texts as TessellateIPU's."""

from __future__ import annotations

import dataclasses as dc
import enum
import json
from typing import Any, Self


class JsonData:
    """A dataclass that is written to JSON texts and read from them, with sorted keys."""

    def to_json(self) -> Any:
        """Returns the fields as a dict of JSON values."""
        return {
            field.name: _to_json(getattr(self, field.name))
            for field in dc.fields(self)  # type: ignore[arg-type]
        }

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Returns the object that the result of `to_json` describes."""
        return cls(**data)

    def to_json_str(self) -> str:
        """Returns the JSON text."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json_str(cls, text: str) -> Self:
        """Returns the object that a JSON text describes."""
        return cls.from_json(json.loads(text))


def _to_json(value: Any) -> Any:
    if isinstance(value, JsonData):
        return value.to_json()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    return value
