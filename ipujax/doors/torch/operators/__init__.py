"""The JAX functions of PyTorch operators; each module fills the table for one subject."""

import importlib
import pkgutil

from ipujax.doors.torch.operators.table import ATEN as ATEN

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
