"""The parts of estimators: model functions, modes, hooks, and the files of a training."""

from . import ipu_estimator as ipu_estimator
from . import ipu_pipeline_estimator as ipu_pipeline_estimator
from . import ipu_run_config as ipu_run_config
