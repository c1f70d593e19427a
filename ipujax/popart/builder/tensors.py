"""Tensors of a graph that is built: inputs, weights, outputs, and what is known of them."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import onnx.helper

from ipujax.popart.checks import check
from ipujax.popart.debug import Context, path_of
from ipujax.popart.initializers import initializer
from ipujax.popart.inputs import input_of
from ipujax.popart.options.kinds import ReplicatedStreamMode
from ipujax.popart.tensor_info import TensorInfo
from ipujax.popart.variables import VariableSettings


class Tensors(abc.ABC):
    """The tensors of a graph, by their names."""

    _graph: onnx.GraphProto
    _outputs: list[str]
    _parent: Tensors | None
    _declared: set[str]
    _broadcast: set[str]

    def addInputTensor(self, *args: Any, **kwargs: Any) -> str:
        """Adds an input; gives its name.

        Called as `addInputTensor(tensorInfo, settings=InputSettings(), debugContext="")`, where
        anything that has a shape and a dtype is a `tensorInfo`, and the settings can be left out,
        or as `addInputTensor("FLOAT", shape, settings=InputSettings(), debugContext="")`.

        Raises:
          PopARTError: (a `ValueError`) other arguments.
        """
        info, settings, context = input_of(*args, **kwargs)
        name = self._unique(path_of(context) or "input")
        self._graph.input.append(
            onnx.helper.make_tensor_value_info(name, info.data_type().onnx, info.shape())
        )
        if settings.replicatedStreamMode() is ReplicatedStreamMode.Broadcast:
            self._broadcast.add(name)
        return name

    def addUntypedInputTensor(self, debugContext: Context = "") -> str:
        """Adds an input of an inner graph, whose form the graph around tells; gives its name.

        Raises:
          PopARTError: (a `ValueError`) this graph is not inside another.
        """
        if self._parent is None:
            raise check.refuse(
                "Can not add untyped tensors to the top-level graph.",
                "use addInputTensor(TensorInfo(...))",
            )
        name = self._unique(path_of(debugContext) or "input")
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

    def addInitializedInputTensor(
        self,
        initVal: Any,
        variableSettings: VariableSettings | Context = "",
        debugContext: Context = "",
    ) -> str:
        """Adds a weight; gives its name.

        Args:
          initVal: its values.
          variableSettings: how replicas share it, which is the default alone; can be left out.
          debugContext: what it is called.

        Raises:
          PopARTError: (a `ValueError`) replicas that do not share it.
        """
        if not isinstance(variableSettings, VariableSettings):
            variableSettings, debugContext = VariableSettings(), variableSettings or debugContext
        variableSettings.check()
        name = self._unique(path_of(debugContext) or "init_input")
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

    # --- inside ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def _unique(self, name: str) -> str:
        """A name of the scopes around that no tensor has yet."""

    @abc.abstractmethod
    def _info(self, name: str) -> TensorInfo:
        """Type and shape of a tensor."""

    def _shape_of(self, name: str) -> list[int] | None:
        """The shape of an input or a weight; None of anything else."""
        for tensor in self._graph.initializer:
            if tensor.name == name:
                return list(tensor.dims)
        for info in self._graph.input:
            if info.name == name and info.type.tensor_type.HasField("shape"):
                sizes = info.type.tensor_type.shape.dim
                is_known = all(size.HasField("dim_value") for size in sizes)
                return [size.dim_value for size in sizes] if is_known else None
        return None

    def _weights(self) -> Iterable[onnx.TensorProto]:
        return self._graph.initializer

    def _own_names(self) -> set[str]:
        return {*self.getInputTensorIds(), *self.getValueTensorIds()}
