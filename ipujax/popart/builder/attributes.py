"""Attributes of nodes: what a user reads and writes, of the operators and of where they run."""

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

from ipujax.errors import PopARTError
from ipujax.frontends.onnx.nodes import value_of
from ipujax.popart.checks import check
from ipujax.popart.options.kinds import RecomputeType, ReductionType, ScatterReduction
from ipujax.popart.placed import IPU, STAGE
from ipujax.popart.recomputation import RECOMPUTE
from ipujax.popart.tensor_info import DataType

Names = str | Iterable[str]

PHASE = "__execution_phase"
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

_PLACES = {IPU: "Virtual graph", STAGE: "Pipeline stage", PHASE: "Execution phase"}
_SERIALIZING = ("input_channels", "reducing_dim", "output_channels", "none")


class Attributes(abc.ABC):
    """Attributes of the nodes of a graph; a node is told by the names of all its results.

    Virtual graphs and pipeline stages say where a node runs. What says how the original scheduled,
    planned or outlined nodes is kept in the model and changes nothing here: execution phases,
    recomputation, partials, memory, dithering, patterns, in-place preferences and priorities.
    """

    _graph: onnx.GraphProto
    _marks: dict[str, Any]

    # --- any attribute --------------------------------------------------------------------------

    def addNodeAttribute(
        self, attributeName: str, attributeValue: Any, nodeOutputNames: Names
    ) -> None:
        """Adds an attribute: a number, a text, or a list of them.

        Raises:
          PopARTError: (a `ValueError`) there is no such node, or it has that attribute.
        """
        node = self._node_of(nodeOutputNames)
        if any(a.name == attributeName for a in node.attribute):
            raise PopARTError(f"Node already has attribute {attributeName}.")
        write(node, attributeName, attributeValue)
        self._changed()

    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> None:
        """Removes an attribute; errors as for `addNodeAttribute`."""
        node = self._node_of(nodeOutputNames)
        kept = [a for a in node.attribute if a.name != attributeName]
        if len(kept) == len(node.attribute):
            raise PopARTError(f"Cannot remove attribute {attributeName} as it does not exist.")
        del node.attribute[:]
        node.attribute.extend(kept)
        self._changed()

    def nodeHasAttribute(self, attributeName: str, nodeOutputNames: Names) -> bool:
        """Whether a node has an attribute."""
        return attributeName in self.getAllNodeAttributeNames(nodeOutputNames)

    def getAllNodeAttributeNames(self, nodeOutputNames: Names) -> list[str]:
        """The names of a node's attributes."""
        return [a.name for a in self._node_of(nodeOutputNames).attribute]

    def getInt64NodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> int:
        """An integer; errors as for `addNodeAttribute`, or another type."""
        return self._read(attributeName, nodeOutputNames, AttributeProto.INT, "an integer")

    def getInt64VectorNodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> list[int]:
        """Integers."""
        return self._read(attributeName, nodeOutputNames, AttributeProto.INTS, "an integer vector")

    def getFloatNodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> float:
        """A number."""
        return self._read(attributeName, nodeOutputNames, AttributeProto.FLOAT, "a float")

    def getFloatVectorNodeAttribute(
        self, attributeName: str, nodeOutputNames: Names
    ) -> list[float]:
        """Numbers."""
        return self._read(attributeName, nodeOutputNames, AttributeProto.FLOATS, "a float vector")

    def getStringNodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> str:
        """A text."""
        return self._read(attributeName, nodeOutputNames, AttributeProto.STRING, "a string")

    def getStringVectorNodeAttribute(self, attributeName: str, nodeOutputNames: Names) -> list[str]:
        """Texts."""
        return self._read(attributeName, nodeOutputNames, AttributeProto.STRINGS, "a string vector")

    # --- where nodes run ------------------------------------------------------------------------

    def virtualGraph(self, nodeOutputNames: Any, value: int | None = None) -> Any:
        """Puts the node that gives a tensor on an IPU; with a number alone, those of a `with`."""
        return self._placed(IPU, nodeOutputNames, value)

    def pipelineStage(self, nodeOutputNames: Any, value: int | None = None) -> Any:
        """Puts the node that gives a tensor into a stage; a number alone as for `virtualGraph`."""
        return self._placed(STAGE, nodeOutputNames, value)

    def executionPhase(self, nodeOutputNames: Any = 0, value: int | None = None) -> Any:
        """As `virtualGraph`, of a phase; it changes nothing here."""
        return self._placed(PHASE, nodeOutputNames, value)

    def getVirtualGraph(self, nodeOutputNames: Names | None = None) -> int:
        """The IPU of a node, or of the `with` around."""
        return self._place(IPU, nodeOutputNames)

    def getPipelineStage(self) -> int:
        """The stage of the `with` around."""
        return self._place(STAGE, None)

    def getExecutionPhase(self) -> int:
        """The phase of the `with` around."""
        return self._place(PHASE, None)

    def hasVirtualGraph(self) -> bool:
        """Whether a `with` around says an IPU."""
        return IPU in self._marks

    def hasPipelineStage(self) -> bool:
        """Whether a `with` around says a stage."""
        return STAGE in self._marks

    def hasExecutionPhase(self) -> bool:
        """Whether a `with` around says a phase."""
        return PHASE in self._marks

    def commGroup(self, type: int = 0, groupSize: int = 0) -> Any:
        """Says for a `with` which replicas the collectives of its nodes are over.

        Args:
          type: the number of a `CommGroupType`, or one.
          groupSize: how many replicas are in a group; for all of them it does not count.
        """
        number = type.value if isinstance(type, enum.Enum) else type
        return self._marked(GROUP, [check.integer(number, "type"), groupSize])

    # --- kept, and without effect ---------------------------------------------------------------

    def recomputeOutput(self, nodeOutputNames: Any, value: RecomputeType | None = None) -> Any:
        """Says whether the backward pass has a node computed again; of a `with` by value alone.

        `RecomputeType.Recompute` is that; `Checkpoint` is kept where
        `SessionOptions.autoRecomputation` has others computed again.
        """
        if isinstance(nodeOutputNames, RecomputeType):
            return self._marked(RECOMPUTE, nodeOutputNames.value)
        return self.recomputeOutputInBackwardPass(
            nodeOutputNames, RecomputeType.Undefined if value is None else value
        )

    def recomputeOutputInBackwardPass(
        self, nodeOutputName: Names, value: RecomputeType = RecomputeType.Recompute
    ) -> None:
        """As `recomputeOutput`."""
        self._keep(nodeOutputName, {RECOMPUTE: RecomputeType(value).value})

    def getRecomputeOutputInBackwardPass(self, nodeOutputName: Names) -> bool:
        """Whether it is said of a node that it is computed again."""
        node = self._node_of(nodeOutputName)
        return any(a.name == RECOMPUTE and bool(a.i) for a in node.attribute)

    def setPartialsType(self, nodeOutputName: Names, partialsType: str) -> None:
        """Says in which type a product is summed up; it changes nothing here.

        Raises:
          PopARTError: (a `ValueError`) the node is neither a `Conv` nor a `MatMul`.
        """
        kind = self._node_of(nodeOutputName).op_type
        if kind not in ("Conv", "MatMul"):
            raise PopARTError(
                "Builder::setPartialsType should only be called on operators: Conv, MatMul; but "
                f"was given: {kind}"
            )
        self._keep(nodeOutputName, {PARTIALS: partialsType})

    def getPartialsType(self, nodeOutputName: Names) -> str:
        """What `setPartialsType` has said; `FLOAT` if nothing."""
        if not self.nodeHasAttribute(PARTIALS, nodeOutputName):
            return "FLOAT"
        return self.getStringNodeAttribute(PARTIALS, nodeOutputName)

    def setAvailableMemoryProportion(
        self, nodeOutputName: Names, availableMemoryProportion: float
    ) -> None:
        """Says how much memory a node may take; it changes nothing here.

        Raises:
          PopARTError: (a `ValueError`) it is not in (0, 1].
        """
        if not 0 < availableMemoryProportion <= 1:
            raise PopARTError("availableMemoryProportion must be in (0,1]")
        self._keep(nodeOutputName, {MEMORY: float(availableMemoryProportion)})

    def setEnableConvDithering(self, nodeOutputName: Names, enableConvDithering: int) -> None:
        """Says whether a convolution is spread over tiles at random; it changes nothing here.

        Raises:
          PopARTError: (a `ValueError`) the node is no `Conv`, or the value neither 0 nor 1.
        """
        if enableConvDithering not in (0, 1):
            raise PopARTError("enableConvDithering must be a bool value")
        kind = self._node_of(nodeOutputName).op_type
        if kind != "Conv":
            raise PopARTError(
                "Builder::setEnableConvDithering should only be called on convolutions but was "
                f"given: {kind}"
            )
        self._keep(nodeOutputName, {DITHERING: int(enableConvDithering)})

    def setSerializeMatMul(
        self, nodeOutputName: Names, mode: str, factor: int = 0, keep_precision: bool = False
    ) -> None:
        """Says how a product is cut into several one after another; it changes nothing here.

        Raises:
          PopARTError: (a `ValueError`) another mode, or the node is no `MatMul`.
        """
        check.one_of(mode, _SERIALIZING, "the mode of setSerializeMatMul")
        kind = self._node_of(nodeOutputName).op_type
        if kind != "MatMul":
            raise PopARTError(
                f"Builder::setSerializeMatMul should only be called on MatMul, but was given {kind}"
            )
        said = {"mode": mode, "factor": factor, "precision": int(keep_precision)}
        if mode != "none":
            self._keep(nodeOutputName, {SERIALIZE + name: value for name, value in said.items()})

    def setInplacePreferences(self, nodeOutputName: Names, prefs: Mapping[str, float]) -> None:
        """Says which forms of a node work in place; it changes nothing here."""
        priorities = [float(value) for value in prefs.values()]
        self._keep(
            nodeOutputName, {INPLACE + "names": list(prefs), INPLACE + "priorities": priorities}
        )

    def excludePatterns(self, nodeOutputName: Names, patternNames: Sequence[str]) -> None:
        """Says which patterns leave a node alone; it changes nothing here."""
        self._keep(nodeOutputName, {PATTERNS: list(patternNames)})

    def schedulePriority(self, value: float) -> Any:
        """Says for a `with` how early its nodes run; it changes nothing here."""
        return self._marked(PRIORITY, float(value))

    def outlineAttributes(self, attributes: Mapping[str, Any]) -> Any:
        """Says for a `with` which nodes may be outlined together; it changes nothing here."""
        return self._marked(OUTLINE, [str(t) for pair in attributes.items() for t in pair])

    # --- inside ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def _changed(self) -> None:
        """Forgets what was known of the graph."""

    def _keep(self, names: Names, said: Mapping[str, Any]) -> None:
        node = self._node_of(names)
        for name, value in said.items():
            write(node, name, value)

    def _placed(self, mark: str, names: Any, value: int | None) -> Any:
        if value is None:
            return self._marked(mark, check.integer(names, "the number", at_least=0))
        number = check.integer(value, "the number", at_least=0)
        for name in [names] if isinstance(names, str) else names:
            write(self._node_of(name), mark, number)
        return None

    def _place(self, mark: str, names: Names | None) -> int:
        if names is not None:
            return self.getInt64NodeAttribute(mark, names)
        if mark not in self._marks:
            raise check.refuse(
                f"{_PLACES[mark]} not set in current scope",
                "ask inside `with builder.virtualGraph(0)`",
            )
        return self._marks[mark]

    @contextlib.contextmanager
    def _marked(self, mark: str, value: Any) -> Generator[None]:
        before = dict(self._marks)
        self._marks[mark] = value
        try:
            yield
        finally:
            self._marks = before

    def _read(self, name: str, names: Names, kind: int, what: str) -> Any:
        for attribute in self._node_of(names).attribute:
            if attribute.name == name:
                if attribute.type != kind:
                    raise PopARTError(f"Attribute {name} is not {what}.")
                return value_of(attribute)
        raise PopARTError(f"Node does not have an attribute {name}.")

    def _node_of(self, names: Names) -> onnx.NodeProto:
        wanted = {names} if isinstance(names, str) else set(names)
        for node in self._graph.node:
            if wanted and wanted <= set(node.output):
                return node
        raise PopARTError(
            f"Could not find a node with outputs {' ,'.join(sorted(wanted))}. Must specify all "
            "outputs of a node"
        )


def write(node: onnx.NodeProto, name: str, value: Any, kind: int | None = None) -> None:
    """Sets an attribute of a node, in the place of one of that name."""
    if kind == AttributeProto.TENSOR:
        value = onnx.numpy_helper.from_array(np.asarray(value))
    elif isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    elif isinstance(value, enum.Enum):
        value = _written(value)
    if isinstance(value, bool | np.bool_):
        value = int(value)
    kept = [a for a in node.attribute if a.name != name]
    attribute = onnx.helper.make_attribute(name, value, attr_type=kind)
    del node.attribute[:]
    node.attribute.extend([*kept, attribute])


def _written(value: enum.Enum) -> Any:
    """How a node has a kind of something: by its number, but for reductions and data types."""
    if isinstance(value, DataType):
        return value.onnx
    if not isinstance(value, ReductionType | ScatterReduction):
        return value.value
    name = "None" if value.name == "NoReduction" else value.name
    return name.lower() if isinstance(value, ScatterReduction) else name
