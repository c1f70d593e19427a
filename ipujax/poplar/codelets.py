"""Codelets in JAX: functions whose parameters are the fields of a vertex."""

from __future__ import annotations

import dataclasses as dc
import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from ipujax.poplar.element_types import Type, require_type
from ipujax.poplar.exceptions import check, graph_object_creation_error, unknown_field
from ipujax.poplar.user_lines import user_line

if TYPE_CHECKING:
    from ipujax.poplar.cpp_codelets import CppVertex

KINDS = ("Vertex", "MultiVertex", "SupervisorVertex")


@dc.dataclass(frozen=True, slots=True)
class Vector:
    """The type of a field with any number of elements: `Vector[FLOAT]`.

    `Vector[Input[FLOAT]]` and `Vector[Input[Vector[FLOAT]]]` are fields with any number of fields.
    """

    element: Type

    def __class_getitem__(cls, element: Any) -> Any:
        if isinstance(element, Field) and element.rank < 2:
            return dc.replace(element, rank=2, has_scalar_rows=not element.rank)
        return cls(require_type(element, "the element type of a Vector"))


@dc.dataclass(frozen=True, slots=True)
class Field:
    """A field that is connected to a tensor.

    Attributes:
      type: the element type.
      rank: 0 for a scalar, 1 for a vector, 2 for a vector of vectors.
      is_read: whether `compute` gets the elements.
      is_written: whether it returns them.
      keeps_unwritten: whether elements of an output that `compute` does not write stay as they are.
      has_scalar_rows: whether it is a vector of scalar fields, of rank 2 all the same.
      is_plain: whether it is connected with no tensor of the user's, and has values of its own.
    """

    type: Type
    rank: int
    is_read: bool
    is_written: bool
    keeps_unwritten: bool = False
    has_scalar_rows: bool = False
    is_plain: bool = False

    def __str__(self) -> str:
        if self.is_plain:
            return f"Vector<{self.type}>"
        is_scalar = not self.rank or self.has_scalar_rows
        element = self.type if is_scalar else f"Vector<{self.type}>"
        kind = (
            "InOut" if self.is_read and self.is_written else "Input" if self.is_read else "Output"
        )
        return f"Vector<{kind}<{element}>>" if self.rank == 2 else f"{kind}<{element}>"


class Input:
    """A field that is read: `Input[FLOAT]`, `Input[Vector[FLOAT]]`."""

    def __class_getitem__(cls, element_or_vector: Any) -> Field:
        return _make_field(element_or_vector, is_read=True, is_written=False)


class Output:
    """A field that is written and not read: `Output[FLOAT]`, `Output[Vector[FLOAT]]`."""

    def __class_getitem__(cls, element_or_vector: Any) -> Field:
        return _make_field(element_or_vector, is_read=False, is_written=True)


class InOut:
    """A field that is read and written: `InOut[FLOAT]`, `InOut[Vector[FLOAT]]`."""

    def __class_getitem__(cls, element_or_vector: Any) -> Field:
        return _make_field(element_or_vector, is_read=True, is_written=True)


def _make_field(element_or_vector: Any, *, is_read: bool, is_written: bool) -> Field:
    if isinstance(element_or_vector, Vector):
        return Field(element_or_vector.element, 1, is_read, is_written)
    return Field(require_type(element_or_vector, "the type of a field"), 0, is_read, is_written)


