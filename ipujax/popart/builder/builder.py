"""`Builder`: a graph of ONNX, node by node."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from ipujax.frontends.onnx.model import Converted, converted
from ipujax.popart.builder.opsets import Opset, onnx_opset
from ipujax.popart.builder.signatures import Operation
from ipujax.popart.checks import check
from ipujax.popart.placed import IPU, STAGE
from ipujax.popart.tensor_info import TensorInfo, data_type_of

DEFAULT_OPSETS = {"ai.onnx": 10, "ai.graphcore": 1}
"""The versions of domains that a builder's models have, as in the original."""


class Builder:
    """Builds a model for a session.

    Its `aiOnnx` and `aiGraphcore` add operators, of the versions that `opsets` names.

    Args:
      modelProtoOrFilename: a model to go on from, as bytes or a path.
      opsets: versions by domain, `{"ai.onnx": 11, "ai.graphcore": 1}`.
    """

    def __init__(
        self,
        modelProtoOrFilename: bytes | str | None = None,
        opsets: Mapping[str, int] | None = None,
    ):
        self._opsets = {**DEFAULT_OPSETS, **(opsets or {})}
        self._graph = onnx.GraphProto(name="graph")
        self._outputs: list[str] = []
        self._known: Converted | None = None  # shapes, until another node is added
        self._names: set[str] = set()
        self._scopes: list[str] = []
        self._marks: dict[str, Any] = {}
        self.aiOnnx: Opset = onnx_opset(self, self._opsets["ai.onnx"])

    # --- tensors --------------------------------------------------------------------------------

    def addInputTensor(self, info: TensorInfo, debugContext: str = "") -> str:
        """Adds an input; gives its name."""
        name = self._unique(debugContext or "input")
        self._graph.input.append(
            onnx.helper.make_tensor_value_info(name, info.data_type().onnx, info.shape())
        )
        return name

    def addInitializedInputTensor(self, initVal: Any, debugContext: str = "") -> str:
        """Adds a weight; gives its name."""
        name = self._unique(debugContext or "init_input")
        self._graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(initVal), name))
        return name

    def addOutputTensor(self, outputName: str) -> None:
        """Makes a tensor an output of the model."""
        self._outputs.append(check.text(outputName, "the name of an output"))

    def getTensorShape(self, id: str) -> list[int]:
        """The shape of a tensor.

        Raises:
          PopARTError: (a `ValueError`) there is none of that name.
        """
        return self._info(id).shape()

    def getTensorDtypeString(self, id: str) -> str:
        """The name of a tensor's dtype, such as `float32`; errors as `getTensorShape`."""
        return self._info(id).data_type_lcase()

    def getModelProto(self) -> bytes:
        """The model, as the bytes of a file."""
        model = self._model()
        for name in self._outputs:
            info = self._info(name)
            model.graph.output.append(
                onnx.helper.make_tensor_value_info(name, info.data_type().onnx, info.shape())
            )
        return model.SerializeToString()

    def _model(self) -> onnx.ModelProto:
        imports = [
            onnx.helper.make_opsetid("" if domain == "ai.onnx" else domain, version)
            for domain, version in self._opsets.items()
        ]
        return onnx.helper.make_model(self._graph, opset_imports=imports)

    def _info(self, name: str) -> TensorInfo:
        if self._known is None:
            self._known = converted(self._model(), {}, {})
        for values in (self._known.avals, self._known.constants):
            if name in values:
                return TensorInfo(data_type_of(values[name].dtype), values[name].shape)
        raise check.refuse(f"there is no tensor {name!r}", "name an input, or a result of a node")

    # --- nodes ----------------------------------------------------------------------------------

    def add_node(self, operation: Operation, given: Mapping[str, Any]) -> Any:
        """Adds a node of an operator; gives the name of its result, or their names.

        Args:
          operation: what it does.
          given: its parameters, by name.
        """
        context = given["debugContext"]
        count = operation.outputs if operation.outputs is not None else given["num_outputs"]
        base = "/".join([*self._scopes, str(context) if context else operation.operator])
        results = [self._unique(f"{base}:{number}") for number in range(count)]
        attributes = {
            name: value
            for name in operation.attributes
            if (value := given[name]) is not None and not (isinstance(value, list) and not value)
        }
        node = onnx.helper.make_node(
            operation.operator,
            list(given.get("args", ())),
            results,
            name="/".join([*self._scopes, operation.operator]) if self._scopes else "",
            domain=operation.domain,
        )
        for name, value in attributes.items():
            self._mark(node, name, value)
        self._graph.node.append(node)
        for name, value in self._marks.items():
            self._mark(node, name, value)
        return results[0] if operation.outputs == 1 else results

    def virtualGraph(self, nodeOutputNames: Any, value: int | None = None) -> Any:
        """Puts the node that gives a tensor on an IPU; with a number alone, those of a `with`."""
        return self._placed(IPU, nodeOutputNames, value)

    def pipelineStage(self, nodeOutputNames: Any, value: int | None = None) -> Any:
        """Puts the node that gives a tensor into a stage; a number alone as for `virtualGraph`."""
        return self._placed(STAGE, nodeOutputNames, value)

    @contextlib.contextmanager
    def nameScope(self, name: str) -> Generator[None]:
        """Names the nodes inside a `with` after it."""
        self._scopes.append(check.text(name, "the name of a scope"))
        try:
            yield
        finally:
            self._scopes.pop()

    def _placed(self, mark: str, names: Any, value: int | None) -> Any:
        if value is None:
            return self._marked(mark, check.integer(names, "the number", at_least=0))
        for name in [names] if isinstance(names, str) else names:
            self._mark(self._maker(name), mark, check.integer(value, "the number", at_least=0))
        return None

    @contextlib.contextmanager
    def _marked(self, mark: str, value: Any) -> Generator[None]:
        before = dict(self._marks)
        self._marks[mark] = value
        try:
            yield
        finally:
            self._marks = before

    def _mark(self, node: onnx.NodeProto, name: str, value: Any) -> None:
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])

    def _maker(self, name: str) -> onnx.NodeProto:
        for node in self._graph.node:
            if name in node.output:
                return node
        raise check.refuse(f"no node gives {name!r}", "name a result of a node")

    def _unique(self, name: str) -> str:
        number, found = 0, name
        while found in self._names:
            number += 1
            found = f"{name}/{number}"
        self._names.add(found)
        self._known = None
        return found
