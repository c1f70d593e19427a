"""`GraphTransformer`: an ONNX model with other types, or with constants for initializers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from onnx import TensorProto

from ipujax.errors import PopARTError
from ipujax.frontends.onnx.read import read
from ipujax.popart.checks import as_popart_errors, check

_MOVING = ("mean", "var", "saved_mean", "saved_var")


@check.guard
class GraphTransformer:
    """Changes a model; the changed one is `getModelProto`'s.

    Where types change, so do those of inputs, outputs, initializers and arrays in attributes.

    Args:
      modelProtoOrFilename: the model, as bytes or a path.

    Raises:
      PopARTError: (a `ValueError`) no model.
    """

    def __init__(self, modelProtoOrFilename: bytes | str | os.PathLike[str]):
        with as_popart_errors():
            self._model = read(modelProtoOrFilename, typed=False)

    def getModelProto(self) -> bytes:
        """The model, as the bytes of a file."""
        return self._model.SerializeToString()

    # --- types ----------------------------------------------------------------------------------

    def convertFloatsToHalfs(self) -> None:
        """Has FLOAT16 in the place of FLOAT."""
        self._convert(TensorProto.FLOAT, TensorProto.FLOAT16)

    def convertUINT8ToINT32(self) -> None:
        """Has INT32 in the place of UINT8."""
        self._convert(TensorProto.UINT8, TensorProto.INT32)

    def convertUINT16ToINT32(self) -> None:
        """Has INT32 in the place of UINT16."""
        self._convert(TensorProto.UINT16, TensorProto.INT32)

    def convertINT8ToINT32(self) -> None:
        """Has INT32 in the place of INT8."""
        self._convert(TensorProto.INT8, TensorProto.INT32)

    def convertINT16ToINT32(self) -> None:
        """Has INT32 in the place of INT16."""
        self._convert(TensorProto.INT16, TensorProto.INT32)

    def convertINT64ToINT32(self, clip: bool = False) -> None:
        """Has INT32 in the place of INT64.

        Args:
          clip: whether larger values become the largest that there are.

        Raises:
          PopARTError: (a `ValueError`) there are larger values, which are not to be clipped.
        """
        self._convert(TensorProto.INT64, TensorProto.INT32, clip=check.flag(clip, "clip"))

    def convertDoublesToFloats(self) -> None:
        """Has FLOAT in the place of DOUBLE."""
        self._convert(TensorProto.DOUBLE, TensorProto.FLOAT)

    def convertDoublesToHalfs(self) -> None:
        """Has FLOAT16 in the place of DOUBLE."""
        self._convert(TensorProto.DOUBLE, TensorProto.FLOAT16)

    def convertBFloats16ToFloat32(self) -> None:
        """Has FLOAT in the place of BFLOAT16."""
        self._convert(TensorProto.BFLOAT16, TensorProto.FLOAT)

    # --- nodes ----------------------------------------------------------------------------------

    def convertInitializersToConstants(self, ids: Iterable[str]) -> None:
        """Has nodes give what are initializers.

        Raises:
          PopARTError: (a `ValueError`) there is no such initializer.
        """
        known = {tensor.name: tensor for tensor in self._model.graph.initializer}
        names = list(ids)
        for name in names:
            if name not in known:
                raise PopARTError(f"TensorId {name} not in the model initalizers")
        graph = self._model.graph
        nodes = [onnx.helper.make_node("Constant", [], [n], value=known[n]) for n in names]
        nodes += graph.node
        initializers = [t for t in graph.initializer if t.name not in names]
        inputs = [i for i in graph.input if i.name not in names]
        for field in ("node", "initializer", "input"):
            graph.ClearField(field)
        graph.node.extend(nodes)
        graph.initializer.extend(initializers)
        graph.input.extend(inputs)

    def convertAllFixedPointInitializersToConstants(self) -> None:
        """As `convertInitializersToConstants`, for all that are no floating point."""
        kinds = {
            tensor.name: onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            for tensor in self._model.graph.initializer
        }
        self.convertInitializersToConstants(n for n, kind in kinds.items() if kind.kind in "iu")

    def removeUnusedInputs(self) -> None:
        """Leaves out inputs that no node has."""
        graph = self._model.graph
        used = {name for node in graph.node for name in node.input}
        inputs = [i for i in graph.input if i.name in used]
        graph.ClearField("input")
        graph.input.extend(inputs)

    def prepareNodesForTraining(self) -> None:
        """Has batch normalization give its moving statistics, which makes it change them."""
        for node in self._model.graph.node:
            if node.op_type == "BatchNormalization" and len(node.output) == 1:
                node.output.extend(f"{node.output[0]}/{name}" for name in _MOVING)

    # --- inside ---------------------------------------------------------------------------------

    def _convert(self, old: int, new: int, *, clip: bool = False) -> None:
        for graph in _graphs(self._model.graph):
            attributes = (a for node in graph.node for a in node.attribute)
            for tensor in (*graph.initializer, *(a.t for a in attributes if a.HasField("t"))):
                if tensor.data_type == old:
                    tensor.CopyFrom(_converted(tensor, new, clip))
            for info in (*graph.input, *graph.output, *graph.value_info):
                if info.type.tensor_type.elem_type == old:
                    info.type.tensor_type.elem_type = new


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and those inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _converted(tensor: TensorProto, kind: int, clip: bool) -> TensorProto:
    values = onnx.numpy_helper.to_array(tensor)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    if values.dtype == np.int64:
        limits = np.iinfo(np.int32)
        kept = values.clip(limits.min, limits.max)
        if not clip and not np.array_equal(kept, values):
            raise check.refuse(
                f"the tensor {tensor.name!r} has values that INT32 has not",
                "say convertINT64ToINT32(clip=True)",
            )
        values = kept
    return onnx.numpy_helper.from_array(values.astype(dtype), tensor.name)
