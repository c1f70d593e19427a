"""The inputs of a model: their replication, and shapes that the model leaves open."""

from __future__ import annotations

from typing import Any

import onnx

from ipujax.popart.options.option_kinds import ExchangeStrategy, ReplicatedStreamMode, TileSet
from ipujax.popart.popart_checks import check
from ipujax.popart.tensor_info import TensorInfo

_STREAM = "__replicated_stream_mode/"


@check.guard
class InputSettings:
    """The settings of how an input is copied to the IPUs.

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
        self._tiles: TileSet = check.require_instance(tileSet, TileSet, "tileSet")
        self._strategy: ExchangeStrategy = check.require_instance(
            exchangeStrategy, ExchangeStrategy, "exchangeStrategy"
        )
        self._stream: ReplicatedStreamMode = check.require_instance(
            replicatedStreamMode, ReplicatedStreamMode, "replicatedStreamMode"
        )

    def tileSet(self) -> TileSet:
        """Returns the tiles that receive the input."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """Returns when the input is copied."""
        return self._strategy

    def replicatedStreamMode(self) -> ReplicatedStreamMode:
        """Returns whether each replica gets its own data, or all get the same."""
        return self._stream


def write_broadcast_inputs(names: set[str], model: onnx.ModelProto) -> None:
    """Writes the names of inputs that all replicas share into a model."""
    for name in sorted(names):
        model.metadata_props.add(key=_STREAM + name, value=ReplicatedStreamMode.Broadcast.name)


def read_broadcast_inputs(model: onnx.ModelProto) -> set[str]:
    """Reads the names of inputs that all replicas share from a model."""
    keys = (entry.key for entry in model.metadata_props)
    return {key.removeprefix(_STREAM) for key in keys if key.startswith(_STREAM)}


def parse_input_arguments(*args: Any, **kwargs: Any) -> tuple[TensorInfo, InputSettings, Any]:
    """Parses the arguments of `Builder.addInputTensor`: info, settings and debug context.

    Raises:
      PopARTTypeError: (a `TypeError`) other arguments.
    """
    positional = list(args)
    first = (
        positional.pop(0) if positional else kwargs.pop("tensorInfo", kwargs.pop("dataType", None))
    )
    if isinstance(first, str):
        shape = positional.pop(0) if positional else kwargs.pop("shape", None)
        if shape is None:
            raise check.value_error(
                "an input has a data type, but no shape", "say addInputTensor(t, s)"
            )
        first = TensorInfo(first, shape)
    info = first if isinstance(first, TensorInfo) else TensorInfo(first)
    has_settings = bool(positional) and isinstance(positional[0], InputSettings)
    settings = positional.pop(0) if has_settings else kwargs.pop("settings", InputSettings())
    context = positional.pop(0) if positional else kwargs.pop("debugContext", "")
    if positional or kwargs:
        raise check.type_error(f"addInputTensor takes no {[*positional, *kwargs]}")
    return info, check.require_instance(settings, InputSettings, "settings"), context


@check.guard
class InputShapeInfo:
    """A table of inputs' types and shapes; inputs that a model does not have are ignored."""

    def __init__(self) -> None:
        self._infos: dict[str, TensorInfo] = {}

    def add(self, id: str, info: TensorInfo) -> None:
        """Sets the type and shape of an input."""
        self._infos[check.require_text(id, "an input")] = check.require_instance(
            info, TensorInfo, "the info"
        )

    def has(self, id: str) -> bool:
        """Returns whether an input's type and shape are set."""
        return id in self._infos

    def get(self, id: str) -> TensorInfo:
        """Returns the type and shape of an input.

        Raises:
          PopARTError: (a `ValueError`) they were not set.
        """
        if id not in self._infos:
            raise check.value_error(f"input {id!r} has no type and shape", "set them with add()")
        return self._infos[id]

    def getAllTensorIds(self) -> list[str]:
        """Returns the names of inputs whose types and shapes are set."""
        return list(self._infos)


def check_input_shapes(model: onnx.ModelProto, infos: InputShapeInfo) -> None:
    """Checks that each input's shape is known from the model or the user.

    Raises:
      PopARTError: (a `ValueError`) an input has an unknown shape.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    for graph_input in model.graph.input:
        if graph_input.name in weights or infos.has(graph_input.name):
            continue
        sizes = [_dimension_size(size) for size in graph_input.type.tensor_type.shape.dim]
        unknown = [size for size in sizes if isinstance(size, str)]
        if unknown:
            raise check.value_error(
                f"Input tensor '{graph_input.name}' must be specified in InputShapeInfo, as it has "
                f"shape [{', '.join(map(str, sizes))}], which uses an unknown value "
                f"'{unknown[0]}'.",
                'say it: info = InputShapeInfo(); info.add("x", TensorInfo("FLOAT", [4, 8])); '
                "TrainingSession(..., inputShapeInfo=info)",
            )


def _dimension_size(size: onnx.TensorShapeProto.Dimension) -> int | str:
    """Returns the size of a dimension, or the name of one that is unknown."""
    is_known = size.HasField("dim_value") and size.dim_value >= 0
    return size.dim_value if is_known else size.dim_param or str(size.dim_value or "?")
