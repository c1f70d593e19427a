"""Forms: what may stand at a place of a document, how it is written, and how it is read.

The structure of a section is stated once, as a form; what writes it, what reads it and its JSON
Schema follow. Forms of data classes follow from the annotations of their fields.
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


class Strings:
    """Numbers texts as they come, so that a document has each once; 0 is the empty one."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        """What stands for a text."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        """All of them, by number."""
        return list(self._numbers)


def _plain(value: Any, _: Strings) -> Any:
    """NumPy's numbers as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _same(data: Any, _: Sequence[str]) -> Any:
    return data


@dc.dataclass(frozen=True, slots=True)
class Form:
    """What stands at one place.

    Attributes:
      schema: what may stand there.
      encode: from a value to plain Python; texts may be numbered.
      decode: from what stands there, and all texts, to a value.
      attribute: what an object calls it, if that is not what its document does.
      told: whether it follows from the rest, so that nobody reads it.
    """

    schema: Schema
    encode: Callable[[Any, Strings], Any] = _plain
    decode: Callable[[Any, Sequence[str]], Any] = _same
    attribute: str = ""
    told: bool = False

    def of(self, attribute: str) -> Form:
        """The same, of an attribute of another name."""
        return dc.replace(self, attribute=attribute)

    def via(self, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Form:
        """The form of what `write` makes a value of this form, and `read` makes of one."""
        return Form(
            self.schema,
            lambda value, strings: self.encode(write(value), strings),
            lambda data, texts: read(self.decode(data, texts)),
        )


Forms = Mapping[str, Form]


def plain(**schema: Any) -> Form:
    """What JSON has itself."""
    return Form(schema)


TEXT = plain(type="string")
FLAG = plain(type="boolean")
WHOLE = plain(type="integer")
COUNT = plain(type="integer", minimum=0)
REAL = plain(type="number")
POSITIVE = plain(type="number", minimum=0)
SHARE = plain(type="number", minimum=0, maximum=1)
MANY = plain(type="integer", minimum=1, maximum=runs.MOST)
OR_NONE = plain(type="integer", minimum=-1).via(
    lambda number: -1 if number is None else int(number),
    lambda number: None if number == -1 else number,
)
WORD = Form(COUNT.schema, lambda text, strings: strings.number(text), lambda n, texts: texts[n])


def one_of(values: Iterable[object]) -> Form:
    """One of a few."""
    return plain(enum=list(values))


def either(*schemas: Schema) -> Schema:
    """One or another."""
    return {"anyOf": list(schemas)}


def or_null(form: Form) -> Form:
    """Something or None."""
    return Form(
        either({"type": "null"}, form.schema),
        lambda value, strings: None if value is None else form.encode(value, strings),
        lambda data, texts: None if data is None else form.decode(data, texts),
    )


def listed(form: Form) -> Form:
    """A tuple of equal things."""
    encode, decode = form.encode, form.decode
    return Form(
        {"type": "array", "items": form.schema},
        lambda values, strings: [encode(value, strings) for value in values],
        lambda data, texts: tuple([decode(each, texts) for each in data]),
    )


def in_order(*forms: Form) -> Form:
    """A tuple of different things that JSON has itself."""
    count = len(forms)
    items = [form.schema for form in forms]
    return plain(type="array", prefixItems=items, minItems=count, maxItems=count)


def mapped(form: Form, **schema: Any) -> Form:
    """A dict from texts to equal things."""
    return Form(
        {"type": "object", **schema, "additionalProperties": form.schema},
        lambda values, strings: {key: form.encode(each, strings) for key, each in values.items()},
        lambda data, texts: {key: form.decode(each, texts) for key, each in data.items()},
    )


ARRAY = listed(COUNT).via(np.ndarray.tolist, lambda found: np.array(found, dtype=np.int64))
RUNS = Form({"$ref": "#/$defs/runs"}).via(runs.runs, runs.from_runs)
REPEATS = Form({"$ref": "#/$defs/repeats"}).via(runs.repeats, runs.from_repeats)
DEFINED: dict[str, Schema] = {
    "runs": listed(in_order(WHOLE, WHOLE, MANY)).schema,
    "repeats": listed(in_order(COUNT, MANY)).schema,
}


def derived(cls: type, number: Form = POSITIVE, /, **others: Form) -> dict[str, Form]:
    """The forms of a data class's fields, in their order.

    Args:
      cls: the class.
      number: of fields that are float, or all numbers if it is `REAL`.
      others: of fields of which the annotation does not say enough.
    """
    hints = {key: hint for key, hint in typing.get_type_hints(cls).items() if key not in others}
    whole = number if number is REAL else COUNT
    known: dict[Any, Form] = {str: TEXT, bool: FLAG, int: whole, float: number, np.ndarray: ARRAY}
    names = [field.name for field in dc.fields(cls)]
    return {name: others.get(name) or _of(hints[name], known) for name in names}


def _of(hint: Any, known: Mapping[Any, Form]) -> Form:
    inner = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return or_null(known[inner[0]])
    return known[hint]


def described(forms: Forms, later: Sequence[str] = ()) -> Schema:
    """The schema of an object; keys that came later are missing in reports of earlier versions."""
    return {
        "type": "object",
        "properties": {key: form.schema for key, form in forms.items()},
        "required": [key for key in forms if key not in later],
    }


def told(form: Form) -> Form:
    """What follows from the rest: it is written, and nobody reads it."""
    return dc.replace(form, told=True)


def record(cls: Callable[..., Any], forms: Forms, later: Sequence[str] = ()) -> Form:
    """An object, by its attributes."""
    read = _read(forms)
    return Form(
        described(forms, later),
        lambda value, strings: {
            key: form.encode(getattr(value, form.attribute or key), strings)
            for key, form in forms.items()
        },
        lambda data, texts: cls(
            **{name: form.decode(data[key], texts) for key, name, form in read if key in data}
        ),
    )


def columns(cls: Callable[..., Any], forms: Forms, later: Sequence[str] = ()) -> Form:
    """A tuple of objects, as a list for each of their attributes."""
    read = _read(forms)

    def decode(data: Mapping[str, Any], texts: Sequence[str]) -> tuple[Any, ...]:
        there = [column for column in read if column[0] in data]
        names = [name for _, name, _ in there]
        found = [[form.decode(each, texts) for each in data[key]] for key, _, form in there]
        rows = zip(*found, strict=True)
        return tuple([cls(**dict(zip(names, row, strict=True))) for row in rows])

    return Form(
        described({key: listed(form) for key, form in forms.items()}, later),
        lambda values, strings: {
            key: [form.encode(getattr(each, form.attribute or key), strings) for each in values]
            for key, form in forms.items()
        },
        decode,
    )


def _read(forms: Forms) -> list[tuple[str, str, Form]]:
    return [(key, form.attribute or key, form) for key, form in forms.items() if not form.told]
