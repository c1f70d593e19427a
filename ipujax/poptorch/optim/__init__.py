"""The optimizers of `poptorch.optim`, and the formulas of torch's optimizers in JAX."""

from __future__ import annotations

from ipujax.poptorch.optim.attributes import Optimizer as Optimizer
from ipujax.poptorch.optim.attributes import VariableAttributes as VariableAttributes
from ipujax.poptorch.optim.lamb import LAMB as LAMB
from ipujax.poptorch.optim.torch_optimizers import SGD as SGD
from ipujax.poptorch.optim.torch_optimizers import Adam as Adam
from ipujax.poptorch.optim.torch_optimizers import AdamW as AdamW
from ipujax.poptorch.optim.torch_optimizers import RMSprop as RMSprop

__all__ = ["LAMB", "SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "VariableAttributes"]


def __dir__() -> list[str]:
    return __all__
