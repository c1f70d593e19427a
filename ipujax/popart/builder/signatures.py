"""How the operators of a `Builder` are called: their parameters, as PopART had them."""

from __future__ import annotations

import dataclasses as dc
import functools
import inspect
from typing import Any

import onnx
import onnx.defs
import onnx.helper

_PARAMETER = inspect.Parameter.POSITIONAL_OR_KEYWORD
_RENAMED = {"and": "logical_and", "or": "logical_or", "not": "logical_not", "if": "logical_if"}


@dc.dataclass(frozen=True)
class Operation:
    """An operator, as a builder has it.

    Attributes:
      domain: its own, empty for ONNX's.
      operator: its name in a node.
      version: of the domain, from which on it is this.
      attributes: by name, in the order of the parameters, with their defaults; those that must be
        given have `inspect.Parameter.empty`.
      outputs: how many there are; None where the caller says how many.
      has_inputs: whether it has any.
    """

    domain: str
    operator: str
    version: int
    attributes: dict[str, Any]
    outputs: int | None = 1
    has_inputs: bool = True

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """Inputs, number of outputs, attributes, and what the results are named after."""
        names: dict[str, Any] = {"args": inspect.Parameter.empty} if self.has_inputs else {}
        if self.outputs is None:
            names["num_outputs"] = inspect.Parameter.empty
        names |= {**self.attributes, "debugContext": ""}
        return inspect.Signature(
            [inspect.Parameter(name, _PARAMETER, default=value) for name, value in names.items()]
        )


@functools.cache
def onnx_operations(version: int) -> dict[str, Operation]:
    """Those of a version of ONNX's own domain, by their names in small letters."""
    found: dict[str, onnx.defs.OpSchema] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain != "" or schema.since_version > version:
            continue
        known = found.get(schema.name)
        if known is None or known.since_version < schema.since_version:
            found[schema.name] = schema
    return {
        _RENAMED.get(name.lower(), name.lower()): _operation_of(schema)
        for name, schema in found.items()
        if not schema.deprecated
    }


def _operation_of(schema: onnx.defs.OpSchema) -> Operation:
    """By ONNX's schema: attributes that must be given come first, else by their names."""
    given = {name: inspect.Parameter.empty for name, a in schema.attributes.items() if a.required}
    others = {name: _default(a) for name, a in schema.attributes.items() if not a.required}
    varies = schema.min_output != schema.max_output
    return Operation(
        "",
        schema.name,
        schema.since_version,
        dict(sorted(given.items())) | dict(sorted(others.items())),
        None if varies else schema.max_output,
        schema.max_input > 0,
    )


def _default(attribute: onnx.defs.OpSchema.Attribute) -> Any:
    proto = attribute.default_value
    if not proto.name:
        return None
    value = onnx.helper.get_attribute_value(proto)
    return value.decode() if isinstance(value, bytes) else value
