"""The path from a user's function to a compiled program: trace, lower, compile, call."""

from . import comparison as comparison
from . import executable_cache as executable_cache
from . import ipu_compiler as ipu_compiler
from . import native_code as native_code
from .compile_stages import Traced as Traced
from .compiler import CompiledFunction as CompiledFunction
from .compiler import compile as compile
from .contexts import read_compile_context as read_compile_context
from .device_options import DEFAULT_DEVICE as DEFAULT_DEVICE
from .executable import Executable as Executable
from .saved.read_executable import load_executable as load_executable
from .tile_map_report import tile_mapping as tile_mapping