@dc.dataclass(frozen=True, slots=True, eq=False)
class Codelet:
    """A vertex type: its function, its fields and its cycles.

    Attributes:
      name: the name for `addVertex`.
      function: fields by name -> the written fields by name.
      kind: "Vertex", whose cycles are a worker's, or "MultiVertex" or "SupervisorVertex", whose
        cycles are the tile's.
      fields: the connected fields.
      plain: the fields with a value of their own, and their defaults.
      cycles: fields by name -> cycles; None for the default estimate.
      parameters: for each field, the name of the function's parameter (`in_` for `in`).
      native: the compiled part of a codelet in C++, whose function takes a group of vertices and
        the operands of all of them; None for a codelet in JAX.
    """

    name: str
    function: Callable[..., Mapping[str, Any]]
    kind: str
    fields: Mapping[str, Field]
    plain: Mapping[str, Any]
    cycles: Callable[..., float] | None
    parameters: Mapping[str, str]
    native: CppVertex | None = None

    NO_DEFAULT: ClassVar[Any] = inspect.Parameter.empty

    def __post_init__(self) -> None:
        for name in ("fields", "plain", "parameters"):
            object.__setattr__(self, name, MappingProxyType(getattr(self, name)))

    def require_field(self, field: str) -> None:
        """Raises an error unless the codelet has a field."""
        if field not in self.fields and field not in self.plain:
            raise unknown_field(
                f"vertex type '{self.name}' has no field '{field}'",
                where=user_line(),
                fix=f"its fields are {', '.join([*self.fields, *self.plain])}",
            )


@check.guard
def codelet(
    function: Callable[..., Any] | None = None,
    *,
    cycles: Callable[..., float] | float | None = None,
    kind: str = "Vertex",
    name: str | None = None,
) -> Any:
    """Makes a codelet of a JAX function; a decorator, with or without arguments.

    Args:
      function: its parameters are the fields, annotated `Input[...]`, `Output[...]`, `InOut[...]`
        or with a Python type for a plain value; it returns a dict of every written field. A vector
        is 1-d, a scalar 0-d; an Output comes in as a `jax.ShapeDtypeStruct`. A vector of fields
        is a tuple of them, and may be returned as a list.
      cycles: the cycles of a vertex, or a function of the fields that it asks for by name: a
        `jax.ShapeDtypeStruct` for a connected one, the value for a plain one.
      kind: "Vertex", "MultiVertex" or "SupervisorVertex".
      name: the name for `addVertex`; the function's by default.

    Raises:
      poplar_error: parameters that are no fields, or a kind that is none.
    """
    if function is None:
        return functools.partial(codelet, cycles=cycles, kind=kind, name=name)
    if kind not in KINDS:
        raise check.value_error(f"kind is {kind!r}", f"give one of {', '.join(KINDS)}")
    new_codelet = make_codelet(function, kind=kind, name=name, cycles=cycles)
    function.poplar_codelet = new_codelet  # type: ignore[attr-defined]
    return function


def make_codelet(
    function: Callable[..., Any],
    *,
    kind: str = "Vertex",
    name: str | None = None,
    cycles: Callable[..., float] | float | None = None,
) -> Codelet:
    """Returns the codelet of a function; see `codelet`."""
    check.require_function(function, "the function of a codelet")
    if (codelet := getattr(function, "poplar_codelet", None)) is not None:
        return codelet
    name = name or function.__name__
    fields: dict[str, Field] = {}
    plain: dict[str, Any] = {}
    parameters: dict[str, str] = {}
    for parameter in _signature_of(function, name).parameters.values():
        field = parameter.name.removesuffix("_")
        parameters[field] = parameter.name
        if isinstance(parameter.annotation, Field):
            fields[field] = parameter.annotation
        elif isinstance(parameter.annotation, type) and parameter.annotation is not parameter.empty:
            plain[field] = parameter.default
        else:
            raise graph_object_creation_error(
                f"parameter '{parameter.name}' of codelet '{name}' is no field",
                where=user_line(),
                fix="annotate it with Input[...], Output[...], InOut[...], or a Python type",
            )
    if not any(field.is_written for field in fields.values()):
        raise graph_object_creation_error(
            f"codelet '{name}' writes nothing", where=user_line(), fix="give it an Output or InOut"
        )
    count_cycles = (lambda: float(cycles)) if isinstance(cycles, (int, float)) else cycles
    return Codelet(name, function, kind, fields, plain, count_cycles, parameters)


def _signature_of(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except NameError as error:
        raise graph_object_creation_error(
            f"an annotation of codelet '{name}' cannot be read: {error}",
            where=user_line(),
            fix="make the name global, or leave out `from __future__ import annotations`",
        ) from error
