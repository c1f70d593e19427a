"""Training and inference: a model, its optimizer and its data become loops on the device.

A `Training` defines a step; it compiles to one program that makes many steps, as a loop or as a
pipeline. `fit` runs that program until enough steps are made, a callback stops it, or the data
ends. An `Inference` does the same without learning.
"""

# The names of `__all__` are in the stub.
# pyright: reportUnsupportedDunderAll=false

import lazy_loader

__getattr__, _, _ = lazy_loader.attach_stub(__name__, __file__)

# The public names. The stub lists also the names that other rooms use.
__all__ = [
    "Callback",
    "History",
    "Inference",
    "Pipeline",
    "Progress",
    "ReplicaReduction",
    "Run",
    "SelfDifferentiating",
    "StageOutput",
    "StepOutput",
    "TrainState",
    "Training",
]


def __dir__() -> list[str]:
    return __all__
