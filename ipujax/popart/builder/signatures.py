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

from ipujax.popart.builder import parameters
from ipujax.popart.builder.parameters import Kind
from ipujax.popart.checks import check

MOST = 2**31 - 1
"""As many inputs or outputs as one likes, as ONNX says it."""

REQUIRED = inspect.Parameter.empty
"""The default of an attribute that must be given."""

_RENAMED = {"and", "or", "not", "xor", "if"}
_CONTEXTS = {"If": "name"}
_SUCCESSORS = {"Upsample": "Resize", "Scatter": "ScatterElements"}
_OWN = {"Scan": 9}  # PopART's keep a vector's axis, join what they give, and begin at a version
_OF_ARRAYS = {"Constant": REQUIRED, "ConstantOfShape": None}
_LAST = "auto_pad"


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
      results: how many outputs there are at least and at most, where the caller says it.
      kinds: what attributes and `args` take, where it is known.
      context: the name of the parameter that the results are named after.
    """

    domain: str
    operator: str
    version: int
    attributes: Mapping[str, Any]
    outputs: int | None = 1
    inputs: tuple[int, int] = (1, MOST)
    kinds: Mapping[str, Kind] = dc.field(default_factory=dict[str, Kind])
    context: str = "debugContext"
    results: tuple[int, int] = (1, MOST)
    adapted: Callable[[Request], Request] | None = None

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """Inputs, number of outputs, attributes, and what the results are named after.

        How to pad comes last, by its name alone: the original's builders did not have it.
        """
        found: list[inspect.Parameter] = []
        is_varied = self.outputs is None
        if self.inputs[1]:
            default = REQUIRED if self.inputs[0] or is_varied else ()
            found.append(_parameter("args", default, self.kinds.get("args", parameters.TEXTS)))
        if is_varied:
            found.append(_parameter("num_outputs", REQUIRED, parameters.INT))
        found += [
            _parameter(parameter_of(name), default, self.kind(name))
            for name, default in self.attributes.items()
            if name != _LAST
        ]
        if self.context not in self.attributes:  # else that is its place
            found.append(_parameter(self.context, "", parameters.CONTEXT))
        if _LAST in self.attributes:
            last = _parameter(_LAST, self.attributes[_LAST], self.kind(_LAST))
            found.append(last.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        return inspect.Signature(found)

    def kind(self, attribute: str) -> Kind:
        """What an attribute takes."""
        return self.kinds.get(attribute, parameters.ANY)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What a call gives all parameters, in the form that a node holds.

        Raises:
          TypeError: the operator takes other parameters, or values of other types.
        """
        bound = self.signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind: Kind = self.signature.parameters[name].annotation
            if value is not None:
                bound.arguments[name] = kind.read(value)
        bound.apply_defaults()
        return bound.arguments

    def request(self, given: Mapping[str, Any]) -> Request:
        """The node for what `bind` gives."""
        asked = Request(
            given[self.context],
            list(given.get("args", ())),
            given["num_outputs"] if self.outputs is None else self.outputs,
            {name: given[parameter_of(name)] for name in self.attributes if name != self.context},
        )
        return self.adapted(asked) if self.adapted else asked

    def says(self, attribute: str, value: Any) -> bool:
        """Whether a node holds an attribute: of the defaults of ONNX's own, integers alone.

        It holds no empty list, but for the axes of a reduction, which may be none of all.
        """
        if isinstance(value, list | tuple) and not value:
            return self.operator.startswith("Reduce") and attribute == "axes"
        if value is None:
            return False
        default = self.attributes.get(attribute)
        is_default = type(value) is type(default) and value == default
        return not is_default or isinstance(value, int) or bool(self.domain)


def _parameter(name: str, default: Any, kind: Kind) -> inspect.Parameter:
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, place, default=default, annotation=kind)


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
    found |= {old: found[new] for old, new in _SUCCESSORS.items() if _is_succeeded(found, old, new)}
    return {
        _method(name): _operation_of(schema)
        for name, schema in found.items()
        if not schema.deprecated and (name not in _OWN or version >= _OWN[name])
    }


def _is_succeeded(found: Mapping[str, onnx.defs.OpSchema], old: str, new: str) -> bool:
    """Whether an operator that ONNX has given up has a successor that takes the same inputs."""
    if old not in found or new not in found or not found[old].deprecated:
        return False
    before, after = found[old], found[new]
    return (before.min_input, before.max_input) == (after.min_input, after.max_input)


def _method(name: str) -> str:
    small = name.lower()
    return f"logical_{small}" if small in _RENAMED else small


def _operation_of(schema: onnx.defs.OpSchema) -> Operation:
    """By ONNX's schema: attributes that must be given come first, else by their names."""
    known = dict(sorted(schema.attributes.items()))
    defaults: dict[str, Any] = {name: REQUIRED for name, a in known.items() if a.required}
    defaults |= {name: _default(a) for name, a in known.items() if not a.required}
    kinds = {name: _kind(schema.name, a) for name, a in known.items()}
    if schema.name in _OF_ARRAYS:
        defaults = {"value": _OF_ARRAYS[schema.name]}
    is_told = "sparse_value" in known
    if is_told:
        defaults["is_value_sparse"] = False
    varies = schema.min_output != schema.max_output
    return Operation(
        "ai.graphcore" if schema.name in _OWN else "",
        schema.name,
        schema.since_version,
        defaults,
        None if varies else schema.max_output,
        (schema.min_input, schema.max_input),
        kinds,
        _CONTEXTS.get(schema.name, "debugContext"),
        (schema.min_output, schema.max_output),
        _dense if is_told else None,
    )


def _dense(asked: Request) -> Request:
    """Of an array, which cannot be sparse: an attribute that a call has, and a node has not."""
    attributes = dict(asked.attributes)
    if attributes.pop("is_value_sparse"):
        raise check.refuse("The Constant op attribute 'sparse_value' is not supported.")
    return dc.replace(asked, attributes=attributes)


def _kind(operator: str, attribute: onnx.defs.OpSchema.Attribute) -> Kind:
    if (operator, attribute.name) == ("Cast", "to"):
        return parameters.DATA_TYPE
    return parameters.BY_NUMBER.get(cast(Any, attribute.type).value, parameters.ANY)


def _default(attribute: onnx.defs.OpSchema.Attribute) -> Any:
    proto = attribute.default_value
    if not proto.name:
        return None
    value = onnx.helper.get_attribute_value(proto)
    return value.decode() if isinstance(value, bytes) else value
