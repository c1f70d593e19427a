"""The engines that run a Program: kernels on JAX devices, queues on the host."""

from .choose import ENGINES as ENGINES
from .choose import check_engine as check_engine
from .device_placement import Placement as Placement
from .execution import Execution as Execution
from .execution import compile_loaded_program as compile_loaded_program
from .host_callbacks import Watch as Watch
from .host_code import HostCode as HostCode
from .number_watch import NumberWatch as NumberWatch
from .number_watch import make_number_watch_if_enabled as make_number_watch_if_enabled
from .one_kernel import OneKernel as OneKernel
from .one_kernel import run_kernel as run_kernel
from .replay import Machine as Machine
from .task_compilation import list_memory_analyses as list_memory_analyses
from .task_compilation import sum_cost_analyses as sum_cost_analyses
from .transfers import Apart as Apart
