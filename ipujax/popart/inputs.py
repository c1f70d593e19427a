"""Inputs of a model: how they come to the replicas, and shapes that the model leaves open."""

from __future__ import annotations

from typing import Any

import onnx

from ipujax.popart.checks import check
from ipujax.popart.options.kinds import ExchangeStrategy, ReplicatedStreamMode, TileSet
from ipujax.popart.tensor_info import TensorInfo

_STREAM = "__replicated_stream_mode/"


@check.guard
class InputSettings:
    """How an input comes to an IPU.

    Called as `InputSettings(tileSet, exchangeStrategy)`, which change nothing here, or as
    `InputSettings(ReplicatedStreamMode.Broadcast)`: the data of a step have no dimension of
    replicas then, and all of them get the same.
    """

    def __init__(
        self,
        tileSet: TileSet | ReplicatedStreamMode = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
        *,
        replicatedStreamMode: ReplicatedStreamMode = ReplicatedStreamMode.Replicate,
    ):
        if isinstance(tileSet, ReplicatedStreamMode):
            tileSet, replicatedStreamMode = TileSet.Compute, tileSet
        self._tiles: TileSet = check.instance(tileSet, TileSet, "tileSet")
        self._strategy: ExchangeStrategy = check.instance(
            exchangeStrategy, ExchangeStrategy, "exchangeStrategy"
        )
        self._stream: ReplicatedStreamMode = check.instance(
            replicatedStreamMode, ReplicatedStreamMode, "replicatedStreamMode"
        )

    def tileSet(self) -> TileSet:
        """The tiles that had it."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """When it came."""
        return self._strategy

    def replicatedStreamMode(self) -> ReplicatedStreamMode:
        """Whether replicas get data of their own."""
        return self._stream


def write_broadcast(names: set[str], model: onnx.ModelProto) -> None:
    """Writes into a model which of its inputs all replicas get."""
    for name in sorted(names):
        model.metadata_props.add(key=_STREAM + name, value=ReplicatedStreamMode.Broadcast.name)


def broadcast_inputs(model: onnx.ModelProto) -> set[str]:
    """The inputs that all replicas get."""
    keys = (entry.key for entry in model.metadata_props)
    return {key.removeprefix(_STREAM) for key in keys if key.startswith(_STREAM)}


def input_of(*args: Any, **kwargs: Any) -> tuple[TensorInfo, InputSettings, Any]:
    """Form, settings and name of an input, of a call of `Builder.addInputTensor`.

    Raises:
      PopARTTypeError: (a `TypeError`) other arguments.
    """
    given = list(args)
    first = given.pop(0) if given else kwargs.pop("tensorInfo", kwargs.pop("dataType", None))
    if isinstance(first, str):
        shape = given.pop(0) if given else kwargs.pop("shape", None)
        if shape is None:
            raise check.refuse("an input of a data type has no shape", "say addInputTensor(t, s)")
        first = TensorInfo(first, shape)
    info = first if isinstance(first, TensorInfo) else TensorInfo(first)
    is_said = bool(given) and isinstance(given[0], InputSettings)
    settings = given.pop(0) if is_said else kwargs.pop("settings", InputSettings())
    context = given.pop(0) if given else kwargs.pop("debugContext", "")
    if given or kwargs:
        raise check.refuse_type(f"addInputTensor takes no {[*given, *kwargs]}")
    return info, check.instance(settings, InputSettings, "settings"), context


@check.guard
class InputShapeInfo:
    """Types and shapes of inputs, by name; those that a model does not have are ignored."""

    def __init__(self) -> None:
        self._infos: dict[str, TensorInfo] = {}

    def add(self, id: str, info: TensorInfo) -> None:
        """Says what an input is."""
        self._infos[check.text(id, "an input")] = check.instance(info, TensorInfo, "the info")

    def has(self, id: str) -> bool:
        """Whether an input is known."""
        return id in self._infos

    def get(self, id: str) -> TensorInfo:
        """What was said of an input.

        Raises:
          PopARTError: (a `ValueError`) nothing was.
        """
        if id not in self._infos:
            raise check.refuse(f"nothing is said of input {id!r}", "say it with add()")
        return self._infos[id]

    def getAllTensorIds(self) -> list[str]:
        """The inputs that are known."""
        return list(self._infos)


def check_shapes(model: onnx.ModelProto, infos: InputShapeInfo) -> None:
    """Raises for inputs whose shapes neither the model nor a user says.

    Raises:
      PopARTError: (a `ValueError`) there are such inputs.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    for given in model.graph.input:
        if given.name in weights or infos.has(given.name):
            continue
        sizes = [_size(size) for size in given.type.tensor_type.shape.dim]
        unknown = [size for size in sizes if isinstance(size, str)]
        if unknown:
            raise check.refuse(
                f"Input tensor '{given.name}' must be specified in InputShapeInfo, as it has shape "
                f"[{', '.join(map(str, sizes))}], which uses an unknown value '{unknown[0]}'.",
                'say it: info = InputShapeInfo(); info.add("x", TensorInfo("FLOAT", [4, 8])); '
                "TrainingSession(..., inputShapeInfo=info)",
            )


def _size(size: onnx.TensorShapeProto.Dimension) -> int | str:
    """A size, or the text of what is in its place."""
    is_known = size.HasField("dim_value") and size.dim_value >= 0
    return size.dim_value if is_known else size.dim_param or str(size.dim_value or "?")
