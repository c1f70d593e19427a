"""Forms: the schema of a place in a document, with its encoder and decoder.

The structure of a section is stated once, as a form; its writer, its reader and its JSON Schema
follow. Forms of data classes follow from the annotations of their fields.
"""

from __future__ import annotations

import dataclasses as dc
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ipujax.report.presentation.document import runs

Schema = dict[str, Any]


class StringTable:
    """A table of numbered texts, so that a document holds each once; 0 is the empty text."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def number_text(self, text: str) -> int:
        """Returns the number that stands for a text."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        """The texts, in the order of their numbers."""
        return list(self._numbers)


def _encode_as_python_number(value: Any, _: StringTable) -> Any:
    """Converts a NumPy scalar to a Python number; returns other values unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def _decode_unchanged(data: Any, _: Sequence[str]) -> Any:
    return data


@dc.dataclass(frozen=True, slots=True)
class Form:
    """The form of one place in a document: its schema, encoder and decoder.

    Attributes:
      schema: the JSON Schema of the place.
      encode: converts a value to plain Python; texts may be numbered.
      decode: converts plain Python back to a value, given all texts.
      attribute: the object's attribute, if that differs from the key in the document.
      told: whether it is written only, as it follows from other keys.
    """

    schema: Schema
    encode: Callable[[Any, StringTable], Any] = _encode_as_python_number
    decode: Callable[[Any, Sequence[str]], Any] = _decode_unchanged
    attribute: str = ""
    told: bool = False

    def from_attribute(self, attribute: str) -> Form:
        """Returns the form, reading an attribute whose name is not the key."""
        return dc.replace(self, attribute=attribute)

    def with_conversion(
        self, to_data: Callable[[Any], Any], from_data: Callable[[Any], Any]
    ) -> Form:
        """Returns a form that also converts values before encoding and after decoding."""
        return Form(
            self.schema,
            lambda value, strings: self.encode(to_data(value), strings),
            lambda data, texts: from_data(self.decode(data, texts)),
        )


Forms = Mapping[str, Form]


def json_form(**schema: Any) -> Form:
    """Returns the form of a value that JSON has itself."""
    return Form(schema)


TEXT = json_form(type="string")
FLAG = json_form(type="boolean")
WHOLE = json_form(type="integer")
COUNT = json_form(type="integer", minimum=0)
LARGEST = 1e30
"""No modelled number is larger; products and percentages of larger ones in a changed file would be
infinite."""
REAL = json_form(type="number", minimum=-LARGEST, maximum=LARGEST)
POSITIVE = json_form(type="number", minimum=0, maximum=LARGEST)
SHARE = json_form(type="number", minimum=0, maximum=1)
MANY = json_form(type="integer", minimum=1, maximum=runs.MOST)
OR_NONE = json_form(type="integer", minimum=-1).with_conversion(
    lambda number: -1 if number is None else int(number),
    lambda number: None if number == -1 else number,
)
WORD = Form(
    COUNT.schema, lambda text, strings: strings.number_text(text), lambda n, texts: texts[n]
)


def enum_form(values: Iterable[object]) -> Form:
    """Returns the form of one of a few values."""
    return json_form(enum=list(values))


def schema_of_alternatives(*schemas: Schema) -> Schema:
    """Returns the schema of one or another alternative."""
    return {"anyOf": list(schemas)}


def optional_form(form: Form) -> Form:
    """Returns the form of a value or None."""
    return Form(
        schema_of_alternatives({"type": "null"}, form.schema),
        lambda value, strings: None if value is None else form.encode(value, strings),
        lambda data, texts: None if data is None else form.decode(data, texts),
    )


def tuple_form(form: Form) -> Form:
    """Returns the form of a tuple of values of one form."""
    encode, decode = form.encode, form.decode
    return Form(
        {"type": "array", "items": form.schema},
        lambda values, strings: [encode(value, strings) for value in values],
        lambda data, texts: tuple([decode(item, texts) for item in data]),
    )


def form_of_fixed_tuple(*forms: Form) -> Form:
    """Returns the form of a tuple of given forms that JSON has itself."""
    count = len(forms)
    items = [form.schema for form in forms]
    return json_form(type="array", prefixItems=items, minItems=count, maxItems=count)


