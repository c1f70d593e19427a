"""The attributes of nodes that a builder's user reads and writes, and their placement."""

from __future__ import annotations

import abc
import contextlib
import enum
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from onnx import AttributeProto

from ipujax.doors.onnx import value_of_attribute
from ipujax.ground import PopARTError
from ipujax.popart.node_placement import IPU, PHASE, STAGE
from ipujax.popart.options.option_kinds import RecomputeType, ReductionType, ScatterReduction
from ipujax.popart.popart_checks import check
from ipujax.popart.popart_recomputation import RECOMPUTE
from ipujax.popart.tensor_info import DataType

Names = str | Iterable[str]

PARTIALS = "__partials_type"
MEMORY = "__available_memory"
DITHERING = "__enable_conv_dithering"
PATTERNS = "__exclude_patterns"
PRIORITY = "__schedule_priority"
OUTLINE = "__outline"
SERIALIZE = "__serialize_matmul_"
INPLACE = "__inplace_op_"
COLLECTIVE = "__collectiveOperator"
GROUP = "__collectiveCommGroup"

_MARK_NAMES = {IPU: "Virtual graph", STAGE: "Pipeline stage", PHASE: "Execution phase"}
_SERIALIZING = ("input_channels", "reducing_dim", "output_channels", "none")


