"""Training and inference: a model, its optimizer and its data become loops on the device.

A `Training` defines a step; it compiles to one program that makes many steps, as a loop or as a
pipeline. `fit` runs that program until enough steps are made, a callback stops it, or the data
ends. An `Inference` does the same without learning.
"""

from ipujax.pipelines.state import StageOutput as StageOutput
from ipujax.training.callbacks import Callback as Callback
from ipujax.training.callbacks import History as History
from ipujax.training.callbacks import Run as Run
from ipujax.training.inference import Inference as Inference
from ipujax.training.pipeline_model import Pipeline as Pipeline
from ipujax.training.progress import Progress as Progress
from ipujax.training.state import StepOutput as StepOutput
from ipujax.training.state import TrainState as TrainState
from ipujax.training.training import Training as Training
from ipujax.training.weight_update import ReplicaReduction as ReplicaReduction
from ipujax.training.weight_update import SelfDifferentiating as SelfDifferentiating

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
