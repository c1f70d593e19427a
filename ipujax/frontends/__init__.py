"""Conversion of Keras, PyTorch and ONNX models to JAX functions with named variables."""

from ipujax.doors.keras import from_keras as from_keras
from ipujax.doors.models import Model as Model
from ipujax.doors.models import Part as Part
from ipujax.doors.onnx import from_onnx as from_onnx
from ipujax.doors.torch import from_torch as from_torch

__all__ = ["Model", "Part", "from_keras", "from_onnx", "from_torch"]


def __dir__() -> list[str]:
    return __all__
