"""The class `GraphTransformer`: changes data types and initializers of an ONNX model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from onnx import TensorProto

from ipujax.doors.onnx import read_onnx_model
from ipujax.ground import PopARTError
from ipujax.popart.popart_checks import check, convert_frontend_errors

_MOVING_STATISTICS = ("mean", "var", "saved_mean", "saved_var")


@check.guard
class GraphTransformer:
    """A converter of an ONNX model's data types and initializers; see `getModelProto`.

    A conversion of types changes inputs, outputs, initializers and arrays in attributes.

    Args:
      modelProtoOrFilename: the model, as bytes or a path.

    Raises:
      PopARTError: (a `ValueError`) the argument is no model.
    """

    def __init__(self, modelProtoOrFilename: bytes | str | os.PathLike[str]):
        with convert_frontend_errors():
            self._model = read_onnx_model(modelProtoOrFilename, check_types=False)

    def getModelProto(self) -> bytes:
        """Returns the converted model as the bytes of a file."""
        return self._model.SerializeToString()

    # --- types ----------------------------------------------------------------------------------

    def convertFloatsToHalfs(self) -> None:
        """Converts FLOAT to FLOAT16."""
        self._convert_type(TensorProto.FLOAT, TensorProto.FLOAT16)

    def convertUINT8ToINT32(self) -> None:
        """Converts UINT8 to INT32."""
        self._convert_type(TensorProto.UINT8, TensorProto.INT32)

    def convertUINT16ToINT32(self) -> None:
        """Converts UINT16 to INT32."""
        self._convert_type(TensorProto.UINT16, TensorProto.INT32)

    def convertINT8ToINT32(self) -> None:
        """Converts INT8 to INT32."""
        self._convert_type(TensorProto.INT8, TensorProto.INT32)

    def convertINT16ToINT32(self) -> None:
        """Converts INT16 to INT32."""
        self._convert_type(TensorProto.INT16, TensorProto.INT32)

    def convertINT64ToINT32(self, clip: bool = False) -> None:
        """Converts INT64 to INT32.

        Args:
          clip: whether larger values become the largest that there are.

        Raises:
          PopARTError: (a `ValueError`) there are larger values, which are not to be clipped.
        """
        self._convert_type(
            TensorProto.INT64, TensorProto.INT32, clip=check.require_flag(clip, "clip")
        )

    def convertDoublesToFloats(self) -> None:
        """Converts DOUBLE to FLOAT."""
        self._convert_type(TensorProto.DOUBLE, TensorProto.FLOAT)

    def convertDoublesToHalfs(self) -> None:
        """Converts DOUBLE to FLOAT16."""
        self._convert_type(TensorProto.DOUBLE, TensorProto.FLOAT16)

    def convertBFloats16ToFloat32(self) -> None:
        """Converts BFLOAT16 to FLOAT."""
        self._convert_type(TensorProto.BFLOAT16, TensorProto.FLOAT)

    # --- nodes ----------------------------------------------------------------------------------

    def convertInitializersToConstants(self, ids: Iterable[str]) -> None:
        """Replaces initializers by nodes `Constant`.

        Raises:
          PopARTError: (a `ValueError`) there is no such initializer.
        """
        initializers_by_name = {tensor.name: tensor for tensor in self._model.graph.initializer}
        names = list(ids)
        for name in names:
            if name not in initializers_by_name:
                raise PopARTError(f"TensorId {name} not in the model initalizers")
        graph = self._model.graph
        nodes = [
            onnx.helper.make_node("Constant", [], [n], value=initializers_by_name[n]) for n in names
        ]
        nodes += graph.node
        initializers = [t for t in graph.initializer if t.name not in names]
        inputs = [i for i in graph.input if i.name not in names]
        for field in ("node", "initializer", "input"):
            graph.ClearField(field)
        graph.node.extend(nodes)
        graph.initializer.extend(initializers)
        graph.input.extend(inputs)

    def convertAllFixedPointInitializersToConstants(self) -> None:
        """Replaces all initializers of integer types by nodes `Constant`."""
        kinds = {
            tensor.name: onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            for tensor in self._model.graph.initializer
        }
        self.convertInitializersToConstants(n for n, kind in kinds.items() if kind.kind in "iu")

    def removeUnusedInputs(self) -> None:
        """Removes inputs that no node reads."""
        graph = self._model.graph
        used = {name for node in graph.node for name in node.input}
        inputs = [i for i in graph.input if i.name in used]
        graph.ClearField("input")
        graph.input.extend(inputs)

    def prepareNodesForTraining(self) -> None:
        """Makes batch normalization return its moving statistics, so that training updates them."""
        for node in self._model.graph.node:
            if node.op_type == "BatchNormalization" and len(node.output) == 1:
                node.output.extend(f"{node.output[0]}/{name}" for name in _MOVING_STATISTICS)

    # --- internals ------------------------------------------------------------------------------

    def _convert_type(self, old: int, new: int, *, clip: bool = False) -> None:
        for graph in _walk_graphs(self._model.graph):
            attributes = (a for node in graph.node for a in node.attribute)
            for tensor in (*graph.initializer, *(a.t for a in attributes if a.HasField("t"))):
                if tensor.data_type == old:
                    tensor.CopyFrom(_convert_tensor(tensor, new, clip))
            for info in (*graph.input, *graph.output, *graph.value_info):
                if info.type.tensor_type.elem_type == old:
                    info.type.tensor_type.elem_type = new


def _walk_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yields a graph, and the graphs nested in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _walk_graphs(attribute.g)


def _convert_tensor(tensor: TensorProto, kind: int, clip: bool) -> TensorProto:
    values = onnx.numpy_helper.to_array(tensor)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    if values.dtype == np.int64:
        limits = np.iinfo(np.int32)
        clipped = values.clip(limits.min, limits.max)
        if not clip and not np.array_equal(clipped, values):
            raise check.value_error(
                f"the tensor {tensor.name!r} has values that INT32 has not",
                "say convertINT64ToINT32(clip=True)",
            )
        values = clipped
    return onnx.numpy_helper.from_array(values.astype(dtype), tensor.name)
