"""The classes of the original's `poptorch._poplar_executor` that public programs import."""

from ipujax.poptorch.executor import PoplarExecutor as PoplarExecutor
from ipujax.poptorch.substitutions import OverwriteContextManager as _OverwriteContextManager

__all__ = ["PoplarExecutor", "_OverwriteContextManager"]
