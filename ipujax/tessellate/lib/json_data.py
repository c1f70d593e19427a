"""Dataclasses with the JSON texts of the original's."""

from __future__ import annotations

import dataclasses as dc
import enum
import json
from typing import Any, Self


class JsonData:
    """A dataclass that JSON texts are made of and read into: keys sorted, nothing optional."""

    def to_json(self) -> Any:
        """Returns the fields as JSON has them."""
        return {
            field.name: _to_json(getattr(self, field.name))
            for field in dc.fields(self)  # type: ignore[arg-type]
        }

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Returns the object of what `to_json` gave."""
        return cls(**data)

    def to_json_str(self) -> str:
        """Returns the text."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json_str(cls, text: str) -> Self:
        """Returns the object that a text describes."""
        return cls.from_json(json.loads(text))


def _to_json(value: Any) -> Any:
    if isinstance(value, JsonData):
        return value.to_json()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_to_json(each) for each in value]
    return value
