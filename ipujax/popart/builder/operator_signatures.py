"""The operators that a `Builder` can add, and the signatures of their methods."""

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

from ipujax.ground import Keywords
from ipujax.popart.builder import parameters
from ipujax.popart.builder.parameters import Kind
from ipujax.popart.popart_checks import check

MOST = 2**31 - 1
"""The upper limit of an unlimited number of inputs or outputs, as in ONNX."""

REQUIRED = inspect.Parameter.empty
"""The default of an attribute that must be given."""

_PYTHON_KEYWORDS = {"and", "or", "not", "xor", "if"}
_CONTEXTS = {"If": "name"}
_SUCCESSORS = {"Upsample": "Resize", "Scatter": "ScatterElements"}
# PopART's own, each from a version on: they keep a vector's axis and join results.
_GRAPHCORE_VARIANTS = {"Scan": 9}
_ARRAY_ATTRIBUTES = {"Constant": REQUIRED, "ConstantOfShape": None}
_LAST = "auto_pad"


@dc.dataclass(frozen=True)
class Request:
    """The inputs, outputs and attributes of a node to add.

    Attributes:
      name: the name that its results derive from; empty for the operator's.
      inputs: the names of its inputs, empty for one that is left out.
      outputs: the number of its results.
      attributes: its attributes by name; those that are None or empty are left out.
    """

    name: str
    inputs: list[Any]
    outputs: int
    attributes: Mapping[str, Any]


@dc.dataclass(frozen=True)
class Operation:
    """The definition of an operator that a builder can add.

    Attributes:
      domain: the domain of the operator, empty for ONNX's.
      operator: its name in a node.
      version: the version of the domain that introduced this definition.
      attributes: the defaults of attributes by name, in the order of the parameters; `REQUIRED`
        for attributes that must be given.
      outputs: the number of outputs; None if the caller chooses it.
      inputs: the least and the greatest number of inputs.
      adapted: a function from the caller's request to the node's, if they differ.
      results: the least and the greatest number of outputs that a caller may choose.
      kinds: the kinds of attributes and of `args`, if known.
      context: the name of the parameter that names the results.
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
        """The signature of the builder's method: inputs, number of outputs, attributes, context.

        `auto_pad` comes last, as a keyword: the original's builders did not have it.
        """
        parameters_in_order: list[inspect.Parameter] = []
        is_varied = self.outputs is None
        if self.inputs[1]:
            default = REQUIRED if self.inputs[0] or is_varied else ()
            parameters_in_order.append(
                _make_parameter("args", default, self.kinds.get("args", parameters.TEXTS))
            )
        if is_varied:
            parameters_in_order.append(_make_parameter("num_outputs", REQUIRED, parameters.INT))
        parameters_in_order += [
            _make_parameter(parameter_name(name), default, self.attribute_kind(name))
            for name, default in self.attributes.items()
            if name != _LAST
        ]
        if self.context not in self.attributes:  # else that is its place
            parameters_in_order.append(_make_parameter(self.context, "", parameters.CONTEXT))
        if _LAST in self.attributes:
            last = _make_parameter(_LAST, self.attributes[_LAST], self.attribute_kind(_LAST))
            parameters_in_order.append(last.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        return inspect.Signature(parameters_in_order)

    def attribute_kind(self, attribute: str) -> Kind:
        """Returns the kind of an attribute."""
        return self.kinds.get(attribute, parameters.ANY)

    def bind_operator_arguments(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Keywords:
        """Binds the arguments of a call to all parameters, converted to the values of a node.

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

    def build_request(self, arguments: Mapping[str, Any]) -> Request:
        """Builds the node's request from bound arguments."""
        request = Request(
            arguments[self.context],
            list(arguments.get("args", ())),
            arguments["num_outputs"] if self.outputs is None else self.outputs,
            {
                name: arguments[parameter_name(name)]
                for name in self.attributes
                if name != self.context
            },
        )
        return self.adapted(request) if self.adapted else request

    def stores_attribute(self, attribute: str, value: object) -> bool:
        """Returns whether a node stores an attribute; for ONNX not defaults, except integers.

        Empty lists are not stored, except for the axes of a reduction.
        """
        if isinstance(value, list | tuple) and not value:
            return self.operator.startswith("Reduce") and attribute == "axes"
        if value is None:
            return False
        default = self.attributes.get(attribute)
        is_default = type(value) is type(default) and value == default
        return not is_default or isinstance(value, int) or bool(self.domain)


