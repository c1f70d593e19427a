from .operators.summary import ipu_compile_summary as ipu_compile_summary
from .operators.summary import tensor_summary as tensor_summary
