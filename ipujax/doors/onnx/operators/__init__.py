"""The JAX functions of ONNX operators; each module fills the table for one subject."""

import importlib
import pkgutil

from ipujax.doors.onnx.operators.table import ONNX as ONNX

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
