"""The tensors of a graph that is being built: inputs, weights, outputs, types and shapes."""

from __future__ import annotations

import abc
from collections.abc import Iterable

import numpy as np
import onnx
import onnx.helper

from ipujax.popart.debug import Context, context_path
from ipujax.popart.initializers import make_initializer
from ipujax.popart.options.option_kinds import ReplicatedStreamMode
from ipujax.popart.popart_checks import check
from ipujax.popart.popart_variables import VariableSettings
from ipujax.popart.step_inputs import parse_input_arguments
from ipujax.popart.tensor_info import TensorInfo


class Tensors(abc.ABC):
    """A base class of builders: the tensors of a graph, by their names."""

    _graph: onnx.GraphProto
    _outputs: list[str]
    _parent: Tensors | None
    _declared: set[str]
    _broadcast: set[str]

    def addInputTensor(self, *args: object, **kwargs: object) -> str:
        """Adds an input, and returns its name.

        Called as `addInputTensor(tensorInfo, settings=InputSettings(), debugContext="")`, where
        anything that has a shape and a dtype is a `tensorInfo`, and the settings can be left out,
        or as `addInputTensor("FLOAT", shape, settings=InputSettings(), debugContext="")`.

        Raises:
          PopARTError: (a `ValueError`) other arguments.
        """
        info, settings, context = parse_input_arguments(*args, **kwargs)
        name = self._make_unique_name(context_path(context) or "input")
        self._graph.input.append(
            onnx.helper.make_tensor_value_info(name, info.data_type().onnx, info.shape())
        )
        if settings.replicatedStreamMode() is ReplicatedStreamMode.Broadcast:
            self._broadcast.add(name)
        return name

    def addUntypedInputTensor(self, debugContext: Context = "") -> str:
        """Adds an input of an inner graph, whose shape the outer graph gives; returns its name.

        Raises:
          PopARTError: (a `ValueError`) this graph is not inside another.
        """
        if self._parent is None:
            raise check.value_error(
                "Can not add untyped tensors to the top-level graph.",
                "use addInputTensor(TensorInfo(...))",
            )
        name = self._make_unique_name(context_path(debugContext) or "input")
        self._graph.input.append(onnx.ValueInfoProto(name=name))
        return name

    def addInputTensorFromParentGraph(self, tensorId: str) -> None:
        """Makes a tensor of an outer graph an input of an inner graph, under the same name.

        For `aiGraphcore.call` it is an input like others, which a call may bind to another tensor.

        Raises:
          PopARTError: (a `ValueError`) no outer graph has such a tensor.
        """
        outer_graph = self._parent
        while outer_graph is not None:
            if tensorId in outer_graph._list_tensor_names():
                self._declared.add(tensorId)
                self._graph.input.append(onnx.ValueInfoProto(name=tensorId))
                return
            outer_graph = outer_graph._parent
        raise check.value_error(f"no outer graph has a tensor {tensorId!r}", "add it there first")

    def addInitializedInputTensor(
        self,
        initVal: object,
        variableSettings: VariableSettings | Context = "",
        debugContext: Context = "",
    ) -> str:
        """Adds a weight, and returns its name.

        Args:
          initVal: the weight's values.
          variableSettings: how replicas share it; only the default is supported; can be left out.
          debugContext: the name of the weight.

        Raises:
          PopARTError: (a `ValueError`) replicas that do not share it.
        """
        if not isinstance(variableSettings, VariableSettings):
            variableSettings, debugContext = VariableSettings(), variableSettings or debugContext
        variableSettings.check_all_share()
        name = self._make_unique_name(context_path(debugContext) or "init_input")
        self._graph.initializer.append(make_initializer(name, initVal))
        return name

    def addOutputTensor(self, outputName: str) -> None:
        """Makes a tensor an output of the graph."""
        self._outputs.append(check.require_text(outputName, "the name of an output"))

    def getInputTensorIds(self) -> list[str]:
        """Returns the names of the inputs, and then of the weights."""
        return [*(i.name for i in self._graph.input), *(t.name for t in self._graph.initializer)]

    def getOutputTensorIds(self) -> list[str]:
        """Returns the names of the outputs."""
        return list(self._outputs)

    def getValueTensorIds(self) -> list[str]:
        """Returns the names of all results of nodes."""
        return [name for node in self._graph.node for name in node.output if name]

    def getTrainableTensorIds(self) -> list[str]:
        """Returns the names of the weights that a session trains: those of floating point."""
        kinds = {
            t.name: onnx.helper.tensor_dtype_to_np_dtype(t.data_type)
            for t in self._iterate_weights()
        }
        return [name for name, kind in kinds.items() if np.issubdtype(kind, np.floating)]

    def isInitializer(self, id: str) -> bool:
        """Returns whether a tensor is a weight."""
        return any(tensor.name == id for tensor in self._iterate_weights())

    def getTensorShape(self, id: str) -> list[int]:
        """Returns the shape of a tensor.

        Raises:
          PopARTError: (a `ValueError`) there is no tensor of that name, or the model is invalid.
        """
        return self._infer_info(id).shape()

    def getTensorDtypeString(self, id: str) -> str:
        """Returns the name of a tensor's dtype, such as `float32`; errors as `getTensorShape`."""
        return self._infer_info(id).data_type_lcase()

    # --- internals ------------------------------------------------------------------------------

    @abc.abstractmethod
    def _make_unique_name(self, name: str) -> str:
        """Makes a name, with the enclosing scopes in front, that no tensor has yet."""

    @abc.abstractmethod
    def _infer_info(self, name: str) -> TensorInfo:
        """Infers the data type and the shape of a tensor."""

    def _find_declared_shape(self, name: str) -> list[int] | None:
        """Returns the shape of an input or a weight; None for other tensors."""
        for tensor in self._graph.initializer:
            if tensor.name == name:
                return list(tensor.dims)
        for info in self._graph.input:
            if info.name == name and info.type.tensor_type.HasField("shape"):
                sizes = info.type.tensor_type.shape.dim
                is_known = all(size.HasField("dim_value") for size in sizes)
                return [size.dim_value for size in sizes] if is_known else None
        return None

    def _iterate_weights(self) -> Iterable[onnx.TensorProto]:
        return self._graph.initializer

    def _list_tensor_names(self) -> set[str]:
        return {*self.getInputTensorIds(), *self.getValueTensorIds()}
