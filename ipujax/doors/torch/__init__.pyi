"""Models of PyTorch as functions of JAX; needs the extra `torch`."""

from .backward.differentiable_values import BackwardUse as BackwardUse
from .backward.gradient_regions import differentiable_inputs as differentiable_inputs
from .capture import ModuleTrace as ModuleTrace
from .capture import first_name_of_tensors as first_name_of_tensors
from .capture import trace_torch_module as trace_torch_module
from .operators.table import ATEN as ATEN
from .tensor_arrays import aval_of_tensor as aval_of_tensor
from .tensor_arrays import jax_dtype_of as jax_dtype_of
from .tensor_arrays import to_jax as to_jax
from .tensor_arrays import to_numpy as to_numpy
from .tensor_arrays import to_torch as to_torch
from .torch_conversion import check_installed as check_installed
from .torch_conversion import from_torch as from_torch
from .torch_errors import first_line_of_function as first_line_of_function
from .torch_errors import is_user_code as is_user_code
from .torch_errors import torchscript_error as torchscript_error
from .torch_gradients import find_trainable_sources as find_trainable_sources
from .torch_model import collect_updated_variables as collect_updated_variables
from .torch_model import compute_named_values as compute_named_values
from .trace import BLOCK as BLOCK
from .trace import Trace as Trace
from .trace import current_trace as current_trace
