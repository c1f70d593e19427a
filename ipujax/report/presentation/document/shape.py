"""Compares plain data with a JSON Schema, and says in a sentence what differs and where.

The keywords are those that `schema` uses: `$ref`, `anyOf`, `const`, `enum`, `type`, `minimum`,
`maximum`, `items`, `prefixItems`, `minItems`, `maxItems`, `properties`, `required` and
`additionalProperties`.
Unlike JSON Schema itself, whole numbers are those written without a fraction, and no number is
infinite.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Schema = Mapping[str, Any]

_BUT = ", but must be "
_LABEL = "type"  # of objects of which there are several kinds
_SHOWN = 40  # characters of what is wrong
_WHOLE_LIMIT = 2**63  # arrays hold 64 bits


def _is_whole(data: Any) -> bool:
    return type(data) is int and -_WHOLE_LIMIT <= data < _WHOLE_LIMIT


def _is_number(data: Any) -> bool:
    return _is_whole(data) or (type(data) is float and math.isfinite(data))


_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "object": ("an object", lambda data: isinstance(data, dict)),
    "array": ("a list", lambda data: isinstance(data, list)),
    "string": ("a text", lambda data: isinstance(data, str)),
    "integer": ("a whole number", _is_whole),
    "number": ("a number", _is_number),
    "boolean": ("true or false", lambda data: isinstance(data, bool)),
    "null": ("null", lambda data: data is None),
}
"""By their names in a schema, what they are called in errors, and what is of them."""


class Difference(NamedTuple):
    """What is wrong.

    Attributes:
      path: keys and indices that lead there.
      what: what is there, and what must be.
    """

    path: tuple[str | int, ...]
    what: str

    def __str__(self) -> str:
        return f"{place(self.path)} {self.what}"


def place(path: Iterable[str | int]) -> str:
    """A path as JavaScript writes it: `memory.biggest[3].name`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif key.isidentifier():
            text += f".{key}" if text else key
        else:
            text += f"[{json.dumps(key)}]"
    return text or "the whole"


def difference(data: Any, schema: Schema) -> Difference | None:
    """The first place at which data is not what its schema says; None if there is none.

    Args:
      data: what came out of a JSON file.
      schema: of the whole, with what it refers to in `$defs`.
    """
    return _Comparison(schema.get("$defs", {})).look(data, schema, ())


class _Comparison:
    def __init__(self, definitions: Mapping[str, Schema]):
        self._definitions = definitions

    def look(self, data: Any, schema: Schema, path: tuple[str | int, ...]) -> Difference | None:
        schema = self._resolved(schema)
        if "anyOf" in schema:
            return self._any(data, schema["anyOf"], path)
        wrong = _value(data, schema)
        if wrong:
            return Difference(path, f"is {_shown(data)}{_BUT}{wrong}")
        missing = [key for key in schema.get("required", ()) if key not in data]
        if missing:
            return Difference((*path, missing[0]), "is missing")
        parts = _parts(data, schema)
        looks = (self.look(value, inner, (*path, key)) for key, value, inner in parts if inner)
        return next(filter(None, looks), None)

    def _any(
        self, data: Any, schemas: Sequence[Schema], path: tuple[str | int, ...]
    ) -> Difference | None:
        """What is wrong with the alternative that is meant, or that comes closest."""
        resolved = [self._resolved(schema) for schema in schemas]
        if isinstance(data, dict):
            labels = ((schema, schema.get("properties", {}).get(_LABEL, {})) for schema in resolved)
            labelled = {label["const"]: schema for schema, label in labels if "const" in label}
            if labelled:
                return self._labelled(data, labelled, path)
        wrong = list(filter(None, (self.look(data, schema, path) for schema in resolved)))
        if len(wrong) < len(resolved):
            return None
        deepest = max(wrong, key=lambda each: len(each.path))
        if len(deepest.path) > len(path):
            return deepest
        wanted = " or ".join(each.what.split(_BUT)[1] for each in wrong)
        return Difference(path, f"is {_shown(data)}{_BUT}{wanted}")

    def _labelled(
        self, data: dict[str, Any], labelled: Mapping[str, Schema], path: tuple[str | int, ...]
    ) -> Difference | None:
        """An object that says of itself which alternative it is."""
        if _LABEL not in data:
            return Difference((*path, _LABEL), "is missing")
        for label, schema in labelled.items():
            if data[_LABEL] == label:
                return self.look(data, schema, path)
        what = f"is {_shown(data[_LABEL])}{_BUT}{_one_of(labelled)}"
        return Difference((*path, _LABEL), what)

    def _resolved(self, schema: Schema) -> Schema:
        if "$ref" not in schema:
            return schema
        return self._definitions[schema["$ref"].rpartition("/")[2]]


def _parts(data: Any, schema: Schema) -> Iterator[tuple[str | int, Any, Schema | None]]:
    """The keys and values of an object, or of a list, and what each must be."""
    if isinstance(data, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, value in data.items():
            yield key, value, known.get(key, others)
    if isinstance(data, list) and not _are_whole(data, schema.get("items", {})):
        schemas = schema.get("prefixItems", itertools.repeat(schema.get("items")))
        for i, (value, inner) in enumerate(zip(data, schemas, strict=False)):
            yield i, value, inner


def _are_whole(data: list[Any], schema: Schema) -> bool:
    """Whether all are whole numbers as they must be: the quick way for long columns."""
    if schema.get("type") != "integer" or not all(type(value) is int for value in data):
        return False
    low, high = schema.get("minimum", -_WHOLE_LIMIT), schema.get("maximum", _WHOLE_LIMIT - 1)
    return not data or (low <= min(data) and max(data) <= min(high, _WHOLE_LIMIT - 1))


def _one_of(values: Iterable[Any]) -> str:
    return "one of " + ", ".join(map(json.dumps, values))


def _value(data: Any, schema: Schema) -> str:
    """What should be there instead of a value, as far as it concerns the value itself; or ""."""
    if "const" in schema and data != schema["const"]:
        return json.dumps(schema["const"])
    if "enum" in schema and data not in schema["enum"]:
        return _one_of(schema["enum"])
    kind = schema.get("type")
    words, is_of_kind = _KINDS[kind] if kind else ("", lambda _: True)
    if not is_of_kind(data):
        return words
    if kind in ("integer", "number"):
        low, high = schema.get("minimum", data), schema.get("maximum", data)
        return f"at least {low}" if data < low else f"at most {high}" if data > high else ""
    least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if kind == "array" and not least <= len(data) <= most:
        return f"a list of {schema.get('maxItems', f'at least {least}')}"
    return ""


def _shown(data: Any) -> str:
    """What is there, cut short."""
    if isinstance(data, (dict, list)):
        return f"{_KINDS['object' if isinstance(data, dict) else 'array'][0]} of {len(data)}"
    text = json.dumps(data, default=repr)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