class Attributes(abc.ABC):
    """A base class of builders: attributes of nodes, found by the names of all their outputs.

    Virtual graphs and pipeline stages decide where a node runs. Attributes for the original's
    scheduling, planning and outlining are kept in the model and change nothing here: execution
    phases, partials, memory, dithering, patterns, in-place preferences and priorities.
    """

    _graph: onnx.GraphProto
    _marks: dict[str, Any]

    # --- any attribute --------------------------------------------------------------------------

    def addNodeAttribute(
        self, attributeName: str, attributeValue: object, nodeOutputNames: Names
    ) -> None:
        """Adds an attribute to a node: a number, a text, or a list of them.

        Raises:
          PopARTError: (a `ValueError`) there is no such node, or it has that attribute.
        """
        node = self._find_node(nodeOutputNames)
        if any(a.name == attributeName for a in node.attribute):
            raise PopARTError(f"Node already has attribute {attributeName}.")
        write_node_attribute(node, attributeName, attributeValue)
        self._forget_inferred_shapes()

    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> None:
        """Removes an attribute of a node; raises errors as `addNodeAttribute`."""
        node = self._find_node(nodeOutputNames)
        other_attributes = [a for a in node.attribute if a.name != attributeName]
        if len(other_attributes) == len(node.attribute):
            raise PopARTError(f"Cannot remove attribute {attributeName} as it does not exist.")
        del node.attribute[:]
        node.attribute.extend(other_attributes)
        self._forget_inferred_shapes()

    def nodeHasAttribute(self, attributeName: str, nodeOutputNames: Names) -> bool:
        """Returns whether a node has an attribute."""
        return attributeName in self.getAllNodeAttributeNames(nodeOutputNames)

    def getAllNodeAttributeNames(self, nodeOutputNames: Names) -> list[str]:
        """Returns the names of a node's attributes."""
        return [a.name for a in self._find_node(nodeOutputNames).attribute]

    def getInt64NodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> int:
        """Returns an integer attribute; raises an error if it has another type."""
        return self._read_node_attribute(
            attributeName, nodeOutputNames, AttributeProto.INT, "an integer"
        )

    def getInt64VectorNodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> list[int]:
        """Returns an attribute that is a list of integers."""
        return self._read_node_attribute(
            attributeName, nodeOutputNames, AttributeProto.INTS, "an integer vector"
        )

    def getFloatNodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> float:
        """Returns a floating-point attribute."""
        return self._read_node_attribute(
            attributeName, nodeOutputNames, AttributeProto.FLOAT, "a float"
        )

    def getFloatVectorNodeAttribute(
        self, attributeName: str, nodeOutputNames: Names
    ) -> list[float]:
        """Returns an attribute that is a list of floating-point numbers."""
        return self._read_node_attribute(
            attributeName, nodeOutputNames, AttributeProto.FLOATS, "a float vector"
        )

    def getStringNodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> str:
        """Returns a text attribute."""
        return self._read_node_attribute(
            attributeName, nodeOutputNames, AttributeProto.STRING, "a string"
        )

    def getStringVectorNodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> list[str]:
        """Returns an attribute that is a list of texts."""
        return self._read_node_attribute(
            attributeName, nodeOutputNames, AttributeProto.STRINGS, "a string vector"
        )

    # --- where nodes run ------------------------------------------------------------------------

    def virtualGraph(self, nodeOutputNames: object, value: int | None = None) -> Any:
        """Places the node of a tensor on an IPU; with a number alone, returns a scope."""
        return self._mark_nodes_or_scope(IPU, nodeOutputNames, value)

    def pipelineStage(self, nodeOutputNames: object, value: int | None = None) -> Any:
        """Puts the node of a tensor into a stage; with a number alone, returns a scope."""
        return self._mark_nodes_or_scope(STAGE, nodeOutputNames, value)

    def executionPhase(self, nodeOutputNames: object = 0, value: int | None = None) -> Any:
        """Sets the phase of a node, as `virtualGraph` does its IPU.

        It acts with `VirtualGraphMode.ExecutionPhases`.
        """
        return self._mark_nodes_or_scope(PHASE, nodeOutputNames, value)

    def getVirtualGraph(self, nodeOutputNames: Names | None = None) -> int:
        """Returns the IPU of a node, or of the enclosing scope."""
        return self._read_mark(IPU, nodeOutputNames)

    def getPipelineStage(self) -> int:
        """Returns the pipeline stage of the enclosing scope."""
        return self._read_mark(STAGE, None)

    def getExecutionPhase(self) -> int:
        """Returns the execution phase of the enclosing scope."""
        return self._read_mark(PHASE, None)

    def hasVirtualGraph(self) -> bool:
        """Returns whether an enclosing scope sets an IPU."""
        return IPU in self._marks

    def hasPipelineStage(self) -> bool:
        """Returns whether an enclosing scope sets a pipeline stage."""
        return STAGE in self._marks

    def hasExecutionPhase(self) -> bool:
        """Returns whether an enclosing scope sets an execution phase."""
        return PHASE in self._marks

    def commGroup(self, type: int = 0, groupSize: int = 0) -> Any:
        """Returns a scope that sets the replica groups of its collectives.

        Args:
          type: the number of a `CommGroupType`, or one.
          groupSize: the number of replicas of a group; ignored for a group of all replicas.
        """
        number = type.value if isinstance(type, enum.Enum) else type
        return self._mark_scope(GROUP, [check.require_integer(number, "type"), groupSize])

    # --- attributes with little effect ----------------------------------------------------------

    def recomputeOutput(self, nodeOutputNames: Any, value: RecomputeType | None = None) -> Any:
        """Sets whether the backward pass recomputes a node; with a value alone, returns a scope.

        With `RecomputeType.Recompute` the node is recomputed; with `Checkpoint` it is kept, even if
        `SessionOptions.autoRecomputation` recomputes others.
        """
        if isinstance(nodeOutputNames, RecomputeType):
            return self._mark_scope(RECOMPUTE, nodeOutputNames.value)
        return self.recomputeOutputInBackwardPass(
            nodeOutputNames, RecomputeType.Undefined if value is None else value
        )

    def recomputeOutputInBackwardPass(
        self, nodeOutputName: Names, value: RecomputeType = RecomputeType.Recompute
    ) -> None:
        """Sets whether the backward pass recomputes a node, as `recomputeOutput`."""
        self._write_attributes(nodeOutputName, {RECOMPUTE: RecomputeType(value).value})

    def getRecomputeOutputInBackwardPass(self, nodeOutputName: Names) -> bool:
        """Returns whether a node is marked to be recomputed."""
        node = self._find_node(nodeOutputName)
        return any(a.name == RECOMPUTE and bool(a.i) for a in node.attribute)

    def setPartialsType(self, nodeOutputName: Names, partialsType: str) -> None:
        """Keeps the data type of a node's partial sums; it changes nothing here.

        Raises:
          PopARTError: (a `ValueError`) the node is neither a `Conv` nor a `MatMul`.
        """
        kind = self._find_node(nodeOutputName).op_type
        if kind not in ("Conv", "MatMul"):
            raise PopARTError(
                "Builder::setPartialsType should only be called on operators: Conv, MatMul; but "
                f"was given: {kind}"
            )
        self._write_attributes(nodeOutputName, {PARTIALS: partialsType})

    def getPartialsType(self, nodeOutputName: Names) -> str:
        """Returns the data type of `setPartialsType`; `FLOAT` if it was not set."""
        if not self.nodeHasAttribute(PARTIALS, nodeOutputName):
            return "FLOAT"
        return self.getStringNodeAttribute(PARTIALS, nodeOutputName)

    def setAvailableMemoryProportion(
        self, nodeOutputName: Names, availableMemoryProportion: float
    ) -> None:
        """Keeps the memory proportion of a node; it changes nothing here.

        Raises:
          PopARTError: (a `ValueError`) it is not in (0, 1].
        """
        if not 0 < availableMemoryProportion <= 1:
            raise PopARTError("availableMemoryProportion must be in (0,1]")
        self._write_attributes(nodeOutputName, {MEMORY: float(availableMemoryProportion)})

    def setEnableConvDithering(self, nodeOutputName: Names, enableConvDithering: int) -> None:
        """Stores whether a convolution starts on a random tile; the option has no effect here.

        Raises:
          PopARTError: (a `ValueError`) the node is no `Conv`, or the value neither 0 nor 1.
        """
        if enableConvDithering not in (0, 1):
            raise PopARTError("enableConvDithering must be a bool value")
        kind = self._find_node(nodeOutputName).op_type
        if kind != "Conv":
            raise PopARTError(
                "Builder::setEnableConvDithering should only be called on convolutions but was "
                f"given: {kind}"
            )
        self._write_attributes(nodeOutputName, {DITHERING: int(enableConvDithering)})

    def setSerializeMatMul(
        self, nodeOutputName: Names, mode: str, factor: int = 0, keep_precision: bool = False
    ) -> None:
        """Keeps how a matmul is split into serial parts; it changes nothing here.

        Raises:
          PopARTError: (a `ValueError`) another mode, or the node is no `MatMul`.
        """
        check.require_one_of(mode, _SERIALIZING, "the mode of setSerializeMatMul")
        kind = self._find_node(nodeOutputName).op_type
        if kind != "MatMul":
            raise PopARTError(
                f"Builder::setSerializeMatMul should only be called on MatMul, but was given {kind}"
            )
        settings = {"mode": mode, "factor": factor, "precision": int(keep_precision)}
        if mode != "none":
            self._write_attributes(
                nodeOutputName, {SERIALIZE + name: value for name, value in settings.items()}
            )

    def setInplacePreferences(self, nodeOutputName: Names, prefs: Mapping[str, float]) -> None:
        """Keeps the priorities of in-place variants of a node; it changes nothing here."""
        priorities = [float(value) for value in prefs.values()]
        self._write_attributes(
            nodeOutputName, {INPLACE + "names": list(prefs), INPLACE + "priorities": priorities}
        )

    def excludePatterns(self, nodeOutputName: Names, patternNames: Sequence[str]) -> None:
        """Keeps the patterns that must not rewrite a node; it changes nothing here."""
        self._write_attributes(nodeOutputName, {PATTERNS: list(patternNames)})

    def schedulePriority(self, value: float) -> Any:
        """Returns a scope that sets its nodes' schedule priority; it changes nothing here."""
        return self._mark_scope(PRIORITY, float(value))

    def outlineAttributes(self, attributes: Mapping[str, object]) -> Any:
        """Returns a scope of nodes that may be outlined together; it changes nothing here."""
        return self._mark_scope(OUTLINE, [str(t) for pair in attributes.items() for t in pair])

    # --- internals ------------------------------------------------------------------------------

    @abc.abstractmethod
    def _forget_inferred_shapes(self) -> None:
        """Forgets the shapes that were inferred before the graph changed."""

    def _write_attributes(self, names: Names, attribute_values: Mapping[str, object]) -> None:
        node = self._find_node(names)
        for name, value in attribute_values.items():
            write_node_attribute(node, name, value)

    def _mark_nodes_or_scope(self, mark: str, names: Any, value: int | None) -> Any:
        if value is None:
            return self._mark_scope(mark, check.require_integer(names, "the number", at_least=0))
        number = check.require_integer(value, "the number", at_least=0)
        for name in [names] if isinstance(names, str) else names:
            write_node_attribute(self._find_node(name), mark, number)
        return None

    def _read_mark(self, mark: str, names: Names | None) -> int:
        if names is not None:
            return self.getInt64NodeAttribute(mark, names)
        if mark not in self._marks:
            raise check.value_error(
                f"{_MARK_NAMES[mark]} not set in current scope",
                "ask inside `with builder.virtualGraph(0)`",
            )
        return self._marks[mark]

    @contextlib.contextmanager
    def _mark_scope(self, mark: str, value: object) -> Generator[None]:
        outer_marks = dict(self._marks)
        self._marks[mark] = value
        try:
            yield
        finally:
            self._marks = outer_marks

    def _read_node_attribute(self, name: str, names: Names, kind: int, type_name: str) -> Any:
        for attribute in self._find_node(names).attribute:
            if attribute.name == name:
                if attribute.type != kind:
                    raise PopARTError(f"Attribute {name} is not {type_name}.")
                return value_of_attribute(attribute)
        raise PopARTError(f"Node does not have an attribute {name}.")

    def _find_node(self, names: Names) -> onnx.NodeProto:
        output_names = {names} if isinstance(names, str) else set(names)
        for node in self._graph.node:
            if output_names and output_names <= set(node.output):
                return node
        raise PopARTError(
            f"Could not find a node with outputs {' ,'.join(sorted(output_names))}. Must specify "
            "all outputs of a node"
        )


def write_node_attribute(
    node: onnx.NodeProto, name: str, value: object, kind: int | None = None
) -> None:
    """Sets an attribute of a node, and replaces one of the same name."""
    if kind == AttributeProto.TENSOR:
        value = onnx.numpy_helper.from_array(np.asarray(value))
    elif isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    elif isinstance(value, enum.Enum):
        value = _attribute_value(value)
    if isinstance(value, bool | np.bool_):
        value = int(value)
    other_attributes = [a for a in node.attribute if a.name != name]
    attribute = onnx.helper.make_attribute(name, value, attr_type=kind)
    del node.attribute[:]
    node.attribute.extend([*other_attributes, attribute])


def _attribute_value(value: enum.Enum) -> Any:
    """Converts an enum member to an attribute's value: a number, or a text for reductions."""
    if isinstance(value, DataType):
        return value.onnx
    if not isinstance(value, ReductionType | ScatterReduction):
        return value.value
    name = "None" if value.name == "NoReduction" else value.name
    return name.lower() if isinstance(value, ScatterReduction) else name
