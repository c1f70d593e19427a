"""ONNX models as they come: read, checked, made plain."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.checker
import onnx.external_data_helper
import onnx.inliner

from ipujax.errors import FrontendError
from ipujax.frontends.checks import check

OLDEST = 7
"""The oldest opset of ONNX's own domain whose meaning is known."""


def read(source: object) -> onnx.ModelProto:
    """The model of a path, of bytes or of a `ModelProto`, whole and without functions.

    Raises:
      FrontendError: (a `ValueError`) see `from_onnx`.
      FrontendTypeError: (a `TypeError`) something else.
    """
    model, folder = _parsed(source)
    _read_external(model, folder)
    _check(model)
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def opset_of(model: onnx.ModelProto, domain: str = "") -> int:
    """The version of a domain's operators that the model uses."""
    names = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return max((o.version for o in model.opset_import if o.domain in names), default=1)


def _parsed(source: object) -> tuple[onnx.ModelProto, Path | None]:
    if isinstance(source, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(source)
        return copy, None
    folder = None
    if isinstance(source, str | os.PathLike):
        path = Path(os.fspath(source))
        if not path.is_file():
            raise check.refuse(f"there is no file {str(path)!r}", "give the path of an ONNX model")
        source, folder = path.read_bytes(), path.parent
    data = check.instance(source, bytes, "the model", "a path, bytes or an onnx.ModelProto")
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:
        raise FrontendError(
            f"these bytes are no ONNX model: {error}", fix="is the file truncated?"
        ) from error
    return model, folder


def _read_external(model: onnx.ModelProto, folder: Path | None) -> None:
    """Reads tensors that lie in other files, from the model's own folder alone."""
    uses = onnx.external_data_helper.uses_external_data
    for tensor in filter(uses, _tensors(model.graph)):
        location = onnx.external_data_helper.ExternalDataInfo(tensor).location
        if folder is None:
            raise check.refuse(
                f"the values of {tensor.name!r} lie in the file {location!r}, and the model has no "
                "folder",
                "give the path of the model's file",
            )
        target = (folder / location).resolve()
        if not target.is_relative_to(folder.resolve()) or not target.is_file():
            raise check.refuse(
                f"the values of {tensor.name!r} lie in {location!r}, which is no file in the "
                "model's folder",
                "put the file beside the model",
            )
        onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a graph: initializers, and those in attributes, of graphs inside it too."""
    yield from graph.initializer
    for attribute in (a for node in graph.node for a in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)


def _check(model: onnx.ModelProto) -> None:
    if opset_of(model) < OLDEST:
        raise check.refuse(
            f"the model is of opset {opset_of(model)}",
            f"opsets from {OLDEST} on are known: convert it with onnx.version_converter",
        )
    try:
        onnx.checker.check_model(model, skip_opset_compatibility_check=True)
    except onnx.checker.ValidationError as error:
        first = str(error).strip().splitlines()[0]
        raise FrontendError(f"the model is broken: {first}") from error
