"""The tables of operators that are supported, with their inputs, outputs and attributes."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable

import onnx.defs

from ipujax.doors.onnx import ONNX
from ipujax.popart.builder.graphcore_ops import graphcore_operations
from ipujax.popart.popart_checks import check
from ipujax.popart.tensor_info import DataType

NEWEST = 11
"""The newest version of ONNX whose operators the original's builders had."""

_ONNX_DOMAIN = "ai.onnx"


@check.guard
@dc.dataclass(frozen=True)
class OperatorIdentifier:
    """The identity of an operator: domain, type, and the version that introduced it."""

    domain: str
    type: str
    version: int

    def __post_init__(self) -> None:
        check.require_text(self.domain, "the domain of an operator")
        check.require_text(self.type, "the type of an operator")
        check.require_integer(self.version, "the version of an operator", at_least=1)


@check.guard
@dc.dataclass(frozen=True)
class OpDefinition:
    """The inputs, outputs and attributes of an operator, by ONNX's schema.

    Attributes:
      inputs: the inputs, with the types of each; empty for Graphcore's own operators.
      outputs: the outputs, likewise.
      attributes: the attributes by name.
    """

    @dc.dataclass(frozen=True)
    class Tensor:
        """An input or output of an operator."""

        name: str
        supportedTensors: list[DataType]

    @dc.dataclass(frozen=True)
    class Attribute:
        """The values that an attribute can have: `*` for any value of its type."""

        supportedValuesRegex: list[str]

    inputs: list[Tensor]
    outputs: list[Tensor]
    attributes: dict[str, Attribute]


@check.guard
def getSupportedOperations(includeInternal: bool) -> list[OperatorIdentifier]:
    """Returns the operators that models can have.

    Args:
      includeInternal: whether to include operators of later ONNX versions, which no builder of the
        original had.
    """
    return list(getSupportedOperationsDefinition(includeInternal))


@check.guard
def getUnsupportedOperations(opsetVersion: int) -> list[OperatorIdentifier]:
    """Returns the operators of a version of ONNX that models cannot have."""
    newest = check.require_integer(opsetVersion, "opsetVersion", at_least=1)
    latest = {schema.name: schema for schema in _list_onnx_schemas(newest)}
    return [
        _identify_operator(schema)
        for schema in latest.values()
        if not _is_supported_operator(schema)
    ]


@check.guard
def getSupportedOperationsDefinition(
    includeInternal: bool,
) -> dict[OperatorIdentifier, OpDefinition]:
    """Returns the definitions of the operators of `getSupportedOperations`."""
    includes_later_versions = check.require_flag(includeInternal, "includeInternal")
    newest = onnx.defs.onnx_opset_version() if includes_later_versions else NEWEST
    definitions = {
        _identify_operator(schema): _define_operator(schema)
        for schema in _list_onnx_schemas(newest)
        if _is_supported_operator(schema)
    }
    for operation in graphcore_operations().values():
        attributes = {name: OpDefinition.Attribute(["*"]) for name in operation.attributes}
        name = OperatorIdentifier(operation.domain, operation.operator, operation.version)
        definitions[name] = OpDefinition([], [], attributes)
    return definitions


def _list_onnx_schemas(newest: int) -> list[onnx.defs.OpSchema]:
    """Lists the schemas of ONNX's own domain up to a version, by name and version."""
    return sorted(
        (
            schema
            for schema in onnx.defs.get_all_schemas_with_history()
            if not schema.domain and not schema.deprecated and schema.since_version <= newest
        ),
        key=lambda schema: (schema.name, schema.since_version),
    )


def _is_supported_operator(schema: onnx.defs.OpSchema) -> bool:
    return ONNX.resolve_version(schema.name, schema.since_version) != schema.name


def _identify_operator(schema: onnx.defs.OpSchema) -> OperatorIdentifier:
    return OperatorIdentifier(_ONNX_DOMAIN, schema.name, schema.since_version)


def _define_operator(schema: onnx.defs.OpSchema) -> OpDefinition:
    return OpDefinition(
        [OpDefinition.Tensor(i.name, _parse_types(i.types)) for i in schema.inputs],
        [OpDefinition.Tensor(o.name, _parse_types(o.types)) for o in schema.outputs],
        {name: OpDefinition.Attribute(["*"]) for name in sorted(schema.attributes)},
    )


def _parse_types(names: Iterable[str]) -> list[DataType]:
    kinds = {name.removeprefix("tensor(").removesuffix(")").upper() for name in names}
    return [kind for kind in DataType if kind.name in kinds]
