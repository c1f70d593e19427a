"""`Builder`: a graph of ONNX, node by node."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper

from ipujax.errors import PopARTError
from ipujax.frontends.onnx.model import Converted, converted
from ipujax.frontends.onnx.read import read
from ipujax.host import files
from ipujax.popart.builder.attributes import Attributes, write
from ipujax.popart.builder.graphcore import graphcore_operations
from ipujax.popart.builder.opsets import Opset, onnx_opset
from ipujax.popart.builder.signatures import Operation
from ipujax.popart.checks import as_popart_errors, check
from ipujax.popart.initializers import initializer
from ipujax.popart.tensor_info import TensorInfo, data_type_of

DEFAULT_OPSETS = {"ai.onnx": 10, "ai.graphcore": 1}
"""The versions of domains that a builder's models have, as in the original."""


class Builder(Attributes):
    """Builds a model for a session.

    Its `aiOnnx`, `aiOnnxOpset10` (or another number) and `aiGraphcore` add operators. The first
    node of ONNX's own decides which version the model has.

    Args:
      modelProtoOrFilename: a model to go on from, as bytes or a path.
      opsets: versions by domain, `{"ai.onnx": 11, "ai.graphcore": 1}`.

    Raises:
      PopARTError: (a `ValueError`) no model, or another domain.
    """

    def __init__(
        self,
        modelProtoOrFilename: bytes | str | None = None,
        opsets: Mapping[str, int] | None = None,
    ):
        for domain in opsets or {}:
            check.one_of(domain, DEFAULT_OPSETS, "a domain in opsets")
        self._opsets = {**DEFAULT_OPSETS, **(opsets or {})}
        self._graph = onnx.GraphProto(name="graph")
        self._outputs: list[str] = []
        self._known: Converted | None = None  # shapes, until the graph changes
        self._names: set[str] = set()
        self._scopes: list[str] = []
        self._marks: dict[str, Any] = {}
        self._parent: Builder | None = None
        self._declared: set[str] = set()  # inputs that are tensors of graphs around
        self._used: list[int] = []  # the version of ONNX, from the first node on
        if modelProtoOrFilename is not None:
            self._go_on(modelProtoOrFilename)

    @property
    def aiOnnx(self) -> Opset:
        """ONNX's operators, of the version that `opsets` names, or the model has."""
        return onnx_opset(self, self._opsets["ai.onnx"])

    @property
    def aiGraphcore(self) -> Opset:
        """Graphcore's own operators."""
        return Opset(self, self._opsets["ai.graphcore"], graphcore_operations())

    def __getattr__(self, name: str) -> Opset:
        number = name.removeprefix("aiOnnxOpset")
        if number == name or not number.isdecimal():
            raise AttributeError(f"Builder has no attribute {name!r}")
        return onnx_opset(self, int(number))

    @property
    def aiOnnxOpsetVersion(self) -> int:
        """The version of ONNX that the model has."""
        return self._used[0] if self._used else self._opsets["ai.onnx"]

    # --- graphs ---------------------------------------------------------------------------------

    def setGraphName(self, name: str) -> None:
        """Names the graph."""
        self._graph.name = check.text(name, "the name of a graph")

    def createSubgraphBuilder(self) -> Builder:
        """A builder of a graph for an operator of this one: `logical_if`, `loop`, `scan`, `call`.

        The operator takes the graph as it is when its node is added.
        """
        inner = Builder(opsets=self._opsets)
        inner._parent, inner._names, inner._used = self, self._names, self._used
        return inner

    # --- tensors --------------------------------------------------------------------------------

    def addInputTensor(self, tensorInfo: Any, *args: Any, **kwargs: Any) -> str:
        """Adds an input; gives its name.

        Called as `addInputTensor(tensorInfo, debugContext="")`, where anything that has a shape and
        a dtype is a `tensorInfo`, or as `addInputTensor("FLOAT", shape, debugContext="")`.

        Raises:
          PopARTError: (a `ValueError`) other arguments.
        """
        if isinstance(tensorInfo, str):
            args, kwargs = self._with_shape(tensorInfo, args, kwargs)
        elif isinstance(tensorInfo, TensorInfo):
            args = (tensorInfo, *args)
        else:
            args = (TensorInfo(tensorInfo), *args)
        return self._add_input(*args, **kwargs)

    def addUntypedInputTensor(self, debugContext: str = "") -> str:
        """Adds an input of an inner graph, whose form the graph around tells; gives its name.

        Raises:
          PopARTError: (a `ValueError`) this graph is not inside another.
        """
        if self._parent is None:
            raise check.refuse(
                "an input of the outermost graph has no type", "use addInputTensor(TensorInfo(...))"
            )
        name = self._unique(str(debugContext) or "input")
        self._graph.input.append(onnx.ValueInfoProto(name=name))
        return name

    def addInputTensorFromParentGraph(self, tensorId: str) -> None:
        """Has an inner graph use a tensor of one around it, under its name.

        For `aiGraphcore.call` it is an input like others, which a call may bind to another tensor.

        Raises:
          PopARTError: (a `ValueError`) there is no such tensor around it.
        """
        around = self._parent
        while around is not None:
            if tensorId in around._own_names():
                self._declared.add(tensorId)
                self._graph.input.append(onnx.ValueInfoProto(name=tensorId))
                return
            around = around._parent
        raise check.refuse(
            f"no graph around this one has a tensor {tensorId!r}", "add it there first"
        )

    def addInitializedInputTensor(self, initVal: Any, debugContext: str = "") -> str:
        """Adds a weight; gives its name."""
        name = self._unique(str(debugContext) or "init_input")
        self._graph.initializer.append(initializer(name, initVal))
        return name

    def addOutputTensor(self, outputName: str) -> None:
        """Makes a tensor an output of the graph."""
        self._outputs.append(check.text(outputName, "the name of an output"))

    def getInputTensorIds(self) -> list[str]:
        """The inputs, and then the weights."""
        return [*(i.name for i in self._graph.input), *(t.name for t in self._graph.initializer)]

    def getOutputTensorIds(self) -> list[str]:
        """The outputs."""
        return list(self._outputs)

    def getValueTensorIds(self) -> list[str]:
        """What the nodes give."""
        return [name for node in self._graph.node for name in node.output if name]

    def getTrainableTensorIds(self) -> list[str]:
        """The weights that a session trains: those of floating point."""
        kinds = {t.name: onnx.helper.tensor_dtype_to_np_dtype(t.data_type) for t in self._weights()}
        return [name for name, kind in kinds.items() if np.issubdtype(kind, np.floating)]

    def isInitializer(self, id: str) -> bool:
        """Whether a tensor is a weight."""
        return any(tensor.name == id for tensor in self._weights())

    def getTensorShape(self, id: str) -> list[int]:
        """The shape of a tensor.

        Raises:
          PopARTError: (a `ValueError`) there is none of that name, or the model is wrong.
        """
        return self._info(id).shape()

    def getTensorDtypeString(self, id: str) -> str:
        """The name of a tensor's dtype, such as `float32`; errors as `getTensorShape`."""
        return self._info(id).data_type_lcase()

    # --- models ---------------------------------------------------------------------------------

    def getModelProto(self) -> bytes:
        """The model, as the bytes of a file."""
        model = self._model()
        for name in self._outputs:
            info = self._info(name)
            model.graph.output.append(
                onnx.helper.make_tensor_value_info(name, info.data_type().onnx, info.shape())
            )
        return model.SerializeToString()

    def saveModelProto(self, filename: str | Path) -> None:
        """Writes the model to a file."""
        with files.replacing(filename) as file:
            file.write(self.getModelProto())

    # --- nodes ----------------------------------------------------------------------------------

    def add_node(self, operation: Operation, given: Mapping[str, Any], version: int) -> Any:
        """Adds a node of an operator; gives the name of its result, or their names.

        Args:
          operation: what it does.
          given: its parameters, by name.
          version: of its domain, that it is asked for.

        Raises:
          PopARTError: (a `ValueError`) another number of inputs, unknown tensors, or a version
            other than the nodes have.
        """
        asked = operation.request(given)
        self._check_inputs(operation, asked.inputs)
        if not operation.domain:
            self._use(version)
        base = "/".join([*self._scopes, asked.name or operation.operator])
        results = [self._unique(f"{base}:{number}") for number in range(asked.outputs)]
        scope = "/".join([*self._scopes, operation.operator]) if self._scopes else ""
        node = onnx.helper.make_node(
            operation.operator, asked.inputs, results, name=scope, domain=operation.domain
        )
        for name, value in {**asked.attributes, **self._marks}.items():
            if isinstance(value, Builder):
                value = value.inner_graph(captures=not operation.domain)
            if value is not None and not (isinstance(value, list | tuple) and not value):
                write(node, name, value, operation.kinds.get(name))
        self._graph.node.append(node)
        self._changed()
        return results[0] if operation.outputs == 1 else results

    def inner_graph(self, captures: bool) -> onnx.GraphProto:
        """The graph as an attribute of a node: its outputs are names alone.

        Args:
          captures: whether what it uses of the graphs around is no input, as ONNX has it.
        """
        graph = onnx.GraphProto()
        graph.CopyFrom(self._graph)
        left_out = self._declared if captures else ()
        del graph.input[:]
        graph.input.extend(i for i in self._graph.input if i.name not in left_out)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in self._outputs)
        return graph

    def reshape_const(
        self, aiOnnx: Opset, args: Sequence[str], shape: Iterable[int], debugContext: str = ""
    ) -> str:
        """Reshapes a tensor to a shape that is known now."""
        sizes = aiOnnx.constant(np.asarray(list(shape), np.int64), f"{debugContext}_const")
        return aiOnnx.reshape([args[0], sizes], debugContext=debugContext)

    def checkpointOutput(self, nodeOutputNames: Iterable[str]) -> list[str]:
        """Keeps tensors for the backward pass: gives for each a name of the same values.

        What a session computes again is decided by its options alone.
        """
        return [self.aiOnnx.identity([name]) for name in nodeOutputNames]

    @contextlib.contextmanager
    def nameScope(self, name: str) -> Generator[None]:
        """Names the nodes inside a `with` after it."""
        self._scopes.append(check.text(name, "the name of a scope"))
        try:
            yield
        finally:
            self._scopes.pop()

    # --- what there is not ----------------------------------------------------------------------

    def customOp(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: a custom operator of the original is compiled for an IPU."""
        raise check.refuse(
            "customOp: there are no compiled operators", "use those of builder.aiOnnx"
        )

    def embedReplicationFactor(self, replicationFactor: int) -> None:
        """Raises: a model has no replicas of its own."""
        raise check.refuse(
            f"embedReplicationFactor({replicationFactor}): a model does not hold it",
            "set SessionOptions.enableReplicatedGraphs and replicatedGraphCount",
        )

    def saveInitializersExternally(self, ids: Iterable[str], filename: str) -> None:
        """Raises: a builder's weights are in its model."""
        raise check.refuse(
            f"saveInitializersExternally({list(ids)}): weights are not written beside the model",
            "use saveModelProto, and onnx.save(..., save_as_external_data=True)",
        )

    # --- inside ---------------------------------------------------------------------------------

    def _go_on(self, source: bytes | str) -> None:
        with as_popart_errors():
            model = read(source, typed=False)
        self._graph.CopyFrom(model.graph)
        self._outputs = [output.name for output in model.graph.output]
        del self._graph.output[:]
        named = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
        self._opsets |= named
        self._used.append(self._opsets["ai.onnx"])
        self._names |= self._own_names()

    def _use(self, version: int) -> None:
        if not self._used:
            self._used.append(version)
        if self._used[0] != version:
            raise check.refuse(
                f"the graph has operators of version {self._used[0]} of ONNX, and is asked for one "
                f"of version {version}",
                f"use aiOnnxOpset{self._used[0]} everywhere",
            )

    def _check_inputs(self, operation: Operation, inputs: Sequence[str]) -> None:
        least, most = operation.inputs
        if not least <= len(inputs) <= most:
            raise PopARTError(
                f"{operation.operator} has invalid number of inputs {len(inputs)}. Must be between "
                f"{least} and {most}"
            )
        for name in inputs:
            if name and name not in self._names:
                raise PopARTError(
                    f"Unknown tensor {name!r} (input of {operation.operator})",
                    fix="give names that this builder has given",
                )

    def _with_shape(self, kind: str, args: Any, kwargs: dict[str, Any]) -> Any:
        more = dict(kwargs)
        shape = more.pop("shape", None) if not args else args[0]
        if shape is None:
            raise check.refuse("an input of a data type has no shape", "say addInputTensor(t, s)")
        return (TensorInfo(kind, shape), *args[1:]), more

    def _add_input(self, info: TensorInfo, debugContext: str = "") -> str:
        name = self._unique(str(debugContext) or "input")
        self._graph.input.append(
            onnx.helper.make_tensor_value_info(name, info.data_type().onnx, info.shape())
        )
        return name

    def _weights(self) -> Iterable[onnx.TensorProto]:
        return self._graph.initializer

    def _own_names(self) -> set[str]:
        return {*self.getInputTensorIds(), *self.getValueTensorIds()}

    def _model(self) -> onnx.ModelProto:
        versions = {**self._opsets, "ai.onnx": self.aiOnnxOpsetVersion}
        imports = [
            onnx.helper.make_opsetid("" if domain == "ai.onnx" else domain, version)
            for domain, version in versions.items()
        ]
        return onnx.helper.make_model(self._graph, opset_imports=imports)

    def _info(self, name: str) -> TensorInfo:
        if name not in self._own_names():
            raise PopARTError(
                f"Tensor {name!r} is not an input or output tensor. Must be one of "
                f"{sorted(self._own_names())}"
            )
        if self._parent is not None:
            raise check.refuse(
                f"the form of {name!r} follows from the graph around it", "ask that one's builder"
            )
        if self._known is None:
            with as_popart_errors():
                self._known = converted(self._model(), {}, {})
        known = self._known
        for values in (known.avals, known.variables, known.constants):
            if name in values:
                return TensorInfo(data_type_of(values[name].dtype), values[name].shape)
        raise check.refuse(f"nothing tells the form of {name!r}", "use it in an output")

    def _changed(self) -> None:
        self._known = None

    def _unique(self, name: str) -> str:
        number, found = 0, name
        while found in self._names:
            number += 1
            found = f"{name}/{number}"
        self._names.add(found)
        self._changed()
        return found
