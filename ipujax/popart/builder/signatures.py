"""How the operators of a `Builder` are called: their parameters, as PopART had them."""

from __future__ import annotations

import dataclasses as dc
import functools
import inspect
import keyword
from collections.abc import Callable, Mapping
from typing import Any, cast

import onnx
import onnx.defs
import onnx.helper

_PARAMETER = inspect.Parameter.POSITIONAL_OR_KEYWORD
_RENAMED = {"and", "or", "not", "xor", "if"}
_OTHER_MEANING = {"Scan"}  # PopART's keeps the axis that it scans, and joins what it gives
_NO_PARAMETER = "auto_pad"  # add it with Builder.addNodeAttribute
MOST = 2**31 - 1
"""As many inputs or outputs as one likes, as ONNX says it."""

REQUIRED = inspect.Parameter.empty
"""The default of an attribute that must be given."""


@dc.dataclass(frozen=True)
class Request:
    """A node that is asked for.

    Attributes:
      name: what its results are named after; empty for the operator.
      inputs: names, empty for one that is left out.
      outputs: how many results it has.
      attributes: by name; those that are None or empty are left out.
    """

    name: str
    inputs: list[Any]
    outputs: int
    attributes: Mapping[str, Any]


@dc.dataclass(frozen=True)
class Operation:
    """An operator, as a builder has it.

    Attributes:
      domain: its own, empty for ONNX's.
      operator: its name in a node.
      version: of the domain, from which on it is this.
      attributes: by name, in the order of the parameters, with their defaults; `REQUIRED` for those
        that must be given.
      outputs: how many there are; None where the caller says how many.
      inputs: how many there are at least and at most.
      adapted: makes of what a caller asks for the node, where that is not the same.
      kinds: types of attributes, as ONNX numbers them, where they are known.
      context: the name of the parameter that the results are named after.
    """

    domain: str
    operator: str
    version: int
    attributes: Mapping[str, Any]
    outputs: int | None = 1
    inputs: tuple[int, int] = (1, MOST)
    kinds: Mapping[str, int] = dc.field(default_factory=dict[str, int])
    context: str = "debugContext"
    adapted: Callable[[Request], Request] | None = None

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """Inputs, number of outputs, attributes, and what the results are named after."""
        names: dict[str, Any] = {"args": REQUIRED} if self.inputs[1] else {}
        if self.outputs is None:
            names["num_outputs"] = REQUIRED
        elif self.inputs[1] and not self.inputs[0]:
            names["args"] = ()
        names |= {parameter_of(name): value for name, value in self.attributes.items()}
        names[self.context] = ""
        return inspect.Signature(
            [inspect.Parameter(name, _PARAMETER, default=value) for name, value in names.items()]
        )

    def request(self, given: Mapping[str, Any]) -> Request:
        """The node for arguments of the signature."""
        asked = Request(
            str(given[self.context]),
            list(given.get("args", ())),
            given["num_outputs"] if self.outputs is None else self.outputs,
            {name: given[parameter_of(name)] for name in self.attributes if name != self.context},
        )
        return self.adapted(asked) if self.adapted else asked


def parameter_of(attribute: str) -> str:
    """The parameter of an attribute, whose name may be a word of Python's own."""
    return f"{attribute}_" if keyword.iskeyword(attribute) else attribute


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
        _method(name): _operation_of(schema)
        for name, schema in found.items()
        if not schema.deprecated and name not in _OTHER_MEANING
    }


def _method(name: str) -> str:
    small = name.lower()
    return f"logical_{small}" if small in _RENAMED else small


def _operation_of(schema: onnx.defs.OpSchema) -> Operation:
    """By ONNX's schema: attributes that must be given come first, else by their names."""
    known = {n: a for n, a in sorted(schema.attributes.items()) if n != _NO_PARAMETER}
    parameters = {name: REQUIRED for name, a in known.items() if a.required}
    parameters |= {name: _default(a) for name, a in known.items() if not a.required}
    if schema.name in ("Constant", "ConstantOfShape"):
        parameters = _of_values(schema)
    varies = schema.min_output != schema.max_output
    return Operation(
        "",
        schema.name,
        schema.since_version,
        parameters,
        None if varies else schema.max_output,
        (schema.min_input, schema.max_input),
        {name: cast(Any, attribute.type).value for name, attribute in known.items()},
    )


def _of_values(schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """The parameters of an operator that is given an array."""
    if schema.name == "ConstantOfShape":
        return {"value": (0.0,)}
    return {"value": REQUIRED}


def _default(attribute: onnx.defs.OpSchema.Attribute) -> Any:
    proto = attribute.default_value
    if not proto.name:
        return None
    value = onnx.helper.get_attribute_value(proto)
    return value.decode() if isinstance(value, bytes) else value
