"""Conversion of Keras, PyTorch and ONNX models to JAX functions with named variables."""

from ipujax.frontends.keras import from_keras as from_keras
from ipujax.frontends.model import Model as Model
from ipujax.frontends.model import Part as Part
from ipujax.frontends.onnx import from_onnx as from_onnx
from ipujax.frontends.pytorch import from_torch as from_torch

__all__ = ["Model", "Part", "from_keras", "from_onnx", "from_torch"]


def __dir__() -> list[str]:
    return __all__