def _make_parameter(name: str, default: object, kind: Kind) -> inspect.Parameter:
    position = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, position, default=default, annotation=kind)


def parameter_name(attribute: str) -> str:
    """Returns an attribute's parameter name, with an underscore behind Python's keywords."""
    return f"{attribute}_" if keyword.iskeyword(attribute) else attribute


@functools.cache
def onnx_operations(version: int) -> dict[str, Operation]:
    """Returns the operators of a version of ONNX's own domain, by their names in small letters."""
    schemas: dict[str, onnx.defs.OpSchema] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain != "" or schema.since_version > version:
            continue
        older_schema = schemas.get(schema.name)
        if older_schema is None or older_schema.since_version < schema.since_version:
            schemas[schema.name] = schema
    schemas |= {
        old: schemas[new] for old, new in _SUCCESSORS.items() if _has_successor(schemas, old, new)
    }
    return {
        _method_name(name): _build_operation(schema)
        for name, schema in schemas.items()
        if not schema.deprecated
        and (name not in _GRAPHCORE_VARIANTS or version >= _GRAPHCORE_VARIANTS[name])
    }


def _has_successor(schemas: Mapping[str, onnx.defs.OpSchema], old: str, new: str) -> bool:
    """Returns whether a deprecated operator has a successor that takes the same inputs."""
    if old not in schemas or new not in schemas or not schemas[old].deprecated:
        return False
    old_schema, new_schema = schemas[old], schemas[new]
    return (old_schema.min_input, old_schema.max_input) == (
        new_schema.min_input,
        new_schema.max_input,
    )


def _method_name(name: str) -> str:
    small = name.lower()
    return f"logical_{small}" if small in _PYTHON_KEYWORDS else small


def _build_operation(schema: onnx.defs.OpSchema) -> Operation:
    """Builds an operation from ONNX's schema: required attributes come first, then by name."""
    attributes = dict(sorted(schema.attributes.items()))
    defaults: dict[str, Any] = {name: REQUIRED for name, a in attributes.items() if a.required}
    defaults |= {name: _attribute_default(a) for name, a in attributes.items() if not a.required}
    kinds = {name: _attribute_kind(schema.name, a) for name, a in attributes.items()}
    if schema.name in _ARRAY_ATTRIBUTES:
        defaults = {"value": _ARRAY_ATTRIBUTES[schema.name]}
    has_sparse_value = "sparse_value" in attributes
    if has_sparse_value:
        defaults["is_value_sparse"] = False
    varies = schema.min_output != schema.max_output
    return Operation(
        "ai.graphcore" if schema.name in _GRAPHCORE_VARIANTS else "",
        schema.name,
        schema.since_version,
        defaults,
        None if varies else schema.max_output,
        (schema.min_input, schema.max_input),
        kinds,
        _CONTEXTS.get(schema.name, "debugContext"),
        (schema.min_output, schema.max_output),
        _drop_sparse_flag if has_sparse_value else None,
    )


def _drop_sparse_flag(request: Request) -> Request:
    """Drops the argument `is_value_sparse` of constants, which cannot be sparse."""
    attributes = dict(request.attributes)
    if attributes.pop("is_value_sparse"):
        raise check.value_error("The Constant op attribute 'sparse_value' is not supported.")
    return dc.replace(request, attributes=attributes)


def _attribute_kind(operator: str, attribute: onnx.defs.OpSchema.Attribute) -> Kind:
    if (operator, attribute.name) == ("Cast", "to"):
        return parameters.DATA_TYPE
    return parameters.BY_NUMBER.get(cast(Any, attribute.type).value, parameters.ANY)


def _attribute_default(attribute: onnx.defs.OpSchema.Attribute) -> Any:
    proto = attribute.default_value
    if not proto.name:
        return None
    value = onnx.helper.get_attribute_value(proto)
    return value.decode() if isinstance(value, bytes) else value
