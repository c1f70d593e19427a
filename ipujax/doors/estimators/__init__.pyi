"""The parts of estimators: model functions, modes, hooks, and the files of a training."""

from . import ipu_estimator as ipu_estimator
from . import ipu_pipeline_estimator as ipu_pipeline_estimator
from . import ipu_run_config as ipu_run_config
from .estimator_spec import IPUEstimatorSpec as IPUEstimatorSpec
from .estimator_spec import ModeKeys as ModeKeys
from .logging_hook import IPULoggingTensorHook as IPULoggingTensorHook
from .pipeline_spec import IPUPipelineEstimatorSpec as IPUPipelineEstimatorSpec
from .saver_listeners import CheckpointSaverListener as CheckpointSaverListener
from .session_hooks import Session as Session
from .session_hooks import SessionRunContext as SessionRunContext
from .session_hooks import SessionRunHook as SessionRunHook
from .session_hooks import SessionRunValues as SessionRunValues
from .stop_and_profiler_hooks import EarlyStoppingHook as EarlyStoppingHook
from .stop_and_profiler_hooks import ProfilerHook as ProfilerHook
from .stop_and_profiler_hooks import StopAtStepHook as StopAtStepHook