def dict_form(form: Form, **schema: Any) -> Form:
    """Returns the form of a dict from texts to values of one form."""
    return Form(
        {"type": "object", **schema, "additionalProperties": form.schema},
        lambda values, strings: {key: form.encode(value, strings) for key, value in values.items()},
        lambda data, texts: {key: form.decode(each, texts) for key, each in data.items()},
    )


ARRAY = tuple_form(COUNT).with_conversion(
    np.ndarray.tolist, lambda found: np.array(found, dtype=np.int64)
)
RUNS = Form({"$ref": "#/$defs/runs"}).with_conversion(runs.encode_runs, runs.decode_runs)
REPEATS = Form({"$ref": "#/$defs/repeats"}).with_conversion(
    runs.encode_repeats, runs.decode_repeats
)
DEFINED: dict[str, Schema] = {
    "runs": tuple_form(form_of_fixed_tuple(WHOLE, WHOLE, MANY)).schema,
    "repeats": tuple_form(form_of_fixed_tuple(COUNT, MANY)).schema,
}


def forms_of_fields(
    cls: type, float_form: Form = POSITIVE, /, **field_forms: Form
) -> dict[str, Form]:
    """Returns the forms of a data class's fields, in their order.

    Args:
      cls: the class.
      float_form: the form of float fields; also of int fields if it is `REAL`.
      field_forms: the forms of fields whose annotation does not determine them.
    """
    hints = {
        key: hint for key, hint in typing.get_type_hints(cls).items() if key not in field_forms
    }
    int_form = float_form if float_form is REAL else COUNT
    form_of_type: dict[Any, Form] = {
        str: TEXT,
        bool: FLAG,
        int: int_form,
        float: float_form,
        np.ndarray: ARRAY,
    }
    names = [field.name for field in dc.fields(cls)]
    return {
        name: field_forms.get(name) or _form_of_type_hint(hints[name], form_of_type)
        for name in names
    }


def _form_of_type_hint(hint: Any, form_of_type: Mapping[Any, Form]) -> Form:
    type_arguments = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return optional_form(form_of_type[type_arguments[0]])
    return form_of_type[hint]


def object_schema(forms: Forms, optional_keys: Sequence[str] = ()) -> Schema:
    """Returns the schema of an object; earlier versions' reports may lack the optional keys."""
    return {
        "type": "object",
        "properties": {key: form.schema for key, form in forms.items()},
        "required": [key for key in forms if key not in optional_keys],
    }


def mark_write_only(form: Form) -> Form:
    """Returns the form marked as written only, as its value follows from other keys."""
    return dc.replace(form, told=True)


def object_form(cls: Callable[..., Any], forms: Forms, optional_keys: Sequence[str] = ()) -> Form:
    """Returns the form of an object, by its attributes."""
    stored_keys = _keys_to_decode(forms)
    return Form(
        object_schema(forms, optional_keys),
        lambda value, strings: {
            key: form.encode(getattr(value, form.attribute or key), strings)
            for key, form in forms.items()
        },
        lambda data, texts: cls(
            **{
                name: form.decode(data[key], texts)
                for key, name, form in stored_keys
                if key in data
            }
        ),
    )


def columns_form(cls: Callable[..., Any], forms: Forms, optional_keys: Sequence[str] = ()) -> Form:
    """Returns the form of a tuple of objects, as one list for each attribute."""
    stored_keys = _keys_to_decode(forms)

    def decode_columns(data: Mapping[str, Any], texts: Sequence[str]) -> tuple[Any, ...]:
        present_columns = [column for column in stored_keys if column[0] in data]
        names = [name for _, name, _ in present_columns]
        decoded_columns = [
            [form.decode(item, texts) for item in data[key]] for key, _, form in present_columns
        ]
        rows = zip(*decoded_columns, strict=True)
        return tuple([cls(**dict(zip(names, row, strict=True))) for row in rows])

    return Form(
        object_schema({key: tuple_form(form) for key, form in forms.items()}, optional_keys),
        lambda values, strings: {
            key: [form.encode(getattr(each, form.attribute or key), strings) for each in values]
            for key, form in forms.items()
        },
        decode_columns,
    )


def _keys_to_decode(forms: Forms) -> list[tuple[str, str, Form]]:
    return [(key, form.attribute or key, form) for key, form in forms.items() if not form.told]
