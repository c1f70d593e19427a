"""ONNX models as functions of JAX; needs the extra `onnx`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from ipujax.checks.lines import api_boundary
from ipujax.errors import MissingExtraError
from ipujax.frontends.checks import check
from ipujax.frontends.model import Model


@check.guard
@api_boundary
def from_onnx(
    model: Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Model:
    """An ONNX model as functions of JAX.

    Variables are the initializers of floating point, by their names, and trainable. Other
    initializers are constants, and so is whatever decides a shape, such as the scales of a
    `Resize`. What only constants and shapes go into is computed once, here. Values of 64 bits
    have 32 in JAX; constants keep 64 among themselves. Functions of the model are inlined.

    Args:
      model: a path, the bytes of a file, or an `onnx.ModelProto`, of any opset that the
        installed onnx knows.
      shapes: of inputs, by their names, whose dimensions the model leaves open.
      constants: values of inputs, by their names, that decide shapes or that never change. They
        are no arguments of `apply` any more.

    Returns:
      The model. `apply` takes the other inputs, and gives the outputs as a tuple, both in the
      graph's order. Its parts are the scopes of the nodes' names: `/encoder/layer.0/MatMul` is in
      `encoder/layer.0`.

    Raises:
      FrontendError: (a `ValueError`) a file that is no ONNX model or a broken one, operators that
        are missing (all of them are listed), open dimensions, or shapes that depend on values.
      FrontendTypeError: (a `TypeError`) something else than a model.
      MissingExtraError: (an `ImportError`) the package `onnx` is not installed.
    """
    check_installed()
    module = importlib.import_module("ipujax.frontends.onnx.model")
    return module.model_of(model, shapes or {}, constants or {})


def check_installed() -> None:
    """Makes sure that the package `onnx` can be imported.

    Raises:
      MissingExtraError: (an `ImportError`) it is not installed.
    """
    if importlib.util.find_spec("onnx") is None:
        raise MissingExtraError(
            "the package onnx is not installed", fix="pip install 'ipujax[onnx]'"
        )


__all__ = ["check_installed", "from_onnx"]
