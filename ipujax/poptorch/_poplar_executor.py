"""The class of the original's `poptorch._poplar_executor` that public programs import."""

from ipujax.poptorch.executor import PoplarExecutor as PoplarExecutor
