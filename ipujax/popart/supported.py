"""Which operators there are, and what they take."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable

import onnx.defs

from ipujax.frontends.onnx.operators import ONNX
from ipujax.popart.builder.graphcore import graphcore_operations
from ipujax.popart.checks import check
from ipujax.popart.tensor_info import DataType

NEWEST = 11
"""The newest version of ONNX whose operators the original's builders had."""

_OWN = "ai.onnx"


@check.guard
@dc.dataclass(frozen=True)
class OperatorIdentifier:
    """An operator, from a version of its domain on."""

    domain: str
    type: str
    version: int

    def __post_init__(self) -> None:
        check.text(self.domain, "the domain of an operator")
        check.text(self.type, "the type of an operator")
        check.integer(self.version, "the version of an operator", at_least=1)


@check.guard
@dc.dataclass(frozen=True)
class OpDefinition:
    """What an operator takes and gives, by ONNX's schema; Graphcore's own say their attributes.

    Attributes:
      inputs: with the types of each.
      outputs: as the inputs.
      attributes: by name.
    """

    @dc.dataclass(frozen=True)
    class Tensor:
        """An input or output."""

        name: str
        supportedTensors: list[DataType]

    @dc.dataclass(frozen=True)
    class Attribute:
        """What an attribute can be: `*` for any value of its type."""

        supportedValuesRegex: list[str]

    inputs: list[Tensor]
    outputs: list[Tensor]
    attributes: dict[str, Attribute]


@check.guard
def getSupportedOperations(includeInternal: bool) -> list[OperatorIdentifier]:
    """The operators that models can have.

    Args:
      includeInternal: whether those, too, that no builder of the original had: of later versions
        of ONNX.
    """
    return list(getSupportedOperationsDefinition(includeInternal))


@check.guard
def getUnsupportedOperations(opsetVersion: int) -> list[OperatorIdentifier]:
    """The operators of a version of ONNX that models cannot have."""
    newest = check.integer(opsetVersion, "opsetVersion", at_least=1)
    latest = {schema.name: schema for schema in _schemas(newest)}
    return [_identified(schema) for schema in latest.values() if not _is_known(schema)]


@check.guard
def getSupportedOperationsDefinition(
    includeInternal: bool,
) -> dict[OperatorIdentifier, OpDefinition]:
    """What the operators of `getSupportedOperations` take and give."""
    every = check.flag(includeInternal, "includeInternal")
    newest = onnx.defs.onnx_opset_version() if every else NEWEST
    found = {
        _identified(schema): _definition(schema) for schema in _schemas(newest) if _is_known(schema)
    }
    for operation in graphcore_operations().values():
        attributes = {name: OpDefinition.Attribute(["*"]) for name in operation.attributes}
        name = OperatorIdentifier(operation.domain, operation.operator, operation.version)
        found[name] = OpDefinition([], [], attributes)
    return found


def _schemas(newest: int) -> list[onnx.defs.OpSchema]:
    """Those of ONNX's own domain up to a version; of one operator, older ones come first."""
    return sorted(
        (
            schema
            for schema in onnx.defs.get_all_schemas_with_history()
            if not schema.domain and not schema.deprecated and schema.since_version <= newest
        ),
        key=lambda schema: (schema.name, schema.since_version),
    )


def _is_known(schema: onnx.defs.OpSchema) -> bool:
    return ONNX.resolve(schema.name, schema.since_version) != schema.name


def _identified(schema: onnx.defs.OpSchema) -> OperatorIdentifier:
    return OperatorIdentifier(_OWN, schema.name, schema.since_version)


def _definition(schema: onnx.defs.OpSchema) -> OpDefinition:
    return OpDefinition(
        [OpDefinition.Tensor(i.name, _types(i.types)) for i in schema.inputs],
        [OpDefinition.Tensor(o.name, _types(o.types)) for o in schema.outputs],
        {name: OpDefinition.Attribute(["*"]) for name in sorted(schema.attributes)},
    )


def _types(names: Iterable[str]) -> list[DataType]:
    kinds = {name.removeprefix("tensor(").removesuffix(")").upper() for name in names}
    return [kind for kind in DataType if kind.name in kinds]
