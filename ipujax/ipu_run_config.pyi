from .doors.estimators.ipu_run_config import IPURunConfig as IPURunConfig
from .doors.estimators.ipu_run_config import RunConfig as RunConfig
