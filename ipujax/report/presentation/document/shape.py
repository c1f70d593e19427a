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
_LABEL = "type"  # the key that tells alternatives of an object apart
_SHOWN = 40  # characters of the value in an error
_WHOLE_LIMIT = 2**63  # arrays hold 64 bits


def _is_bounded_int(data: Any) -> bool:
    return type(data) is int and -_WHOLE_LIMIT <= data < _WHOLE_LIMIT


def _is_finite_number(data: Any) -> bool:
    return _is_bounded_int(data) or (type(data) is float and math.isfinite(data))


_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "object": ("an object", lambda data: isinstance(data, dict)),
    "array": ("a list", lambda data: isinstance(data, list)),
    "string": ("a text", lambda data: isinstance(data, str)),
    "integer": ("a whole number", _is_bounded_int),
    "number": ("a number", _is_finite_number),
    "boolean": ("true or false", lambda data: isinstance(data, bool)),
    "null": ("null", lambda data: data is None),
}
"""By its name in a schema: a type's words in errors, and the test whether data is of it."""


class SchemaDifference(NamedTuple):
    """A place at which data differs from its schema.

    Attributes:
      path: keys and indices that lead there.
      what: a clause on what is there and what must be.
    """

    path: tuple[str | int, ...]
    what: str

    def __str__(self) -> str:
        return f"{format_json_path(self.path)} {self.what}"


def format_json_path(path: Iterable[str | int]) -> str:
    """Formats a path as JavaScript writes it: `memory.biggest[3].name`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif key.isidentifier():
            text += f".{key}" if text else key
        else:
            text += f"[{json.dumps(key)}]"
    return text or "the whole"


def find_schema_difference(data: Any, schema: Schema) -> SchemaDifference | None:
    """Finds the first place at which data differs from its schema; None if there is none.

    Args:
      data: the content of a JSON file.
      schema: the schema of all data, with referenced schemas in `$defs`.
    """
    return _SchemaComparison(schema.get("$defs", {})).find_difference(data, schema, ())


class _SchemaComparison:
    def __init__(self, definitions: Mapping[str, Schema]):
        self._definitions = definitions

    def find_difference(
        self, data: Any, schema: Schema, path: tuple[str | int, ...]
    ) -> SchemaDifference | None:
        schema = self._resolve_reference(schema)
        if "anyOf" in schema:
            return self._find_difference_from_any(data, schema["anyOf"], path)
        requirement = _describe_required_value(data, schema)
        if requirement:
            return SchemaDifference(path, f"is {_abbreviate_data(data)}{_BUT}{requirement}")
        missing = [key for key in schema.get("required", ()) if key not in data]
        if missing:
            return SchemaDifference((*path, missing[0]), "is missing")
        children = _children_with_schemas(data, schema)
        differences = (
            self.find_difference(value, child_schema, (*path, key))
            for key, value, child_schema in children
            if child_schema
        )
        return next(filter(None, differences), None)

    def _find_difference_from_any(
        self, data: Any, schemas: Sequence[Schema], path: tuple[str | int, ...]
    ) -> SchemaDifference | None:
        """Finds the difference from the alternative that is meant, or that comes closest."""
        resolved_schemas = [self._resolve_reference(schema) for schema in schemas]
        if isinstance(data, dict):
            labels = (
                (schema, schema.get("properties", {}).get(_LABEL, {}))
                for schema in resolved_schemas
            )
            labelled = {label["const"]: schema for schema, label in labels if "const" in label}
            if labelled:
                return self._find_difference_from_labelled(data, labelled, path)
        differences = list(
            filter(None, (self.find_difference(data, schema, path) for schema in resolved_schemas))
        )
        if len(differences) < len(resolved_schemas):
            return None
        deepest = max(differences, key=lambda difference: len(difference.path))
        if len(deepest.path) > len(path):
            return deepest
        requirements = " or ".join(each.what.split(_BUT)[1] for each in differences)
        return SchemaDifference(path, f"is {_abbreviate_data(data)}{_BUT}{requirements}")

    def _find_difference_from_labelled(
        self, data: dict[str, Any], labelled: Mapping[str, Schema], path: tuple[str | int, ...]
    ) -> SchemaDifference | None:
        """Finds the difference of an object from the alternative that its label names."""
        if _LABEL not in data:
            return SchemaDifference((*path, _LABEL), "is missing")
        for label, schema in labelled.items():
            if data[_LABEL] == label:
                return self.find_difference(data, schema, path)
        problem = f"is {_abbreviate_data(data[_LABEL])}{_BUT}{_list_allowed_values(labelled)}"
        return SchemaDifference((*path, _LABEL), problem)

    def _resolve_reference(self, schema: Schema) -> Schema:
        if "$ref" not in schema:
            return schema
        return self._definitions[schema["$ref"].rpartition("/")[2]]


def _children_with_schemas(
    data: Any, schema: Schema
) -> Iterator[tuple[str | int, Any, Schema | None]]:
    """Yields the keys and values of an object or a list, with the schema of each."""
    if isinstance(data, dict):
        property_schemas, default_schema = (
            schema.get("properties", {}),
            schema.get("additionalProperties"),
        )
        for key, value in data.items():
            yield key, value, property_schemas.get(key, default_schema)
    if isinstance(data, list) and not _are_valid_ints(data, schema.get("items", {})):
        schemas = schema.get("prefixItems", itertools.repeat(schema.get("items")))
        for i, (value, item_schema) in enumerate(zip(data, schemas, strict=False)):
            yield i, value, item_schema


def _are_valid_ints(data: list[Any], schema: Schema) -> bool:
    """Returns whether all items of a list are integers within the schema's bounds."""
    if schema.get("type") != "integer" or not all(type(value) is int for value in data):
        return False
    minimum, maximum = schema.get("minimum", -_WHOLE_LIMIT), schema.get("maximum", _WHOLE_LIMIT - 1)
    return not data or (minimum <= min(data) and max(data) <= min(maximum, _WHOLE_LIMIT - 1))


def _list_allowed_values(values: Iterable[Any]) -> str:
    return "one of " + ", ".join(map(json.dumps, values))


def _describe_required_value(data: Any, schema: Schema) -> str:
    """Describes the value that must stand there instead; "" if the value itself is right."""
    if "const" in schema and data != schema["const"]:
        return json.dumps(schema["const"])
    if "enum" in schema and data not in schema["enum"]:
        return _list_allowed_values(schema["enum"])
    kind = schema.get("type")
    type_words, is_of_kind = _KINDS[kind] if kind else ("", lambda _: True)
    if not is_of_kind(data):
        return type_words
    if kind in ("integer", "number"):
        minimum, maximum = schema.get("minimum", data), schema.get("maximum", data)
        return (
            f"at least {minimum}"
            if data < minimum
            else f"at most {maximum}"
            if data > maximum
            else ""
        )
    min_items, max_items = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if kind == "array" and not min_items <= len(data) <= max_items:
        return f"a list of {schema.get('maxItems', f'at least {min_items}')}"
    return ""


def _abbreviate_data(data: Any) -> str:
    """Returns a short text of the data for error messages."""
    if isinstance(data, (dict, list)):
        return f"{_KINDS['object' if isinstance(data, dict) else 'array'][0]} of {len(data)}"
    text = json.dumps(data, default=repr)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
