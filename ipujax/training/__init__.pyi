"""Training and inference: a model, its optimizer and its data become loops on the device.

A `Training` defines a step; it compiles to one program that makes many steps, as a loop or as a
pipeline. `fit` runs that program until enough steps are made, a callback stops it, or the data
ends. An `Inference` does the same without learning.
"""

from .device_loop import Advance as Advance
from .device_loop import DeviceLoop as DeviceLoop
from .inference import Inference as Inference
from .inference import sum_in_64_bits as sum_in_64_bits
from .loss_scaling import FACTOR as FACTOR
from .loss_scaling import Factors as Factors
from .loss_scaling import LossScaling as LossScaling
from .loss_scaling import Scale as Scale
from .loss_scaling import pass_and_count_gradient as pass_and_count_gradient
from .loss_scaling import select_loss_scale_factors as select_loss_scale_factors
from .loss_scaling import wrap_with_loss_scaling as wrap_with_loss_scaling
from .pipeline_check import check_pipeline as check_pipeline
from .pipeline_differences import PipelineCheck as PipelineCheck
from .pipeline_model import Pipeline as Pipeline
from .pipeline_model import StageOutput as StageOutput
from .progress import Progress as Progress
from .progress import ProgressBar as ProgressBar
from .progress import progress_bar as progress_bar
from .state_devices import gathers_results as gathers_results
from .state_devices import release_state as release_state
from .training import Training as Training
from .training_callbacks import Callback as Callback
from .training_callbacks import History as History
from .training_callbacks import Run as Run
from .training_state import StepOutput as StepOutput
from .training_state import TrainState as TrainState
from .training_state import Tree as Tree
from .training_state import drop_weak_types as drop_weak_types
from .weight_update import ReplicaReduction as ReplicaReduction
from .weight_update import SelfDifferentiating as SelfDifferentiating
