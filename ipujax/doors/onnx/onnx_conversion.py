"""ONNX models as functions of JAX; needs the extra `onnx`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from ipujax.doors.models import Model, check
from ipujax.ground import api_boundary, require_package


@check.guard
@api_boundary
def from_onnx(
    model: object,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, object] | None = None,
) -> Model:
    """Converts an ONNX model to JAX functions.

    Variables are the floating-point initializers, by their names; all are trainable. Other
    initializers are constants, and so are values that decide a shape, such as the scales of a
    `Resize`. Values computed only from constants and shapes are computed once, here. 64-bit values
    have 32 bits in JAX; operations among constants keep 64. Functions of the model are inlined.

    Args:
      model: a path, the bytes of a file, or an `onnx.ModelProto`, of any opset that the
        installed onnx knows.
      shapes: the shapes, by input name, of inputs whose dimensions the model leaves open.
      constants: the values, by input name, of inputs that decide shapes or never change. These
        inputs are no longer arguments of `apply`.

    Returns:
      The converted model. `apply` takes the other inputs and returns a tuple of outputs, both in
      the graph's order. Its parts are the scopes of the nodes' names: `/encoder/layer.0/MatMul` is
      in `encoder/layer.0`.

    Raises:
      FrontendError: (a `ValueError`) the file is no valid ONNX model, operators are missing (all
        are listed), dimensions are open, or shapes depend on values.
      FrontendTypeError: (a `TypeError`) the argument is no model.
      MissingExtraError: (an `ImportError`) the package `onnx` is not installed.
    """
    check_installed()
    module = importlib.import_module("ipujax.doors.onnx.onnx_model")
    return module.convert_onnx_model(model, shapes or {}, constants or {})


def check_installed() -> None:
    """Checks that the package `onnx` can be imported.

    Raises:
      MissingExtraError: (an `ImportError`) it is not installed.
    """
    require_package("onnx", "onnx", "ONNX models and programs of PopART need it")
